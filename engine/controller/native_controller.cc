#include <algorithm>
#include <limits>
#include <utility>

#include "engine/controller/controller.h"
#include "engine/controller/inputs.h"

namespace lookback::controller {
namespace {

std::vector<Features> Fresh(std::span<const HeadMoments> moments,
                            std::span<const AttentionStats> previous) {
  std::vector<Features> features;
  for (size_t head = 0; head < moments.size(); ++head) {
    features.push_back(FreshFeatures(moments[head], previous[head]));
  }
  return features;
}

/// Level 0 whose groups come from an earlier update or from a rule.
Level KeptLevel(Groups groups, std::span<const HeadMoments> moments,
                std::span<const AttentionStats> previous) {
  Level level;
  for (const std::vector<int64_t>& group : groups) {
    level.features.push_back(UnionFeatures(moments, previous, group));
  }
  level.children = std::move(groups);
  return level;
}

Groups HeadsByNode(const Hierarchy& hierarchy, size_t level, int64_t heads) {
  Groups by_node(static_cast<size_t>(hierarchy[level].nodes()));
  const std::vector<int64_t> node = NodeOfHead(hierarchy, level, heads);
  for (int64_t head = 0; head < heads; ++head) {
    by_node[static_cast<size_t>(node[static_cast<size_t>(head)])].push_back(head);
  }
  return by_node;
}

class NativeController : public LayerController {
 public:
  NativeController(const NativeConfig& config, Networks networks, int64_t heads)
      : config_(config),
        networks_(std::move(networks)),
        heads_(heads),
        stats_(static_cast<size_t>(heads)) {}

  const Update& Choose(std::span<const HeadMoments> moments, int64_t tokens) override {
    LOOKBACK_CHECK(std::ssize(moments) == heads_);
    update_ = Update();
    if (IsFixedChoice()) {
      update_.path = "fixed_window";
      TakeOne(FixedChoice());
    } else if (!config_.apply_window_control) {
      update_.path = "window_control_off";
      if (hierarchy_.empty()) hierarchy_ = NextHierarchy(moments);
      TakeOne(UncontrolledChoice(config_.windows, tokens));
    } else if (!config_.build_hierarchy) {
      update_.path = "grouping_off";
      Score(UngroupedHeads(moments), /*oracle=*/false);
      ApplyResolutionEma();
    } else {
      hierarchy_ = NextHierarchy(moments);
      Score(hierarchy_, config_.controller_choice_mode == ChoiceMode::kOracleAlternating);
      ApplyResolutionEma();
    }
    return update_;
  }

  bool wants_attention() const override { return true; }
  void Observe(std::span<const AttentionStats> stats) override {
    stats_.assign(stats.begin(), stats.end());
  }

  std::span<const Features> ema_features() const override { return ema_.values(); }
  const Hierarchy& hierarchy() const override { return hierarchy_; }
  std::span<const int64_t> windows() const override { return config_.windows; }

 private:
  bool IsFixedChoice() const {
    return config_.controller_choice_mode == ChoiceMode::kFixedTokens ||
           config_.controller_choice_mode == ChoiceMode::kFixedIndex;
  }
  int64_t FixedChoice() const {
    if (config_.controller_choice_mode == ChoiceMode::kFixedTokens) {
      return NearestChoice(config_.windows, config_.fixed_choice);
    }
    return std::clamp<int64_t>(config_.fixed_choice, 0, std::ssize(config_.windows) - 1);
  }
  void TakeOne(int64_t index) {
    update_.chosen.assign(static_cast<size_t>(heads_), index);
    update_.index = update_.chosen;
  }

  /// Without groups every head is a node of the only level, with this forward's features.
  Hierarchy UngroupedHeads(std::span<const HeadMoments> moments) const {
    Level level;
    for (int64_t head = 0; head < heads_; ++head) level.children.push_back({head});
    level.features = Fresh(moments, stats_);
    return {std::move(level)};
  }

  /// The tree of this forward, by the regime.
  Hierarchy NextHierarchy(std::span<const HeadMoments> moments) {
    const HierarchyMode mode = config_.hierarchy_ablation_mode;
    if (mode == HierarchyMode::kFixedRandom || mode == HierarchyMode::kFixedDeterministic) {
      update_.path = NameOf(mode);
      Groups groups = mode == HierarchyMode::kFixedRandom
                          ? RandomGroups(heads_, config_.fixed_hierarchy_seed)
                          : AlternatingGroups(heads_);
      return PassThrough(KeptLevel(std::move(groups), moments, stats_), config_);
    }
    const bool keeps = mode != HierarchyMode::kAdaptive || config_.reuse_group_hierarchy;
    if (!keeps || hierarchy_.empty()) return AdaptiveHierarchy(moments);
    Level bottom = KeptLevel(hierarchy_[0].children, moments, stats_);
    if (mode == HierarchyMode::kFreezeLearnedTopology) {
      update_.path = NameOf(mode);
      return Refill(hierarchy_, std::move(bottom), config_.group_feature_mode);
    }
    if (mode == HierarchyMode::kFreezeAfterWarmup) {
      update_.path = NameOf(mode);
      return PassThrough(std::move(bottom), config_);
    }
    update_.path = "reuse_group_hierarchy";
    return Grow(std::move(bottom), config_, update_.clusterings);
  }

  Hierarchy AdaptiveHierarchy(std::span<const HeadMoments> moments) {
    if (update_.path.empty()) update_.path = "adaptive";
    const std::vector<Features>& features = ema_.Update(Fresh(moments, stats_), config_.ema_alpha);
    std::vector<int64_t> previous;
    if (!hierarchy_.empty()) previous = GroupOf(hierarchy_[0].children, heads_);
    Clustering clustering =
        ClusterHeads(features, HeadRules(config_), previous, config_.churn_penalty);
    update_.clusterings.push_back(
        {clustering.before_merge, std::ssize(clustering.groups), clustering.forced});
    Level bottom;
    bottom.features = Aggregate(features, clustering.groups, config_.group_feature_mode);
    bottom.children = std::move(clustering.groups);
    return Grow(std::move(bottom), config_, update_.clusterings);
  }

  /// From the top down: logits, choice, parent constraint.
  void Score(const Hierarchy& hierarchy, bool oracle) {
    update_.levels.resize(hierarchy.size());
    for (size_t level = hierarchy.size(); level-- > 0;) {
      LevelTrace& trace = update_.levels[level];
      const Groups families = FamiliesOf(hierarchy, level);
      trace.children = hierarchy[level].children;
      trace.heads = HeadsByNode(hierarchy, level, heads_);
      trace.inputs = ControllerInputs(hierarchy, level, config_.controller_input_mode, heads_);
      trace.logits = LevelLogits(networks_, config_, trace.inputs, families);
      trace.margin = std::numeric_limits<double>::infinity();
      for (size_t node = 0; node < trace.logits.size(); ++node) {
        trace.raw_index.push_back(oracle ? OracleChoice(static_cast<int64_t>(node), Choices())
                                         : Argmax(trace.logits[node]));
        trace.margin = std::min(trace.margin, Margin(trace.logits[node]));
      }
      trace.index = trace.raw_index;
      if (config_.parent_constraint && level + 1 < hierarchy.size()) {
        ConstrainToParents(families, update_.levels[level + 1].index, trace.index);
      }
    }
    for (const int64_t node : GroupOf(hierarchy[0].children, heads_)) {
      update_.chosen.push_back(update_.levels[0].index[static_cast<size_t>(node)]);
    }
  }

  void ApplyResolutionEma() {
    if (config_.resolution_ema_alpha == 0.0) {
      update_.index = update_.chosen;
      return;
    }
    UpdateResolution(update_.chosen, config_.resolution_ema_alpha, resolution_);
    update_.mean = resolution_;
    for (const float mean : resolution_) update_.index.push_back(RoundedChoice(mean, Choices()));
  }

  int64_t Choices() const { return std::ssize(config_.windows); }

  NativeConfig config_;
  Networks networks_;
  int64_t heads_;
  std::vector<AttentionStats> stats_;  ///< left by the last forward
  FeatureEma<kFeatures> ema_;
  Hierarchy hierarchy_;
  std::vector<float> resolution_;  ///< [heads], the EMA over choices
  Update update_;
};

}  // namespace

std::unique_ptr<LayerController> MakeNativeController(const NativeConfig& config, Networks networks,
                                                      int64_t heads) {
  return std::make_unique<NativeController>(config, std::move(networks), heads);
}

}  // namespace lookback::controller
