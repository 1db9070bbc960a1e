// One tensor's way from a source file into a lookback file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/safetensors.h"
#include "engine/status.h"
#include "engine/weights.h"
#include "tools/convert/weight_source.h"

namespace lookback::tools {

/// Appends `source` to what DeclareWeights declared, a few megabytes at a time: as it is, rounded
/// to bf16 (nearest even), or quantized. A weight that is not finite, or not after rounding, is
/// refused by name and index. `after_slice` gets the bytes written; its error ends the copy.
Status CopyWeights(const std::string& name, const SourceTensor& source, kernels::Element target,
                   SafetensorsWriter& writer, const std::function<Status(int64_t)>& after_slice);

}  // namespace lookback::tools
