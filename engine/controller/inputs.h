// Stage 3 of the AAH controller (arXiv 2608.19203): what the networks see of a node.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/controller/config.h"
#include "engine/controller/hierarchy.h"

namespace lookback::controller {

/// Numbers that the controller sees of a node: 9, 29, 38, 32 or 28.
int64_t InputWidth(InputMode mode);

/// The controller's input of every node of `level`, [nodes][InputWidth(mode)], of `heads` heads in
/// all. With b the node's features and s = b − the mean of its siblings' (0 where it has none):
///   base                   b
///   enriched               b, level / max(1, levels − 1), b − parent's (0 at the top),
///                          b − the level's mean, children / nodes (or heads) of the level below
///   contrastive            enriched, s
///   position_aware         enriched, p / max(1, m − 1), p == 0, p > 0 for the p-th of m siblings,
///                          itself counted; all 0 where the level has one node
///   relative_sibling_mean  b, s, b − parent's, level / max(1, levels − 1)
/// Siblings are the other children of the parent; at the top, all other nodes.
std::vector<std::vector<float>> ControllerInputs(const Hierarchy& hierarchy, size_t level,
                                                 InputMode mode, int64_t heads);

/// The mean over `family` without `node` of rows[member]; empty where there is no other member.
std::vector<float> MeanOfOthers(const std::vector<std::vector<float>>& rows,
                                const std::vector<int64_t>& family, int64_t node);

}  // namespace lookback::controller
