// `lookback generate`: one generation in this process, without a server.
#include <cstdio>

#include "tools/commands.h"
#include "tools/engine_flags.h"

namespace lookback::tools {
namespace {

struct GenerateFlags {
  std::string file;
  std::string prompt;
  std::vector<int32_t> ids;
  bool print_ids = false;
  bool stats = false;
  GenerateRequest request;
  std::vector<std::string> logit_bias;
  EngineFlags engine;
};

/// "ID=BIAS" items.
Status ParseLogitBias(const std::vector<std::string>& items, GenerateRequest& request) {
  for (const std::string& item : items) {
    const size_t equals = item.find('=');
    int32_t id = 0;
    double bias = 0.0;
    const char* begin = item.data();
    const char* end = begin + item.size();
    const char* middle = equals == std::string::npos ? end : begin + equals;
    const auto left = std::from_chars(begin, middle, id);
    const auto right = std::from_chars(std::min(middle + 1, end), end, bias);
    if (middle == end || left.ec != std::errc() || left.ptr != middle || right.ec != std::errc() ||
        right.ptr != end) {
      return Mismatch("--logit-bias", Quoted(item), "ID=BIAS");
    }
    request.logit_bias.emplace_back(id, bias);
  }
  return {};
}

Status EncodePrompt(const GenerateFlags& flags, const LoadedModel& model,
                    GenerateRequest& request) {
  if (!flags.ids.empty()) {
    request.prompt_ids = flags.ids;
    return {};
  }
  if (model.tokenizer == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  StrCat("--prompt: ", model.no_tokenizer_reason, "; give --ids"));
  }
  LOOKBACK_ASSIGN_OR_RETURN(request.prompt_ids,
                            model.tokenizer->Encode(flags.prompt, /*special=*/true));
  return {};
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

Status Run(GenerateFlags& flags) {
  if (flags.prompt.empty() == flags.ids.empty()) {
    return InvalidArgument("generate: got ", flags.ids.empty() ? "neither" : "both",
                           " of --prompt and --ids, expected one of them");
  }
  GenerateRequest request = flags.request;
  LOOKBACK_RETURN_IF_ERROR(ParseLogitBias(flags.logit_bias, request));
  LOOKBACK_ASSIGN_OR_RETURN(const auto model, LoadedModel::Open(flags.file));
  LOOKBACK_RETURN_IF_ERROR(EncodePrompt(flags, *model, request));
  EngineOptions options = flags.engine.Resolve();
  options.limits.max_requests = 1;
  WarnBeyondTraining(model->config(), options);
  LOOKBACK_ASSIGN_OR_RETURN(const auto engine, Engine::Create(model, options));
  LOOKBACK_ASSIGN_OR_RETURN(GenerateParams params, engine->Resolve(std::move(request)));
  LOOKBACK_ASSIGN_OR_RETURN(const auto stream, engine->Submit(std::move(params)));
  // Without a tokenizer there is no text to print.
  const bool print_ids = flags.print_ids || model->tokenizer == nullptr;
  StreamBatch batch;
  int64_t printed = 0;
  do {
    stream->WaitAndTake(batch);
    Print(batch, print_ids, printed);
  } while (!batch.done);
  std::printf("\n");
  if (flags.stats) PrintStats(batch, printed, *engine);
  return batch.error;
}

void AddSamplingFlags(CLI::App& command, GenerateRequest& request) {
  command.add_option("--max-new-tokens", request.max_new_tokens, "Tokens to generate at most");
  command.add_option("--min-new-tokens", request.min_new_tokens, "Tokens before any stop counts");
  command.add_option("--temperature", request.temperature, "0 = greedy");
  command.add_option("--top-k", request.top_k, "Keep the k likeliest; 0 = off");
  command.add_option("--top-p", request.top_p, "Keep the likeliest that sum to p");
  command.add_option("--min-p", request.min_p,
                     "Drop what is less likely than p times the likeliest");
  command.add_option("--typical-p", request.typical_p, "Locally typical sampling");
  command.add_option("--repetition-penalty", request.repetition_penalty,
                     "Over prompt and output; 1 = off");
  command.add_option("--presence-penalty", request.presence_penalty, "Over the output; 0 = off");
  command.add_option("--frequency-penalty", request.frequency_penalty, "Over the output; 0 = off");
  command.add_option("--seed", request.seed, "Seed of the random numbers (default: drawn)");
  command.add_option("--stop", request.stop, "Stop string (repeatable)")->allow_extra_args(false);
  command.add_option("--stop-id", request.stop_token_ids, "Stop id (repeatable)")
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", request.ignore_eos, "Go on after the end-of-text token");
  command.add_flag("--include-stop", request.include_stop, "Keep the matched stop in the text");
}

}  // namespace

void AddGenerate(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Generate from a prompt, without a server");
  command->add_option("FILE", flags->file, "Converted checkpoint")->required();
  command->add_option("--prompt", flags->prompt, "Text to continue");
  command->add_option("--ids", flags->ids, "Token ids to continue, comma-separated")
      ->delimiter(',');
  command->add_flag("--print-ids", flags->print_ids, "Print the new ids instead of the text");
  command->add_flag("--stats", flags->stats, "Times, rate and KV bytes on stderr");
  AddSamplingFlags(*command, flags->request);
  command->add_option("--logit-bias", flags->logit_bias, "ID=BIAS (repeatable)")
      ->allow_extra_args(false);
  AddEngineFlags(*command, flags->engine);
  command->footer(
      "Examples:\n"
      "  lookback generate demo.safetensors --prompt 'The LORD is my' --temperature 0\n"
      "  lookback generate demo.safetensors --ids 1,339,402 --max-new-tokens 16 --print-ids");
  command->callback([flags, &exit_code] { exit_code = Report(Run(*flags)); });
}

}  // namespace lookback::tools
