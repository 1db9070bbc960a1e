// `lookback client ADDRESS generate`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/status.h"
#include "tools/client_calls.h"
#include "tools/generate_flags.h"

namespace lookback::tools {

struct ClientGenerateFlags {
  GenerateFlags generate;
  std::string model;
  bool echo = false;
};

void AddClientGenerateFlags(CLI::App& command, ClientGenerateFlags& flags);

/// Sets the prompt on any request with text and token_ids, from whichever of the two is not empty.
template <typename Request>
void SetPrompt(const std::string& text, const std::vector<int32_t>& ids, Request& request) {
  if (ids.empty()) {
    request.set_text(text);
  } else {
    request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
}

/// Generates and prints: text as it arrives, or with `json` one document at the end.
Status RunClientGenerate(const ClientTarget& target, const ClientGenerateFlags& flags, bool json);

}  // namespace lookback::tools
