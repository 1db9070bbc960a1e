// What every command that writes a lookback file has in common: where it may go, and its golden.
#pragma once

#include <string>
#include <vector>

#include "engine/golden.h"
#include "engine/safetensors.h"
#include "engine/status.h"

namespace lookback::tools {

/// OUT may be absent or a regular file that is none of the inputs.
Status CheckTarget(const std::string& out, const std::vector<std::string>& inputs);

/// Declares the golden's tensors; they are the last of a file.
void DeclareGolden(const Golden& golden, SafetensorsWriter& writer);

/// Runs the model from the file as far as it is written, which proves too that the file loads, and
/// appends the golden's tensors. Logits that are not finite are refused.
Status AppendGolden(Golden& golden, SafetensorsWriter& writer);

}  // namespace lookback::tools
