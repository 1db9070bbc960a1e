#include "tools/client_generate.h"

#include <cstdio>
#include <map>

namespace lookback::tools {
namespace {

using std::chrono::steady_clock;

double MillisecondsSince(steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
}

Result<v1::GenerateRequest> MakeRequest(const ClientGenerateFlags& flags) {
  LOOKBACK_ASSIGN_OR_RETURN(const GenerateRequest asked, flags.generate.Resolve());
  v1::GenerateRequest request;
  SetPrompt(flags.generate.prompt, asked.prompt_ids, request);
  request.set_request_id(asked.request_id);
  request.set_model(flags.model);
  v1::Sampling& sampling = *request.mutable_sampling();
  if (asked.temperature) sampling.set_temperature(*asked.temperature);
  if (asked.top_k) sampling.set_top_k(*asked.top_k);
  if (asked.top_p) sampling.set_top_p(*asked.top_p);
  if (asked.min_p) sampling.set_min_p(*asked.min_p);
  if (asked.typical_p) sampling.set_typical_p(*asked.typical_p);
  if (asked.seed) sampling.set_seed(*asked.seed);
  if (asked.repetition_penalty) sampling.set_repetition_penalty(*asked.repetition_penalty);
  if (asked.presence_penalty) sampling.set_presence_penalty(*asked.presence_penalty);
  if (asked.frequency_penalty) sampling.set_frequency_penalty(*asked.frequency_penalty);
  for (const auto& [id, bias] : asked.logit_bias) (*sampling.mutable_logit_bias())[id] = bias;
  if (asked.n) request.set_n(*asked.n);
  if (asked.max_new_tokens) request.set_max_new_tokens(*asked.max_new_tokens);
  if (asked.min_new_tokens) request.set_min_new_tokens(*asked.min_new_tokens);
  request.mutable_stop()->Add(asked.stop.begin(), asked.stop.end());
  request.mutable_stop_token_ids()->Add(asked.stop_token_ids.begin(), asked.stop_token_ids.end());
  request.set_ignore_eos(asked.ignore_eos);
  request.set_include_stop(asked.include_stop);
  request.set_logprobs(asked.logprobs);
  if (asked.top_logprobs) request.set_top_logprobs(*asked.top_logprobs);
  if (asked.prompt_logprobs) request.set_prompt_logprobs(*asked.prompt_logprobs);
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
    if (flags_.generate.print_ids) {
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
  AddGenerateFlags(command, flags.generate);
  GenerateRequest& request = flags.generate.request;
  command.add_option("--request-id", request.request_id,
                     "Name for abort and logs (default: drawn)");
  command.add_option("--model", flags.model, "Refuse to be served by another model");
  command.add_option("-n", request.n, "Choices from one prompt");
  command.add_flag("--logprobs", request.logprobs, "Log-probability of every token (see --json)");
  command.add_option("--top-logprobs", request.top_logprobs, "And of the so many likeliest");
  command.add_option("--prompt-logprobs", request.prompt_logprobs,
                     "The same of the prompt's tokens");
  command.add_flag("--echo", flags.echo, "Begin with the prompt");
}

Status RunClientGenerate(const ClientTarget& target, const ClientGenerateFlags& flags, bool json) {
  LOOKBACK_ASSIGN_OR_RETURN(const v1::GenerateRequest request, MakeRequest(flags));
  if (json) return GenerateJson(target, request);
  StreamPrinter printer(flags, flags.generate.request.n.value_or(1));
  const Status status = StreamGeneration(
      target, request, [&printer](const v1::GenerateResponse& message) { printer.Add(message); });
  if (!status.ok()) {
    printer.BreakLine();
    return status;
  }
  printer.End();
  if (flags.generate.stats) printer.PrintStats();
  return {};
}

}  // namespace lookback::tools
