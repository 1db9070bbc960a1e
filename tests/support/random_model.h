// Small random models.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/config.h"
#include "engine/engine.h"
#include "kernels/kernels.h"

namespace lookback::testing {

/// A valid config of little size: 3 layers, 6 query and 3 KV heads of 16, hidden 48, vocabulary 97.
ModelConfig TinyConfig(ResidualMode mode = ResidualMode::kFullMh);

/// The same with rows that are whole groups of quantized weights: hidden 64, feed-forward 96.
ModelConfig QuantizableConfig(ResidualMode mode = ResidualMode::kFullMh);

/// Random weights of `config`, as WriteRandomModel writes them, in a file that is gone.
std::shared_ptr<const LoadedModel> RandomModel(const ModelConfig& config, uint32_t seed = 1,
                                               kernels::Element matrices = kernels::Element::kF32);

/// `count` ids in [0, vocab), reproducible.
std::vector<int32_t> RandomIds(int64_t count, int64_t vocab, uint32_t seed);

}  // namespace lookback::testing
