// The small networks of the AAH controller (arXiv 2608.19203; `controller.mlp`,
// `joint_sibling_scorer.mlp` and `pairwise_bias.mlp` in the release, `controller.net` in an
// adapter).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/controller/config.h"
#include "engine/safetensors.h"
#include "engine/status.h"

namespace lookback::controller {

/// y = weight · x + bias
struct Dense {
  int64_t out = 0;
  int64_t in = 0;
  std::vector<float> weight;  ///< [out][in]
  std::vector<float> bias;    ///< [out]
};

/// Dense layers with GELU (the exact form, by erf) between them.
struct Mlp {
  std::vector<Dense> layers;

  int64_t in() const { return layers.front().in; }
  int64_t out() const { return layers.back().out; }
  std::vector<float> operator()(std::span<const float> x) const;
};

/// What one layer of a native model chooses with.
struct Networks {
  Mlp controller;
  std::optional<Mlp> joint;         ///< two siblings' inputs → both nodes' logits
  std::optional<Mlp> sibling_bias;  ///< how a node differs from its siblings → what is added
};

/// Reads `lookback.controller.blocks.{layer}.attn.*`. Errors name tensor, shape and what the
/// settings expect. Scorers that the settings do not use are not read.
Result<Networks> LoadNetworks(const SafetensorsFile& file, const NativeConfig& config,
                              int64_t layer);

/// Reads an adapter's `lookback.controller.layers.{layer}.net.*`.
Result<Mlp> LoadAdapterNetwork(const SafetensorsFile& file, const AdapterConfig& config,
                               int64_t layer);

}  // namespace lookback::controller
