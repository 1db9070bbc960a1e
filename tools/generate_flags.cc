#include "tools/generate_flags.h"

#include <algorithm>
#include <charconv>

namespace lookback::tools {
namespace {

/// Reads "ID=BIAS".
Result<std::pair<int32_t, double>> ParseLogitBias(const std::string& item) {
  const char* const begin = item.data();
  const char* const end = begin + item.size();
  const char* const middle = std::find(begin, end, '=');
  std::pair<int32_t, double> parsed;
  const auto left = std::from_chars(begin, middle, parsed.first);
  const auto right = std::from_chars(std::min(middle + 1, end), end, parsed.second);
  if (left.ec != std::errc() || left.ptr != middle || right.ec != std::errc() || right.ptr != end) {
    return Mismatch("--logit-bias", Quoted(item), "ID=BIAS");
  }
  return parsed;
}

}  // namespace

Result<GenerateRequest> GenerateFlags::Resolve() const {
  const bool no_ids = request.prompt_ids.empty();
  if (prompt.empty() == no_ids) {
    return Mismatch("--prompt, --ids", no_ids ? "neither" : "both", "one of them");
  }
  GenerateRequest resolved = request;
  for (const std::string& item : logit_bias) {
    LOOKBACK_ASSIGN_OR_RETURN(const auto parsed, ParseLogitBias(item));
    resolved.logit_bias.push_back(parsed);
  }
  return resolved;
}

void AddGenerateFlags(CLI::App& command, GenerateFlags& flags) {
  GenerateRequest& request = flags.request;
  command.add_option("--prompt", flags.prompt, "Text to continue");
  command.add_option("--ids", request.prompt_ids, "Token ids to continue, comma-separated")
      ->delimiter(',');
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
  command.add_option("--logit-bias", flags.logit_bias, "ID=BIAS (repeatable)")
      ->allow_extra_args(false);
  command.add_option("--seed", request.seed, "Seed of the random numbers (default: drawn)");
  command.add_option("--stop", request.stop, "Stop text (repeatable)")->allow_extra_args(false);
  command.add_option("--stop-id", request.stop_token_ids, "Stop id (repeatable)")
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", request.ignore_eos, "Go on after the end-of-text token");
  command.add_flag("--include-stop", request.include_stop, "Keep the matched stop in the text");
  command.add_flag("--print-ids", flags.print_ids, "Print the new ids instead of the text");
  command.add_flag("--stats", flags.stats, "Times, rate and KV bytes on stderr");
}

}  // namespace lookback::tools
