#include "engine/request.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string_view>

#include "engine/utf8.h"

namespace lookback {
namespace {

constexpr int64_t kDefaultNewTokens = 256;

// One real-valued setting: its range and whether the lower end belongs to it.
struct Range {
  double low;
  double high;
  bool low_included = true;
};

std::string Expected(const Range& range) {
  return range.low_included ? StrCat("a finite number from ", range.low, " to ", range.high)
                            : StrCat("a finite number above ", range.low, ", up to ", range.high);
}

bool Contains(const Range& range, double value) {
  // Written so that NaN fails.
  const bool above = range.low_included ? value >= range.low : value > range.low;
  return above && value <= range.high;
}

// Sets `out` to the request's value, else the model's default, else leaves it as it is.
Status PickNumber(std::string_view field, const std::optional<double>& asked,
                  const std::optional<double>& model_default, const Range& range, double& out) {
  const std::optional<double>& picked = asked ? asked : model_default;
  if (!picked) return {};
  if (!Contains(range, *picked)) {
    return Mismatch(asked ? std::string(field) : StrCat("the model's default ", field), *picked,
                    Expected(range));
  }
  out = *picked;
  return {};
}

Status CheckInteger(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return Mismatch(field, value, StrCat(low, " to ", high));
}

Status CheckId(std::string_view field, size_t index, int32_t id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return {};
  return Mismatch(StrCat(field, "[", index, "]"), id, StrCat("0 to ", vocab_size - 1));
}

Status CheckCount(std::string_view field, size_t count, int64_t most) {
  if (count <= static_cast<size_t>(most)) return {};
  return Mismatch(field, StrCat(count, " entries"), StrCat("at most ", most));
}

Status ResolveNumbers(const GenerateRequest& request, const GenerationDefaults& defaults,
                      SamplingParams& out) {
  const std::optional<double> none;
  const Range share = {0.0, 1.0, /*low_included=*/false};
  const Range penalty = {-2.0, 2.0};
  LOOKBACK_RETURN_IF_ERROR(PickNumber("temperature", request.temperature, defaults.temperature,
                                      {0.0, 100.0}, out.temperature));
  LOOKBACK_RETURN_IF_ERROR(PickNumber("top_p", request.top_p, defaults.top_p, share, out.top_p));
  LOOKBACK_RETURN_IF_ERROR(
      PickNumber("min_p", request.min_p, defaults.min_p, {0.0, 1.0}, out.min_p));
  LOOKBACK_RETURN_IF_ERROR(
      PickNumber("typical_p", request.typical_p, defaults.typical_p, share, out.typical_p));
  LOOKBACK_RETURN_IF_ERROR(
      PickNumber("repetition_penalty", request.repetition_penalty, defaults.repetition_penalty,
                 {0.0, 100.0, /*low_included=*/false}, out.repetition_penalty));
  LOOKBACK_RETURN_IF_ERROR(PickNumber("presence_penalty", request.presence_penalty, none, penalty,
                                      out.presence_penalty));
  return PickNumber("frequency_penalty", request.frequency_penalty, none, penalty,
                    out.frequency_penalty);
}

Status ResolveLogitBias(const GenerateRequest& request, int64_t vocab_size, const Limits& limits,
                        SamplingParams& out) {
  LOOKBACK_RETURN_IF_ERROR(
      CheckCount("logit_bias", request.logit_bias.size(), limits.max_logit_bias));
  const Range range = {-100.0, 100.0};
  std::vector<int32_t> ids;
  for (size_t i = 0; i < request.logit_bias.size(); ++i) {
    const auto& [id, bias] = request.logit_bias[i];
    LOOKBACK_RETURN_IF_ERROR(CheckId("logit_bias", i, id, vocab_size));
    if (!Contains(range, bias))
      return Mismatch(StrCat("logit_bias[", i, "]"), bias, Expected(range));
    ids.push_back(id);
    out.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice == ids.end()) return {};
  return Mismatch("logit_bias", StrCat("id ", *twice, " twice"), "every id once");
}

Status ResolveSampling(const GenerateRequest& request, const GenerationDefaults& defaults,
                       int64_t vocab_size, const Limits& limits, SamplingParams& out) {
  LOOKBACK_RETURN_IF_ERROR(ResolveNumbers(request, defaults, out));
  const std::optional<int64_t>& top_k = request.top_k ? request.top_k : defaults.top_k;
  if (top_k) {
    // More than the vocabulary has is harmless, and clients with one setting for all models do it.
    LOOKBACK_RETURN_IF_ERROR(CheckInteger(request.top_k ? "top_k" : "the model's default top_k",
                                          *top_k, 0, std::numeric_limits<int32_t>::max()));
    out.top_k = *top_k;
  }
  return ResolveLogitBias(request, vocab_size, limits, out);
}

Status CheckPrompt(const std::vector<int32_t>& prompt, int64_t vocab_size) {
  if (prompt.empty()) return Mismatch("prompt_ids", "an empty prompt", "at least 1 token");
  for (size_t i = 0; i < prompt.size(); ++i) {
    LOOKBACK_RETURN_IF_ERROR(CheckId("prompt_ids", i, prompt[i], vocab_size));
  }
  return {};
}

// The number of new tokens, from what was asked for and what the context leaves.
Status ResolveLength(const GenerateRequest& request, int64_t max_context, GenerateParams& out) {
  const auto prompt_tokens = static_cast<int64_t>(request.prompt_ids.size());
  const bool scoring = request.max_new_tokens == 0 && request.prompt_logprobs.has_value();
  const int64_t most_prompt = scoring ? max_context : max_context - 1;
  if (prompt_tokens > most_prompt) {
    return Mismatch("prompt_ids", StrCat(prompt_tokens, " tokens"),
                    StrCat("at most ", most_prompt, " (the context is ", max_context, " tokens",
                           scoring ? ")" : ", one at least for the answer)"));
  }
  const int64_t room = max_context - prompt_tokens;
  out.max_new_tokens = request.max_new_tokens.value_or(std::min(kDefaultNewTokens, room));
  if (out.max_new_tokens == 0 && !scoring) {
    return Mismatch("max_new_tokens", 0, "at least 1 (0 only together with prompt_logprobs)");
  }
  if (out.max_new_tokens < 0 || out.max_new_tokens > room) {
    return Mismatch("max_new_tokens", out.max_new_tokens,
                    StrCat(scoring ? 0 : 1, " to ", room, " (a context of ", max_context,
                           " tokens less a prompt of ", prompt_tokens, ")"));
  }
  out.min_new_tokens = request.min_new_tokens.value_or(0);
  if (out.min_new_tokens < 0 || out.min_new_tokens > out.max_new_tokens) {
    return Mismatch("min_new_tokens", out.min_new_tokens,
                    StrCat("0 to ", out.max_new_tokens, " (max_new_tokens)"));
  }
  return {};
}

Status CheckStops(const std::vector<std::string>& stops, const Limits& limits) {
  LOOKBACK_RETURN_IF_ERROR(CheckCount("stop", stops.size(), limits.max_stops));
  for (size_t i = 0; i < stops.size(); ++i) {
    const std::string field = StrCat("stop[", i, "]");
    const std::string expected = StrCat("1 to ", limits.max_stop_bytes, " bytes");
    if (stops[i].empty() || stops[i].size() > static_cast<size_t>(limits.max_stop_bytes)) {
      return Mismatch(field, StrCat(stops[i].size(), " bytes"), expected);
    }
    if (!IsValidUtf8(stops[i])) return Mismatch(field, Quoted(stops[i]), "valid UTF-8");
  }
  return {};
}

Status ResolveStopIds(const GenerateRequest& request, const TokenizerInfo& tokenizer,
                      int64_t vocab_size, const Limits& limits, std::vector<int32_t>& out) {
  LOOKBACK_RETURN_IF_ERROR(
      CheckCount("stop_token_ids", request.stop_token_ids.size(), limits.max_stop_token_ids));
  for (size_t i = 0; i < request.stop_token_ids.size(); ++i) {
    LOOKBACK_RETURN_IF_ERROR(CheckId("stop_token_ids", i, request.stop_token_ids[i], vocab_size));
  }
  out = request.stop_token_ids;
  if (!request.ignore_eos) {
    // An id that the model cannot make cannot end it either.
    std::copy_if(tokenizer.stop_ids.begin(), tokenizer.stop_ids.end(), std::back_inserter(out),
                 [vocab_size](int32_t id) { return id >= 0 && id < vocab_size; });
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return {};
}

Status ResolveLogprobs(const GenerateRequest& request, int64_t vocab_size, const Limits& limits,
                       GenerateParams& out) {
  const int64_t most = std::min(limits.max_top_logprobs, vocab_size);
  if (request.logprobs) out.top_logprobs = 0;
  if (request.top_logprobs) {
    LOOKBACK_RETURN_IF_ERROR(CheckInteger("top_logprobs", *request.top_logprobs, 0, most));
    out.top_logprobs = *request.top_logprobs;
  }
  if (request.prompt_logprobs) {
    LOOKBACK_RETURN_IF_ERROR(CheckInteger("prompt_logprobs", *request.prompt_logprobs, 0, most));
    out.prompt_logprobs = *request.prompt_logprobs;
  }
  return {};
}

Status CheckRequestId(std::string_view id, const Limits& limits) {
  if (id.size() > static_cast<size_t>(limits.max_request_id_bytes)) {
    return Mismatch("request_id", StrCat(id.size(), " bytes"),
                    StrCat("at most ", limits.max_request_id_bytes));
  }
  const bool printable =
      std::all_of(id.begin(), id.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!printable) return Mismatch("request_id", Quoted(id), "printable ASCII");
  return {};
}

uint64_t DrawBits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::string DrawRequestId() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (int word = 0; word < 2; ++word) {
    uint64_t bits = DrawBits();
    for (int i = 0; i < 16; ++i, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

}  // namespace

Result<GenerateParams> ResolveRequest(GenerateRequest request, const ModelConfig& config,
                                      const TokenizerInfo& tokenizer,
                                      const GenerationDefaults& defaults, const Limits& limits,
                                      int64_t max_context) {
  const int64_t vocab_size = config.vocab_size;
  GenerateParams params;
  LOOKBACK_RETURN_IF_ERROR(CheckRequestId(request.request_id, limits));
  LOOKBACK_RETURN_IF_ERROR(CheckPrompt(request.prompt_ids, vocab_size));
  LOOKBACK_RETURN_IF_ERROR(ResolveSampling(request, defaults, vocab_size, limits, params.sampling));
  params.n = request.n.value_or(1);
  LOOKBACK_RETURN_IF_ERROR(
      CheckInteger("n", params.n, 1, std::min(limits.max_choices, limits.max_requests)));
  LOOKBACK_RETURN_IF_ERROR(ResolveLogprobs(request, vocab_size, limits, params));
  LOOKBACK_RETURN_IF_ERROR(ResolveLength(request, max_context, params));
  LOOKBACK_RETURN_IF_ERROR(CheckStops(request.stop, limits));
  LOOKBACK_RETURN_IF_ERROR(ResolveStopIds(request, tokenizer, vocab_size, limits, params.stop_ids));
  params.sampling.seed = request.seed ? *request.seed : DrawBits();
  params.request_id = request.request_id.empty() ? DrawRequestId() : std::move(request.request_id);
  params.prompt = std::move(request.prompt_ids);
  params.stop = std::move(request.stop);
  params.include_stop = request.include_stop;
  params.deadline = request.deadline;
  return params;
}

}  // namespace lookback
