// The controller of a retrofit adapter, whose conventions are not the native ones: its own
// features, pairs instead of a hierarchy, an EMA over choices that starts at zero.
#include <algorithm>
#include <limits>
#include <utility>

#include "engine/controller/controller.h"
#include "engine/tensor.h"

namespace lookback::controller {
namespace {

constexpr double kFeatureShare = 0.9;     // of the old features
constexpr float kOldChoiceShare = 0.85F;  // of the EMA over choices
constexpr float kNewChoiceShare = 0.15F;
constexpr int64_t kGroupedHeads = 2;

/// Adjacent heads, `size` to a group.
Groups AdjacentGroups(int64_t heads, int64_t size) {
  Groups groups;
  for (int64_t head = 0; head < heads; ++head) {
    if (head % size == 0) groups.emplace_back();
    groups.back().push_back(head);
  }
  return groups;
}

class AdapterController : public LayerController {
 public:
  AdapterController(const AdapterConfig& config, Mlp network, int64_t heads, int64_t layer,
                    bool round_to_bf16)
      : config_(config),
        network_(std::move(network)),
        layer_(layer),
        round_to_bf16_(round_to_bf16),
        groups_(AdjacentGroups(heads, grouped() ? kGroupedHeads : 1)),
        resolution_(static_cast<size_t>(heads), 0.0F) {}

  const Update& Choose(std::span<const HeadMoments> moments, int64_t /*tokens*/) override {
    if (step_++ % config_.control_interval != 0) {
      update_.cached = true;
      return update_;
    }
    update_ = Update();
    update_.path = NameOf(config_.regime);
    const std::vector<AdapterFeatures>& features =
        ema_.Update(FreshAdapterFeatures(moments, layer_), kFeatureShare);
    LevelTrace trace;
    trace.children = trace.heads = groups_;
    trace.margin = std::numeric_limits<double>::infinity();
    for (const std::vector<int64_t>& group : groups_) {
      trace.inputs.push_back(InputOf(features, group));
      trace.logits.push_back(network_(trace.inputs.back()));
      trace.raw_index.push_back(Argmax(trace.logits.back()));
      trace.margin = std::min(trace.margin, Margin(trace.logits.back()));
    }
    trace.index = Clamped(trace.raw_index);
    for (size_t group = 0; group < groups_.size(); ++group) {
      update_.chosen.insert(update_.chosen.end(), groups_[group].size(), trace.index[group]);
    }
    update_.levels.push_back(std::move(trace));
    for (size_t head = 0; head < resolution_.size(); ++head) {
      resolution_[head] = kOldChoiceShare * resolution_[head] +
                          kNewChoiceShare * static_cast<float>(update_.chosen[head]);
      update_.index.push_back(RoundedChoice(resolution_[head], std::ssize(config_.windows)));
    }
    update_.mean = resolution_;
    return update_;
  }

  std::span<const int64_t> windows() const override { return config_.windows; }

 private:
  bool grouped() const { return config_.regime != AdapterRegime::kGroupingOff; }

  /// The mean over the group's heads.
  std::vector<float> InputOf(const std::vector<AdapterFeatures>& features,
                             const std::vector<int64_t>& group) const {
    std::vector<float> input;
    for (size_t f = 0; f < kAdapterFeatures; ++f) {
      double sum = 0.0;
      for (const int64_t head : group) sum += features[static_cast<size_t>(head)][f];
      auto mean = static_cast<float>(sum / static_cast<double>(group.size()));
      if (round_to_bf16_) mean = BF16ToF32(F32ToBF16(mean));
      input.push_back(mean);
    }
    return input;
  }

  /// With groups, no choice is more than one from that of the group before, as clamped.
  std::vector<int64_t> Clamped(std::vector<int64_t> index) const {
    if (!grouped()) return index;
    for (size_t i = 1; i < index.size(); ++i) {
      index[i] = std::clamp(index[i], index[i - 1] - 1, index[i - 1] + 1);
    }
    return index;
  }

  AdapterConfig config_;
  Mlp network_;
  int64_t layer_;
  bool round_to_bf16_;
  Groups groups_;
  int64_t step_ = 0;  ///< forwards so far
  FeatureEma<kAdapterFeatures> ema_;
  std::vector<float> resolution_;  ///< [heads], the EMA over choices
  Update update_;
};

}  // namespace

std::unique_ptr<LayerController> MakeAdapterController(const AdapterConfig& config, Mlp network,
                                                       int64_t heads, int64_t layer,
                                                       bool round_to_bf16) {
  return std::make_unique<AdapterController>(config, std::move(network), heads, layer,
                                             round_to_bf16);
}

}  // namespace lookback::controller
