// A checkpoint to convert, whatever release it comes from: what the model is and where its weights
// lie.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/status.h"
#include "tools/convert/convert.h"
#include "tools/convert/hf_tokenizer.h"
#include "tools/convert/weight_source.h"
#include "tools/convert/window_csv.h"

namespace lookback::tools {

/// A tensor of the networks that choose windows, under its name in the converted file.
struct ControllerTensor {
  std::string name;
  SourceTensor source;
};

/// Everything but the window table is decided here.
struct SourceModel {
  ModelConfig config;      ///< its windows are those that the checkpoint itself fixes, if any
  std::string model_type;  ///< as the release calls it
  /// Where config.windows come from; empty where the checkpoint fixes none.
  std::string windows_source;
  /// Why the checkpoint cannot be served without a table from elsewhere; empty where it can.
  std::string needs_windows;
  WindowCsvModel csv;  ///< what the release's diagnostics are read against
  WeightSource weights;
  std::vector<ControllerTensor> controller;
  Json controller_metadata;  ///< its settings (controller::ReadConfig); null where there is none
  HfGeneration generation;
  HfTokenizer tokenizer;
  std::vector<std::string> inputs;  ///< paths of all files that were read, the weights' apart
  std::vector<std::string> warnings;
};

/// Reads the folder `options.source` of Hugging Face files.
Result<SourceModel> ReadHfModel(const ConvertOptions& options);

/// Reads the AAH checkpoint `options.source` (a .pt file), the YAML and the sidecar beside it.
Result<SourceModel> ReadAahModel(const ConvertOptions& options);

/// Adds the AAH adapter `options.adapter` to a plain model: its controller goes with it, and
/// windows must come from elsewhere.
Status AddAahAdapter(const ConvertOptions& options, SourceModel& source);

}  // namespace lookback::tools
