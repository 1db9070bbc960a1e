// `lookback calibrate`: the window table of a converted file anew, or a look at how it comes about.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/calibration_flags.h"
#include "tools/calibration_trace.h"
#include "tools/commands.h"
#include "tools/convert/interrupt.h"
#include "tools/convert/recalibrate.h"
#include "tools/engine_flags.h"
#include "tools/progress.h"

namespace lookback::tools {

namespace {

struct Flags {
  RecalibrateOptions options;
  CalibrationFlags calibration;
  bool trace = false;
  bool json = false;
  bool quiet = false;
};

int RunCalibrate(Flags& flags) {
  Result<std::vector<int64_t>> choices = flags.calibration.Resolve();
  if (!choices.ok()) return Report(choices.status());
  if (flags.options.out.empty() && !flags.trace) {
    return Report(Mismatch("calibrate", "neither --out nor --trace", "one of them, or both"));
  }
  if (flags.json && !flags.trace) return Report(Mismatch("--json", "no --trace", "both"));
  flags.options.window_choices = *std::move(choices);
  flags.options.calibration = flags.calibration.request;
  Progress progress(flags.quiet);
  flags.options.on_progress = [&](std::string_view stage, int64_t done, int64_t total) {
    progress.Update(stage, done, total);
  };
  flags.options.after_forward = [&](int64_t index, int64_t forwards,
                                    const Calibrator& calibrator) -> Status {
    if (!flags.trace) {
      progress.Update("calibrating", index + 1, forwards, "forwards");
    } else if (flags.json) {
      std::printf("%s%s", index == 0 ? "{\"forwards\": [\n" : ",\n",
                  DumpJson(TraceJson(index, calibrator)).c_str());
    } else {
      std::fputs(TraceText(index, calibrator).c_str(), stdout);
    }
    return {};
  };
  const InterruptGuard guard;
  const Result<Calibration> result = Recalibrate(flags.options);
  progress.Finish();
  if (!result.ok()) {
    const int code = Report(result.status());
    return result.status().code() == StatusCode::kCancelled ? 128 + PendingInterrupt() : code;
  }
  if (flags.json) {
    std::printf("],\n\"table\": %s}\n", DumpJson(result->table.ToJson()).c_str());
  }
  if (!flags.quiet) {
    std::fprintf(stderr, "%s%s%s\n", CalibrationText(*result).c_str(),
                 flags.options.out.empty() ? "" : "; wrote ", flags.options.out.c_str());
  }
  return 0;
}

}  // namespace

void AddCalibrate(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "calibrate", "Make a file's window table anew with the AAH controller that it carries");
  const auto flags = std::make_shared<Flags>();
  command->add_option("FILE", flags->options.file, "A lookback file with a controller")->required();
  command->add_option("-o,--out", flags->options.out,
                      "File to write; may be left out with --trace");
  AddCalibrationFlags(*command, flags->calibration);
  AddThreadFlags(*command, flags->calibration.request.threads, flags->calibration.request.cpus);
  command->add_flag("--trace", flags->trace,
                    "Print every forward: groups, hierarchy, choices before and after the parent "
                    "constraint and the EMA");
  command->add_flag("--json", flags->json, "The trace as one JSON document");
  command->add_flag("--quiet", flags->quiet, "No progress");
  command->footer(
      "Examples:\n"
      "  lookback calibrate aah.safetensors -o again.safetensors --calibrate book.txt\n"
      "  lookback calibrate aah.safetensors --calibrate book.txt --calibrate-batches 2 --trace");
  command->callback([flags, &exit_code] { exit_code = RunCalibrate(*flags); });
}

}  // namespace lookback::tools
