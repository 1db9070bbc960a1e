#include "tools/client_generate.h"

#include <charconv>
#include <cstdio>
#include <map>
#include <optional>

namespace lookback::tools {
namespace {

using std::chrono::steady_clock;

double MillisecondsSince(steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
}

Status AddLogitBias(const std::string& item, v1::Sampling& sampling) {
  const size_t equals = std::min(item.find('='), item.size());
  const char* const middle = item.data() + equals;
  const char* const end = item.data() + item.size();
  int32_t id = 0;
  double bias = 0.0;
  const auto left = std::from_chars(item.data(), middle, id);
  const auto right =
      middle == end ? std::from_chars(end, end, bias) : std::from_chars(middle + 1, end, bias);
  if (left.ec != std::errc() || left.ptr != middle || right.ec != std::errc() || right.ptr != end) {
    return Mismatch("--logit-bias", Quoted(item), "ID=BIAS");
  }
  (*sampling.mutable_logit_bias())[id] = bias;
  return {};
}

Result<v1::GenerateRequest> MakeRequest(const ClientGenerateFlags& flags) {
  v1::GenerateRequest request;
  LOOKBACK_RETURN_IF_ERROR(SetPrompt(flags.prompt, flags.ids, request));
  request.set_request_id(flags.request_id);
  request.set_model(flags.model);
  v1::Sampling& sampling = *request.mutable_sampling();
  if (flags.temperature) sampling.set_temperature(*flags.temperature);
  if (flags.top_k) sampling.set_top_k(*flags.top_k);
  if (flags.top_p) sampling.set_top_p(*flags.top_p);
  if (flags.min_p) sampling.set_min_p(*flags.min_p);
  if (flags.typical_p) sampling.set_typical_p(*flags.typical_p);
  if (flags.seed) sampling.set_seed(*flags.seed);
  if (flags.repetition_penalty) sampling.set_repetition_penalty(*flags.repetition_penalty);
  if (flags.presence_penalty) sampling.set_presence_penalty(*flags.presence_penalty);
  if (flags.frequency_penalty) sampling.set_frequency_penalty(*flags.frequency_penalty);
  for (const std::string& item : flags.logit_bias) {
    LOOKBACK_RETURN_IF_ERROR(AddLogitBias(item, sampling));
  }
  if (flags.n) request.set_n(*flags.n);
  if (flags.max_new_tokens) request.set_max_new_tokens(*flags.max_new_tokens);
  if (flags.min_new_tokens) request.set_min_new_tokens(*flags.min_new_tokens);
  request.mutable_stop()->Add(flags.stop.begin(), flags.stop.end());
  request.mutable_stop_token_ids()->Add(flags.stop_ids.begin(), flags.stop_ids.end());
  request.set_ignore_eos(flags.ignore_eos);
  request.set_include_stop(flags.include_stop);
  request.set_logprobs(flags.logprobs);
  if (flags.top_logprobs) request.set_top_logprobs(*flags.top_logprobs);
  if (flags.prompt_logprobs) request.set_prompt_logprobs(*flags.prompt_logprobs);
  request.set_echo(flags.echo);
  return request;
}

/// Prints a stream as it comes. Of several choices the first is printed live, the others follow
/// when everything is there.
class StreamPrinter {
 public:
  StreamPrinter(const ClientGenerateFlags& flags, int64_t n) : flags_(flags), n_(n) {}

  void Add(const v1::GenerateResponse& message) {
    if (message.token_ids_size() > 0 && first_ms_ < 0) first_ms_ = MillisecondsSince(begin_);
    std::string& kept = later_[message.index()];
    std::string piece;
    if (flags_.print_ids) {
      bool& begun = begun_[message.index()];
      for (const int32_t id : message.token_ids()) {
        piece += StrCat(begun ? "," : "", id);
        begun = true;
      }
    } else {
      piece = message.text();
    }
    if (message.index() == 0) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    } else {
      kept += piece;
    }
    if (message.has_usage()) last_ = message;
  }

  /// Ends a line that an error cut off.
  void BreakLine() const {
    if (first_ms_ >= 0) std::printf("\n");
    std::fflush(stdout);
  }

  void End() const {
    std::printf("\n");
    for (int64_t choice = 1; choice < n_; ++choice) {
      const auto text = later_.find(choice);
      std::printf("--- choice %lld\n%s\n", static_cast<long long>(choice),
                  text == later_.end() ? "" : text->second.c_str());
    }
    std::fflush(stdout);
  }

  void PrintStats() const {
    const double total_ms = MillisecondsSince(begin_);
    const auto tokens = last_.usage().completion_tokens();
    const double decode_ms = total_ms - first_ms_;
    std::fprintf(
        stderr,
        "time to first token %.1f ms, %lld tokens in %.1f ms, %.1f tokens/s, "
        "KV held %lld bytes (peak); server: %lld prompt tokens, queue %.1f ms, "
        "prefill %.1f ms, decode %.1f ms, seed %llu\n",
        first_ms_, static_cast<long long>(tokens), total_ms,
        tokens > 1 && decode_ms > 0 ? static_cast<double>(tokens - 1) / decode_ms * 1000.0 : 0.0,
        static_cast<long long>(last_.kv_bytes_held_peak()),
        static_cast<long long>(last_.usage().prompt_tokens()), last_.timings().queue_ms(),
        last_.timings().prefill_ms(), last_.timings().decode_ms(),
        static_cast<unsigned long long>(last_.seed()));
  }

 private:
  const ClientGenerateFlags& flags_;
  int64_t n_;
  steady_clock::time_point begin_ = steady_clock::now();
  double first_ms_ = -1.0;
  std::map<int64_t, std::string> later_;
  std::map<int64_t, bool> begun_;
  v1::GenerateResponse last_;
};

Status GenerateJson(const ClientTarget& target, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  SetDeadline(target, context);
  v1::GenerateResponse response;
  const grpc::Status status =
      v1::Inference::NewStub(OpenChannel(target))->Generate(&context, request, &response);
  LOOKBACK_RETURN_IF_ERROR(FromGrpc(status, context));
  std::printf("%s\n", MessageToJson(response).dump(2, ' ', /*ensure_ascii=*/true).c_str());
  return {};
}

}  // namespace

void AddClientGenerateFlags(CLI::App& command, ClientGenerateFlags& flags) {
  command.add_option("--prompt", flags.prompt, "Text to continue");
  command.add_option("--ids", flags.ids, "Token ids to continue, comma-separated")->delimiter(',');
  command.add_option("--request-id", flags.request_id, "Name for abort and logs; default: drawn");
  command.add_option("--model", flags.model, "Refuse to be served by another model");
  command.add_option("--max-new-tokens", flags.max_new_tokens, "Tokens to generate at most");
  command.add_option("--min-new-tokens", flags.min_new_tokens, "Tokens before any stop counts");
  command.add_option("-n", flags.n, "Choices from one prompt");
  command.add_option("--temperature", flags.temperature, "0 = greedy");
  command.add_option("--top-k", flags.top_k, "Keep the k likeliest; 0 = off");
  command.add_option("--top-p", flags.top_p, "Keep the likeliest that sum to p");
  command.add_option("--min-p", flags.min_p, "Drop what is less likely than p times the likeliest");
  command.add_option("--typical-p", flags.typical_p, "Locally typical sampling");
  command.add_option("--repetition-penalty", flags.repetition_penalty,
                     "Over prompt and output; 1 = off");
  command.add_option("--presence-penalty", flags.presence_penalty, "Over the output; 0 = off");
  command.add_option("--frequency-penalty", flags.frequency_penalty, "Over the output; 0 = off");
  command.add_option("--logit-bias", flags.logit_bias, "ID=BIAS (repeatable)")
      ->allow_extra_args(false);
  command.add_option("--seed", flags.seed, "Seed of the random numbers; default: drawn");
  command.add_option("--stop", flags.stop, "Stop text (repeatable)")->allow_extra_args(false);
  command.add_option("--stop-id", flags.stop_ids, "Stop id (repeatable)")->allow_extra_args(false);
  command.add_flag("--ignore-eos", flags.ignore_eos, "Go on after the end-of-text token");
  command.add_flag("--include-stop", flags.include_stop, "Keep the matched stop in the text");
  command.add_flag("--logprobs", flags.logprobs, "Log-probability of every token (see --json)");
  command.add_option("--top-logprobs", flags.top_logprobs, "And of the so many likeliest");
  command.add_option("--prompt-logprobs", flags.prompt_logprobs, "The same of the prompt's tokens");
  command.add_flag("--echo", flags.echo, "Begin with the prompt");
  command.add_flag("--print-ids", flags.print_ids, "Print ids, comma-separated, instead of text");
  command.add_flag("--stats", flags.stats, "Time to first token, rate and KV bytes on stderr");
}

Status RunClientGenerate(const ClientTarget& target, const ClientGenerateFlags& flags, bool json) {
  LOOKBACK_ASSIGN_OR_RETURN(const v1::GenerateRequest request, MakeRequest(flags));
  if (json) return GenerateJson(target, request);
  StreamPrinter printer(flags, flags.n.value_or(1));
  const Status status = StreamGeneration(
      target, request, [&printer](const v1::GenerateResponse& message) { printer.Add(message); });
  if (!status.ok()) {
    printer.BreakLine();
    return status;
  }
  printer.End();
  if (flags.stats) printer.PrintStats();
  return {};
}

}  // namespace lookback::tools
