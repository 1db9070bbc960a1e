// SHA-256 of files too large to read at once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/status.h"

namespace lookback::tools {

/// SHA-256 of the file at `path`, lower-case hex. Calls `after_slice`, if there is one, with the
/// bytes of each slice; an error of its ends the work.
Result<std::string> HashFile(const std::string& path,
                             const std::function<Status(int64_t bytes)>& after_slice = {});

}  // namespace lookback::tools
