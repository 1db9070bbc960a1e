#include "tools/calibration_flags.h"

#include <cstdio>

namespace lookback::tools {

Result<std::vector<int64_t>> CalibrationFlags::Resolve() {
  if (features != "f32" && features != "bf16") {
    return Mismatch("--calibrate-features", Quoted(features), "f32 or bf16");
  }
  request.bf16_features = features == "bf16";
  if (window_choices.empty()) return std::vector<int64_t>();
  return controller::ParseWindowChoices(window_choices, "--window-choices");
}

void AddCalibrationFlags(CLI::App& command, CalibrationFlags& flags) {
  command.add_option(
      "--calibrate", flags.request.text,
      "Run the AAH controller over this UTF-8 text: tokenized, cut into sequences of "
      "the training context, one a forward; the windows of the last forward are taken");
  command.add_option("--calibrate-ids", flags.request.ids,
                     "The same over ids: a safetensors file with calib_ids [forwards,sequences,"
                     "tokens], I32 or I64");
  command
      .add_option(
          "--calibrate-batches", flags.request.batches,
          "Forwards (default: 8 of text for AAH's own models, 125 for adapters; all of ids)")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--calibrate-context", flags.request.context,
                  "Tokens of a sequence of text (default: those of the controller's training)")
      ->check(CLI::PositiveNumber);
  command.add_option("--calibrate-features", flags.features,
                     "bf16: round an adapter's features as its release does on a base held in bf16 "
                     "(default f32)");
  command.add_option("--window-choices", flags.window_choices,
                     "What an adapter chooses from, tokens (default 512,1024,2048,4096)");
}

std::string CalibrationText(const Calibration& calibration) {
  char text[128];
  std::snprintf(
      text, sizeof text, "calibrated over %lld forwards, %lld tokens in %.1f s (%.0f tokens/s)",
      static_cast<long long>(calibration.forwards), static_cast<long long>(calibration.tokens),
      calibration.seconds, static_cast<double>(calibration.tokens) / calibration.seconds);
  return text;
}

}  // namespace lookback::tools
