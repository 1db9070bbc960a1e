// The flags that say what a controller is to be run over.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "engine/status.h"
#include "tools/convert/calibrate.h"
#include "tools/progress.h"

namespace lookback::tools {

/// Values of the shared flags.
struct CalibrationFlags {
  CalibrationRequest request;
  std::string window_choices;  ///< "" = none given
  std::string features = "f32";

  /// Finishes `request` and reads the choices. Errors name the flag.
  Result<std::vector<int64_t>> Resolve();
};

/// Adds --calibrate, --calibrate-ids, --calibrate-batches, --calibrate-context,
/// --calibrate-features and --window-choices.
void AddCalibrationFlags(CLI::App& command, CalibrationFlags& flags);

/// "calibrated over 8 forwards, 32768 tokens in 12.1 s (2707 tokens/s)"
std::string CalibrationText(const Calibration& calibration);

}  // namespace lookback::tools
