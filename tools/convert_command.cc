#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/calibration_flags.h"
#include "tools/commands.h"
#include "tools/convert/convert.h"
#include "tools/convert/interrupt.h"
#include "tools/progress.h"

namespace lookback::tools {

namespace {

struct Flags {
  ConvertOptions options;
  std::string weights = "keep";
  CalibrationFlags calibration;
  bool quiet = false;
};

int RunConvert(Flags& flags) {
  Result<WeightType> weights = ParseWeightType(flags.weights);
  if (!weights.ok()) return Report(weights.status());
  flags.options.weights = *weights;
  Result<std::vector<int64_t>> choices = flags.calibration.Resolve();
  if (!choices.ok()) return Report(choices.status());
  flags.options.window_choices = *std::move(choices);
  flags.options.calibration = flags.calibration.request;
  Progress progress(flags.quiet);
  flags.options.on_progress = [&](std::string_view stage, int64_t done, int64_t total) {
    progress.Update(stage, done, total);
  };
  flags.options.on_calibration = [&](int64_t done, int64_t total) {
    progress.Update("calibrating", done, total, "forwards");
  };
  const InterruptGuard guard;
  const Result<ConvertReport> report = Convert(flags.options);
  progress.Finish();
  if (!report.ok()) {
    const int code = Report(report.status());
    return report.status().code() == StatusCode::kCancelled ? 128 + PendingInterrupt() : code;
  }
  for (const std::string& warning : report->warnings) {
    std::fprintf(stderr, "lookback: warning: %s\n", warning.c_str());
  }
  if (!flags.quiet && report->calibration) {
    std::fprintf(stderr, "%s\n", CalibrationText(*report->calibration).c_str());
  }
  if (!flags.quiet) {
    std::fprintf(stderr, "wrote %s: %lld tensors, %s; the golden took %.1f s\n",
                 flags.options.out.c_str(), static_cast<long long>(report->tensors),
                 HumanBytes(report->file_bytes).c_str(), report->golden_seconds);
  }
  return 0;
}

}  // namespace

void AddConvert(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "convert", "Turn a Hugging Face folder or an AAH checkpoint into one lookback file");
  const auto flags = std::make_shared<Flags>();
  ConvertOptions& options = flags->options;
  command
      ->add_option("SRC", options.source,
                   "Hugging Face folder (config.json, model.safetensors or its shards), or the .pt "
                   "of an AAH run")
      ->required();
  command->add_option("-o,--out", options.out, "File to write")->required();
  command->add_option(
      "--windows", options.windows.windows,
      "Window table: a JSON file, the AAH release's diagnostics (.csv), a number of tokens for "
      "every head, or full. Default: windows.json in the folder SRC, else what the checkpoint "
      "fixes, else full; an AAH controller's windows must be given, or found with --calibrate");
  command->add_option("--sinks", options.windows.sinks,
                      "First tokens that every head keeps seeing; replaces the table's own");
  command->add_option("--weights", flags->weights,
                      "Stored type of the matrices: keep (f16 becomes f32), f32, bf16, q8 or q4 "
                      "(groups of 32 with a scale; default keep)");
  command->add_option("--adapter", options.adapter,
                      "AAH adapter.pt to carry with the plain qwen3 or llama model in SRC; needs "
                      "--windows, windows.json in SRC or --calibrate");
  AddCalibrationFlags(*command, flags->calibration);
  command->add_option("--config", options.aah_config,
                      "YAML of the AAH run (default: the one beside the .pt)");
  command->add_option("--tokenizer", options.tokenizer_folder,
                      "Folder with tokenizer.json, tokenizer.model, or vocab.json and merges.txt "
                      "(default SRC; none for a .pt: the file then serves token ids only)");
  command->add_flag("--quiet", flags->quiet, "No progress");
  command->footer(
      "Examples:\n"
      "  lookback convert tools/demo -o demo.safetensors\n"
      "  lookback convert Qwen3-0.6B -o qwen3.safetensors --weights bf16 --windows 1024 --sinks 4\n"
      "  lookback convert run/model.pt -o aah.safetensors --windows run/heatmap.csv --tokenizer "
      "gpt2\n"
      "  lookback convert run/model.pt -o aah.safetensors --tokenizer gpt2 --calibrate book.txt\n"
      "  lookback convert Qwen3-4B -o retrofit.safetensors --adapter adapter.pt --windows "
      "full_adaptive.csv");
  command->callback([flags, &exit_code] { exit_code = RunConvert(*flags); });
}

}  // namespace lookback::tools
