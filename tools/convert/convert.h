// Turns a Hugging Face folder or an AAH checkpoint into a lookback file (format.md, "The converted
// file").
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "tools/convert/calibrate.h"
#include "tools/convert/window_source.h"

namespace lookback::tools {

/// The stored type of matrices; vectors (norms, biases, routing) are f32 always.
enum class WeightType : uint8_t { kKeep, kF32, kBF16, kQ8, kQ4 };

/// Reads the value of --weights. Types that this version cannot write are refused by name.
Result<WeightType> ParseWeightType(std::string_view name);

struct ConvertOptions {
  std::string source;  ///< a Hugging Face folder, or the .pt file of an AAH run
  std::string out;     ///< replaced if it is a regular file that is no input
  WindowRequest windows;
  WeightType weights = WeightType::kKeep;
  std::string tokenizer_folder;  ///< "" = source, if that is a folder
  std::string adapter;           ///< an AAH adapter.pt on a Hugging Face folder, or ""
  std::string aah_config;        ///< the YAML of an AAH run; "" = the one beside the .pt
  /// What an adapter's controller chooses from, tokens; empty = 512, 1024, 2048, 4096.
  std::vector<int64_t> window_choices;
  CalibrationRequest calibration;  ///< instead of `windows`, the sinks apart
  /// Called after every slice with the stage ("writing") and its bytes.
  std::function<void(std::string_view stage, int64_t done, int64_t total)> on_progress;
  /// Called after every forward of a calibration.
  std::function<void(int64_t done, int64_t total)> on_calibration;
};

/// What a conversion has made.
struct ConvertReport {
  int64_t file_bytes = 0;
  int64_t tensors = 0;
  double golden_seconds = 0.0;             ///< of the run whose logits the file carries
  std::optional<Calibration> calibration;  ///< where the windows were made
  std::vector<std::string> warnings;
};

/// Converts. After any error, and after a pending interrupt (Cancelled; see InterruptGuard), there
/// is neither a new `out` nor a temporary file. Memory stays flat: weights are read, converted and
/// written in slices.
Result<ConvertReport> Convert(const ConvertOptions& options);

}  // namespace lookback::tools
