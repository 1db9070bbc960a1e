// `lookback client ADDRESS generate`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/status.h"
#include "tools/client_calls.h"

namespace lookback::tools {

/// What the flags say; `message` is filled in by them directly where the types allow.
struct ClientGenerateFlags {
  std::string prompt;
  std::vector<int32_t> ids;
  std::string request_id;
  std::string model;
  std::optional<double> temperature, top_p, min_p, typical_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, n, max_new_tokens, min_new_tokens, top_logprobs, prompt_logprobs;
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;  ///< ID=BIAS
  std::vector<std::string> stop;
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  bool include_stop = false;
  bool logprobs = false;
  bool echo = false;
  bool print_ids = false;
  bool stats = false;
};

void AddClientGenerateFlags(CLI::App& command, ClientGenerateFlags& flags);

/// The prompt of the flags, in whichever form they give it, set on any request with text and
/// token_ids.
template <typename Request>
Status SetPrompt(const std::string& text, const std::vector<int32_t>& ids, Request& request) {
  if (text.empty() == ids.empty()) {
    return InvalidArgument("client: got ", ids.empty() ? "neither" : "both",
                           " of --prompt and --ids, expected one of them");
  }
  if (ids.empty()) {
    request.set_text(text);
  } else {
    request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  return {};
}

/// Generates and prints: text as it arrives, or with `json` one document at the end.
Status RunClientGenerate(const ClientTarget& target, const ClientGenerateFlags& flags, bool json);

}  // namespace lookback::tools
