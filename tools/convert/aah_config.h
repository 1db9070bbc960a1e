// The run of an AAH release: its YAML config and the sidecar of its checkpoint (aah.md sections 1
// and 2). Everything the network and its window controller depend on, as plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/windows.h"

namespace lookback::tools {

/// How heads are grouped over time (`hierarchy_ablation_mode`).
enum class AahHierarchy : uint8_t {
  kAdaptive,
  kFreezeLearnedTopology,
  kFixedRandom,
  kFixedDeterministic,
  kFreezeAfterWarmup,
};
/// How a window is chosen (`controller_choice_mode`).
enum class AahChoice : uint8_t {
  kLearned,
  kOracleAlternating,
  kFixedTokens,  ///< fixed_window_N: the choice nearest to N tokens
  kFixedIndex,   ///< fixed_window_idx_N, clamped
};
enum class AahPairwise : uint8_t { kNone, kJointSibling, kSiblingBias };
/// Children → node (`group_feature_mode`).
enum class AahAggregation : uint8_t { kMean, kMeanStd, kMeanVar, kMeanGlobalOffset };
enum class AahMetric : uint8_t { kCosine, kCosineNormdiff, kL2, kCenteredCosine };
enum class AahInput : uint8_t {
  kBase,
  kEnriched,
  kContrastive,
  kPositionAware,
  kRelativeSiblingMean,
};
enum class AahArch : uint8_t { kMlp, kDeepMlp };

/// One run. The fields of the controller carry the names of their keys without `aah_v3_`, and the
/// defaults of the release's loader.
struct AahRun {
  std::string path;         ///< of the YAML, for errors
  std::string config_hash;  ///< SHA-256 of its bytes, lower-case hex
  std::string name;         ///< experiment.name
  std::string variant;      ///< experiment.variant
  std::string tokenizer;    ///< data.tokenizer
  std::optional<int64_t> seed;

  int64_t layers = 0;   ///< model.n_layer
  int64_t heads = 0;    ///< model.n_head; divides width
  int64_t width = 0;    ///< model.n_embd
  int64_t ffn = 0;      ///< model.n_ff
  int64_t seq_len = 0;  ///< data.seq_len, tokens: the learned positions

  bool enabled = false;
  std::vector<int64_t> windows;      ///< tokens, not sorted
  bool build_hierarchy = true;       ///< older files: grouping_enabled
  bool apply_window_control = true;  ///< older files: control_enabled
  bool reuse_group_hierarchy = false;
  bool parent_constraint = true;
  AahHierarchy hierarchy_ablation_mode = AahHierarchy::kAdaptive;
  AahChoice controller_choice_mode = AahChoice::kLearned;
  int64_t fixed_choice = 0;  ///< the N of kFixedTokens and kFixedIndex
  AahPairwise controller_pairwise_mode = AahPairwise::kNone;
  AahAggregation group_feature_mode = AahAggregation::kMean;
  AahMetric upper_cluster_metric = AahMetric::kCosine;
  AahInput controller_input_mode = AahInput::kBase;
  AahArch controller_arch = AahArch::kMlp;
  int64_t control_dim = 16;
  int64_t joint_hidden_dim = 0;  ///< 0 = control_dim
  int64_t control_interval = 100;
  int64_t max_depth = 6;
  int64_t min_group_size = 1;
  int64_t warmup_steps = 0;
  int64_t post_warmup_ramp_steps = 0;
  int64_t w_min_gpu = 64;  ///< W_min_gpu, tokens: a floor of the diagnostics alone
  int64_t fixed_hierarchy_seed = 1337;
  double sim_threshold = 0.7;
  double super_threshold = 0.7;
  double ema_alpha = 0.9;
  double resolution_ema_alpha = 0.0;
  double churn_penalty = 0.05;
  double upper_l2_threshold = 0.0;
  double cosine_normdiff_scale = 16.0;
  double controller_logit_scale = 1.0;
  double pairwise_bias_scale = 1.0;
  double joint_output_scale = 1.0;
  std::vector<std::string> unknown_keys;  ///< `aah_v3_*` keys without effect here: worth a warning

  /// Every head sees everything: not enabled, or neither hierarchy nor control.
  bool full_attention() const { return !enabled || (!build_hierarchy && !apply_window_control); }
};

/// Reads and validates the YAML at `path`. Errors name key, file, got and expected. Refused:
/// `aah_v2_*` runs, unknown modes, and the YAML that ParseYaml() refuses.
Result<AahRun> ReadAahRun(const std::string& path);
/// The same from the text of a file that errors call `path`.
Result<AahRun> ParseAahRun(std::string_view text, const std::string& path);

/// What `<file>.pt.meta.json` says of a checkpoint.
struct AahSidecar {
  std::string role;  ///< "final" or "near_end"
  std::string run_name;
  std::string variant;
  int64_t step = 0;
};

/// Reads the sidecar at `path`, whose config_hash must be that of `run`.
Result<AahSidecar> ReadAahSidecar(const std::string& path, const AahRun& run);

/// The windows that the run fixes by itself: full attention, control switched off, fixed_window_*.
/// Nothing where they depend on the controller's input. With control off the release looks at the
/// length of each forward: `context`, in tokens, is the one to reproduce; 0 = seq_len, as in
/// training. The table's train_context is seq_len.
std::optional<WindowTable> FixedWindows(const AahRun& run, int64_t context = 0);

}  // namespace lookback::tools
