// RoPE settings of a config.json: `rope_parameters` (Transformers 5) and `rope_theta` with
// `rope_scaling` (4.x).
#pragma once

#include "engine/config.h"
#include "engine/json.h"
#include "engine/status.h"

namespace lookback::tools {

/// Reads both forms; a contradiction and an unknown type are refused by name.
Result<RopeConfig> ReadHfRope(const JsonObject& config);

}  // namespace lookback::tools
