// The run of an AAH release: its YAML config and the sidecar of its checkpoint (aah.md sections 1
// and 2). Everything the network and its window controller depend on, as plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/controller/config.h"
#include "engine/status.h"
#include "engine/windows.h"

namespace lookback::tools {

// The settings of the controller belong to the engine, which runs it.
using AahHierarchy = controller::HierarchyMode;
using AahChoice = controller::ChoiceMode;
using AahPairwise = controller::PairwiseMode;
using AahAggregation = controller::Aggregation;
using AahMetric = controller::Metric;
using AahInput = controller::InputMode;
using AahArch = controller::Arch;

/// One run: its network, and the settings of its controller.
struct AahRun : controller::NativeConfig {
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
