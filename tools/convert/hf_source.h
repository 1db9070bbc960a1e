// The weights of a Hugging Face folder: model.safetensors, or shards behind an index.
#pragma once

#include <string>

#include "engine/status.h"
#include "tools/convert/weight_source.h"

namespace lookback::tools {

/// Opens and checks what is in `folder`. A shard's name may not leave the folder, no tensor may lie
/// in two shards, and the index must say the truth.
Result<WeightSource> OpenHfWeights(const std::string& folder);

}  // namespace lookback::tools
