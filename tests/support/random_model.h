// Small random models, written as lookback files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/config.h"
#include "engine/engine.h"

namespace lookback::testing {

/// A valid config of little size: 3 layers, 6 query and 3 KV heads of 16, hidden 48, vocabulary 97.
ModelConfig TinyConfig(ResidualMode mode = ResidualMode::kFullMh);

/// Writes random weights of `config` (windows included) to `path`; the same seed gives the same
/// file.
void WriteRandomModel(const std::string& path, const ModelConfig& config, uint32_t seed,
                      DType matrix_dtype = DType::kF32);

/// Writes to a temporary file and opens it.
std::shared_ptr<const LoadedModel> RandomModel(const ModelConfig& config, uint32_t seed = 1,
                                               DType matrix_dtype = DType::kF32);

/// `count` ids in [0, vocab), reproducible.
std::vector<int32_t> RandomIds(int64_t count, int64_t vocab, uint32_t seed);

}  // namespace lookback::testing
