// Named shapes to bench without a model at hand.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace lookback::tools {

/// What --shape takes: the sizes of the two papers' models, and of Qwen3-4B with the windows that
/// were published for it.
std::vector<std::string> ShapeNames();
/// InvalidArgument, with the names there are, for another.
Result<ModelConfig> ShapeConfig(std::string_view name);

/// Random weights of `config`, matrices as `weights` (f32, bf16, q8, q4): written to a temporary
/// file, which is mapped and removed.
Result<std::shared_ptr<const LoadedModel>> OpenRandomModel(const ModelConfig& config,
                                                           std::string_view weights);

}  // namespace lookback::tools
