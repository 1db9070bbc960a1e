// Structured logs: one JSON object a line on stderr, never with prompt or answer text.
#pragma once

#include <string_view>

#include "engine/json.h"

namespace lookback::server {

/// Writes {"time": …, "event": `event`, fields…} as one line. Any thread.
void LogLine(std::string_view event, Json fields);

}  // namespace lookback::server
