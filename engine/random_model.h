// Files of random weights: shapes that nobody has trained, for benches and tests.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config.h"
#include "engine/status.h"
#include "kernels/kernels.h"

namespace lookback {

/// Writes a lookback file of random weights of `config` (windows included, no tokenizer) to `path`,
/// matrices as `matrices` (kQ4: the sensitive ones as kQ8). Activations keep their size from layer
/// to layer. The same seed gives the same file, and a tensor of the same name and shape the same
/// values in the file of another config. InvalidArgument for a config that Validate() refuses, and
/// for quantized rows that are no whole number of groups.
Status WriteRandomModel(const std::string& path, const ModelConfig& config,
                        kernels::Element matrices, uint64_t seed);

}  // namespace lookback
