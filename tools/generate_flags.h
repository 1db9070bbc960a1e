// What to generate, as flags: shared by `generate` and `client … generate`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "engine/request.h"

namespace lookback::tools {

/// The flags fill the engine's own request, whose unset fields mean "the default".
struct GenerateFlags {
  std::string prompt;
  GenerateRequest request;              ///< --ids are its prompt_ids
  std::vector<std::string> logit_bias;  ///< "ID=BIAS", read by Resolve
  bool print_ids = false;
  bool stats = false;

  /// The request that the flags ask for; its prompt_ids are empty where --prompt was given.
  /// InvalidArgument: not one of --prompt and --ids, or a malformed --logit-bias.
  Result<GenerateRequest> Resolve() const;
};

/// Adds the prompt's, the sampler's, the stops' and the output's flags to `command`.
void AddGenerateFlags(CLI::App& command, GenerateFlags& flags);

}  // namespace lookback::tools
