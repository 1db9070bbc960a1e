// What is in a lookback file, for people and for programs.
#pragma once

#include <cstdint>
#include <string>

#include "engine/status.h"

namespace lookback::tools {

/// What `lookback inspect FILE` prints on stdout, or the error: the file is mapped, its header,
/// metadata and the names, types and shapes of its weights are checked. `context` 0: none beside
/// the training context.
Result<std::string> InspectReport(const std::string& path, bool json, int64_t context, bool colour);

}  // namespace lookback::tools
