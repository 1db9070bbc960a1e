// Stage 4 of the AAH controller (arXiv 2608.19203): from inputs to logits to one choice a node, and
// to one window a head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/controller/config.h"
#include "engine/controller/hierarchy.h"
#include "engine/controller/networks.h"

namespace lookback::controller {

using Rows = std::vector<std::vector<float>>;

/// Logits of every node of one level, [nodes][choices]: the controller's, times
/// controller_logit_scale. With joint sibling scoring the nodes of a family are taken in pairs in
/// index order, and both get the scorer's logits instead, from [a, b, a − b, b − a], times
/// joint_output_scale; an odd last one keeps its own. With sibling bias every node gets the logits
/// of its difference from the mean of its siblings' inputs (0 where it has none) on top, times
/// pairwise_bias_scale.
Rows LevelLogits(const Networks& networks, const NativeConfig& config, const Rows& inputs,
                 const Groups& families);

/// The first of the largest.
int64_t Argmax(std::span<const float> logits);
/// How much the largest logit is above the second; infinite for a single one.
double Margin(std::span<const float> logits);

/// `oracle_alternating`: even nodes choose 1, odd ones 2, as far as there are so many choices.
int64_t OracleChoice(int64_t node, int64_t choices);

/// The parent constraint: no node of `families[p]` chooses a later index than parents[p].
void ConstrainToParents(const Groups& families, std::span<const int64_t> parents,
                        std::vector<int64_t>& choices);

/// The choice nearest to `tokens`, the first of equals.
int64_t NearestChoice(std::span<const int64_t> windows, int64_t tokens);

/// With window control off: the choice that is as long as the forward, else the shortest window.
int64_t UncontrolledChoice(std::span<const int64_t> windows, int64_t tokens);

/// Halves to even, then clamped to the choices.
int64_t RoundedChoice(float mean, int64_t choices);

/// The native EMA over choices: the first as it is, then share · old + (1 − share) · new, kept
/// unrounded; `share` is resolution_ema_alpha.
void UpdateResolution(std::span<const int64_t> chosen, double share, std::vector<float>& mean);

}  // namespace lookback::controller
