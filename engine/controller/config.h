// What decides how an AAH controller behaves (AAH, arXiv 2608.19203): the release's settings as
// plain values, read from a run's YAML or from a converted file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/json.h"
#include "engine/safetensors.h"
#include "engine/status.h"

namespace lookback::controller {

/// How heads are grouped over time (`hierarchy_ablation_mode`). Where several settings ask for
/// something, fixed_* wins over a frozen topology, that over freeze_after_warmup, that over reuse.
enum class HierarchyMode : uint8_t {
  kAdaptive,
  kFreezeLearnedTopology,  ///< the tree of the first update stays
  kFixedRandom,
  kFixedDeterministic,
  kFreezeAfterWarmup,  ///< level 0 of the first update stays, repeated upwards
};
/// How a window is chosen (`controller_choice_mode`).
enum class ChoiceMode : uint8_t {
  kLearned,
  kOracleAlternating,
  kFixedTokens,  ///< fixed_window_N: the choice nearest to N tokens
  kFixedIndex,   ///< fixed_window_idx_N, clamped
};
/// What siblings do to each other's logits (`controller_pairwise_mode`).
enum class PairwiseMode : uint8_t { kNone, kJointSibling, kSiblingBias };
/// Children → node (`group_feature_mode`).
enum class Aggregation : uint8_t { kMean, kMeanStd, kMeanVar, kMeanGlobalOffset };
/// Likeness of nodes above level 0 (`upper_cluster_metric`).
enum class Metric : uint8_t { kCosine, kCosineNormdiff, kL2, kCenteredCosine };
/// What the controller sees of a node (`controller_input_mode`).
enum class InputMode : uint8_t {
  kBase,
  kEnriched,
  kContrastive,
  kPositionAware,
  kRelativeSiblingMean,
};
enum class Arch : uint8_t { kMlp, kDeepMlp };  ///< `controller_arch`: two Linears or three

/// The names that the release gives the values of an enum, the default first.
template <typename Enum>
using Names = std::span<const std::pair<std::string_view, Enum>>;
Names<HierarchyMode> NamesOf(HierarchyMode);
Names<PairwiseMode> NamesOf(PairwiseMode);
Names<Aggregation> NamesOf(Aggregation);
Names<Metric> NamesOf(Metric);
Names<InputMode> NamesOf(InputMode);
Names<Arch> NamesOf(Arch);

/// The name of one value.
template <typename Enum>
std::string_view NameOf(Enum value) {
  for (const auto& [name, known] : NamesOf(value)) {
    if (known == value) return name;
  }
  return {};
}

/// A native run's controller. Fields carry the names of their keys without `aah_v3_`, and the
/// defaults of the release's loader.
struct NativeConfig {
  bool enabled = false;
  std::vector<int64_t> windows;      ///< the choices in tokens, not sorted
  bool build_hierarchy = true;       ///< older files: grouping_enabled
  bool apply_window_control = true;  ///< older files: control_enabled
  bool reuse_group_hierarchy = false;
  bool parent_constraint = true;  ///< no node chooses a later index than its parent
  HierarchyMode hierarchy_ablation_mode = HierarchyMode::kAdaptive;
  ChoiceMode controller_choice_mode = ChoiceMode::kLearned;
  int64_t fixed_choice = 0;  ///< the N of kFixedTokens and kFixedIndex
  PairwiseMode controller_pairwise_mode = PairwiseMode::kNone;
  Aggregation group_feature_mode = Aggregation::kMean;
  Metric upper_cluster_metric = Metric::kCosine;
  InputMode controller_input_mode = InputMode::kBase;
  Arch controller_arch = Arch::kMlp;
  int64_t control_dim = 16;
  int64_t joint_hidden_dim = 0;  ///< 0 = control_dim
  int64_t control_interval = 100;
  int64_t max_depth = 6;       ///< levels, level 0 included
  int64_t min_group_size = 1;  ///< children
  int64_t warmup_steps = 0;
  int64_t post_warmup_ramp_steps = 0;
  int64_t w_min_gpu = 64;  ///< W_min_gpu, tokens: a floor of the diagnostics alone
  int64_t fixed_hierarchy_seed = 1337;
  double sim_threshold = 0.7;         ///< of level 0
  double super_threshold = 0.7;       ///< of the levels above
  double ema_alpha = 0.9;             ///< of the features: the share of the old value
  double resolution_ema_alpha = 0.0;  ///< of the choice: the share of the old value; 0 = off
  double churn_penalty = 0.05;        ///< likeness that heads of one former group gain
  double upper_l2_threshold = 0.0;
  double cosine_normdiff_scale = 16.0;
  double controller_logit_scale = 1.0;
  double pairwise_bias_scale = 1.0;
  double joint_output_scale = 1.0;
  std::vector<std::string> unknown_keys;  ///< of the controller, without meaning here

  /// Every head sees everything: not enabled, or neither hierarchy nor control.
  bool full_attention() const { return !enabled || (!build_hierarchy && !apply_window_control); }
  /// The keys a converted file carries, and the way back is ReadNativeConfig.
  Json ToJson() const;
};

/// Reads every key `PREFIXkey` of `object`; an absent key keeps the value of `defaults`. Errors
/// name key, place, got and expected: unknown modes, numbers out of range, no windows. Keys with
/// the prefix (if there is one) that mean nothing here go to unknown_keys.
Result<NativeConfig> ReadNativeConfig(const JsonObject& object, std::string_view prefix,
                                      const NativeConfig& defaults);

/// Whether a controller with these settings may run: InvalidArgument, by name, for keys that are
/// not known and for settings that contradict each other. `prefix` and `where` as they were read.
Status CheckRunnable(const NativeConfig& config, std::string_view prefix, const std::string& where);

/// Which heads an adapter's controller takes together.
enum class AdapterRegime : uint8_t {
  kGroupingOff,         ///< every head by itself
  kFullAdaptive,        ///< pairs of adjacent heads, as in
  kShallowFreeze,       ///< this and
  kDeepPracticalReuse,  ///< this one: in evaluation the three compute the same
};
Names<AdapterRegime> NamesOf(AdapterRegime);

/// The controller of a retrofit adapter on a Qwen3 or Llama model.
struct AdapterConfig {
  AdapterRegime regime = AdapterRegime::kFullAdaptive;
  std::vector<int64_t> windows = {512, 1024, 2048, 4096};  ///< the choices in tokens
  int64_t control_interval = 5;                            ///< forwards from update to update
  int64_t seq_len = 0;  ///< tokens the adapter was trained with; 0 = unknown
};

/// Reads `regime`, `window_choices`, `control_interval` and `seq_len`; only the first is required.
Result<AdapterConfig> ReadAdapterConfig(const JsonObject& object);

using Config = std::variant<NativeConfig, AdapterConfig>;

/// `kind` in the metadata `controller` of a converted file.
inline constexpr std::string_view kNativeKind = "aah";
inline constexpr std::string_view kAdapterKind = "aah_adapter";

/// The settings in the metadata `controller` of a converted file, fit to run. FailedPrecondition
/// where the file carries no controller, or one whose settings older converters left out.
Result<Config> ReadConfig(const SafetensorsFile& file);

/// The same from that metadata; `where` names it in errors.
Result<Config> ParseConfig(const Json& json, const std::string& where);

/// Windows in tokens as a list of a command line: "512,1024,2048".
Result<std::vector<int64_t>> ParseWindowChoices(std::string_view text, std::string_view what);

}  // namespace lookback::controller
