#include <cstdio>
#include <memory>

#include "tools/commands.h"
#include "tools/convert/convert.h"
#include "tools/convert/interrupt.h"
#include "tools/progress.h"

namespace lookback::tools {

namespace {

struct Flags {
  ConvertOptions options;
  std::string weights = "keep";
  std::string adapter;
  std::string aah_config;
  bool quiet = false;
};

int RunConvert(Flags& flags) {
  if (!flags.adapter.empty()) {
    return Report(InvalidArgument("--adapter: this version cannot apply adapters yet"));
  }
  if (!flags.aah_config.empty()) {
    return Report(InvalidArgument("--config: this version cannot read AAH configurations yet"));
  }
  Result<WeightType> weights = ParseWeightType(flags.weights);
  if (!weights.ok()) return Report(weights.status());
  flags.options.weights = *weights;
  Progress progress(flags.quiet);
  flags.options.on_progress = [&](std::string_view stage, int64_t done, int64_t total) {
    progress.Update(stage, done, total);
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
  if (!flags.quiet) {
    std::fprintf(stderr, "wrote %s: %lld tensors, %s; the golden took %.1f s\n",
                 flags.options.out.c_str(), static_cast<long long>(report->tensors),
                 HumanBytes(report->file_bytes).c_str(), report->golden_seconds);
  }
  return 0;
}

}  // namespace

void AddConvert(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("convert", "Turn a Hugging Face folder into one lookback file");
  const auto flags = std::make_shared<Flags>();
  ConvertOptions& options = flags->options;
  command->add_option("SRC", options.source, "Folder with config.json and model.safetensors")
      ->required();
  command->add_option("-o,--out", options.out, "File to write")->required();
  command->add_option("--windows", options.windows.windows,
                      "Window table: a JSON file, a number of tokens for every head, or full. "
                      "Default: windows.json in SRC, else what the config says");
  command->add_option("--sinks", options.windows.sinks,
                      "First tokens that every head keeps seeing, in tokens");
  command->add_option("--weights", flags->weights,
                      "Stored type of the matrices: keep, f32 or bf16 (default keep)");
  command->add_option("--adapter", flags->adapter, "AAH adapter (not in this version)");
  command->add_option("--config", flags->aah_config, "AAH configuration (not in this version)");
  command->add_option("--tokenizer", options.tokenizer_folder,
                      "Folder with tokenizer.model (default SRC)");
  command->add_flag("--quiet", flags->quiet, "No progress");
  command->footer(
      "Examples:\n"
      "  lookback convert tools/demo -o demo.safetensors\n"
      "  lookback convert Qwen3-0.6B -o qwen3.safetensors --weights bf16 --windows 1024 --sinks 4");
  command->callback([flags, &exit_code] { exit_code = RunConvert(*flags); });
}

}  // namespace lookback::tools
