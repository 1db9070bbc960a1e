// Makes a converted file's window table anew, with the controller that it carries.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "tools/convert/calibrate.h"

namespace lookback::tools {

struct RecalibrateOptions {
  std::string file;
  std::string out;  ///< "" = nothing is written: for whoever only looks on
  CalibrationRequest calibration;
  /// What an adapter's controller chooses from, tokens; empty = what the file says.
  std::vector<int64_t> window_choices;
  AfterForward after_forward;
  /// Called after every slice with the stage ("writing") and its bytes.
  std::function<void(std::string_view stage, int64_t done, int64_t total)> on_progress;
};

/// Copies `file` to `out` with a new window table (sinks stay) and a new golden. After any error,
/// and after a pending interrupt (Cancelled), there is neither a new `out` nor a temporary file.
Result<Calibration> Recalibrate(const RecalibrateOptions& options);

}  // namespace lookback::tools
