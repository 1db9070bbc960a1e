// `lookback generate`: one generation in this process, without a server.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/commands.h"
#include "tools/engine_flags.h"
#include "tools/generate_flags.h"

namespace lookback::tools {
namespace {

struct LocalGenerateFlags {
  std::string file;
  GenerateFlags generate;
  EngineFlags engine;
};

Result<std::vector<int32_t>> EncodePrompt(const std::string& prompt, const LoadedModel& model) {
  if (model.tokenizer == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  StrCat("--prompt: ", model.no_tokenizer_reason, "; give --ids"));
  }
  return model.tokenizer->Encode(prompt, /*special=*/true);
}

/// Prints one batch: text as it comes, or ids joined by commas. `printed` counts tokens.
void Print(const StreamBatch& batch, bool ids, int64_t& printed) {
  for (const TokenEvent& token : batch.tokens) {
    const bool first = printed++ == 0;
    if (ids) {
      std::printf("%s%d", first ? "" : ",", token.id);
    } else {
      std::fwrite(batch.text.data() + token.text_begin, 1, token.text_bytes, stdout);
    }
  }
  for (const FinishEvent& finish : batch.finishes) {
    if (!ids) std::fwrite(batch.text.data() + finish.text_begin, 1, finish.text_bytes, stdout);
  }
  std::fflush(stdout);
}

void PrintStats(const StreamBatch& last, int64_t new_tokens, const Engine& engine) {
  const EngineCounters counters = engine.counters();
  std::fprintf(
      stderr,
      "prompt %lld tokens in %.1f ms, %lld new tokens in %.1f ms (%.1f tokens/s), KV held "
      "%lld bytes, measured attention ratio %.3f\n",
      static_cast<long long>(counters.prompt_tokens), last.prefill_ms,
      static_cast<long long>(new_tokens), last.decode_ms,
      last.decode_ms > 0 ? static_cast<double>(new_tokens - 1) / last.decode_ms * 1e3 : 0.0,
      static_cast<long long>(last.kv_bytes_peak),
      static_cast<double>(counters.attention_products) /
          static_cast<double>(std::max<int64_t>(1, counters.attention_products_full)));
}

Status Run(const LocalGenerateFlags& flags) {
  LOOKBACK_ASSIGN_OR_RETURN(GenerateRequest request, flags.generate.Resolve());
  LOOKBACK_ASSIGN_OR_RETURN(const auto model, LoadedModel::Open(flags.file));
  if (request.prompt_ids.empty()) {
    LOOKBACK_ASSIGN_OR_RETURN(request.prompt_ids, EncodePrompt(flags.generate.prompt, *model));
  }
  EngineOptions options = flags.engine.Resolve();
  options.limits.max_requests = 1;
  WarnBeyondTraining(model->config(), options);
  LOOKBACK_ASSIGN_OR_RETURN(const auto engine, Engine::Create(model, options));
  LOOKBACK_ASSIGN_OR_RETURN(GenerateParams params, engine->Resolve(std::move(request)));
  LOOKBACK_ASSIGN_OR_RETURN(const auto stream, engine->Submit(std::move(params)));
  // Without a tokenizer there is no text to print.
  const bool print_ids = flags.generate.print_ids || model->tokenizer == nullptr;
  StreamBatch batch;
  int64_t printed = 0;
  do {
    stream->WaitAndTake(batch);
    Print(batch, print_ids, printed);
  } while (!batch.done);
  std::printf("\n");
  if (flags.generate.stats) PrintStats(batch, printed, *engine);
  return batch.error;
}

}  // namespace

void AddGenerate(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<LocalGenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Generate from a prompt, without a server");
  command->add_option("FILE", flags->file, "Converted checkpoint")->required();
  AddGenerateFlags(*command, flags->generate);
  AddEngineFlags(*command, flags->engine);
  command->footer(
      "Examples:\n"
      "  lookback generate demo.safetensors --prompt 'The LORD is my' --temperature 0\n"
      "  lookback generate demo.safetensors --ids 1,339,402 --max-new-tokens 16 --print-ids");
  command->callback([flags, &exit_code] { exit_code = Report(Run(*flags)); });
}

}  // namespace lookback::tools
