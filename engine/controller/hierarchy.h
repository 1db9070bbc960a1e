// The tree of groups that stage 2 of the AAH controller builds (arXiv 2608.19203), and how features
// go up it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/controller/config.h"
#include "engine/controller/features.h"
#include "engine/controller/grouping.h"

namespace lookback::controller {

/// The nodes of one level.
struct Level {
  Groups children;  ///< of each node: heads at level 0, nodes of the level below above it
  std::vector<Features> features;  ///< of each node

  int64_t nodes() const { return std::ssize(children); }
};

/// Level 0 first. Every node of a level that is not the top is a child of one node above.
using Hierarchy = std::vector<Level>;

/// Features of each group of `below`, children → node: the mean; the mean plus the population
/// standard deviation or variance (0 for one child); or 2 · mean − the mean of all of `below`.
std::vector<Features> Aggregate(std::span<const Features> below, const Groups& groups,
                                Aggregation mode);

/// One pass of the clustering that was made to build a level; the last one may have been dropped.
struct LevelClustering {
  int64_t before_merge = 0;
  int64_t after_merge = 0;
  bool forced = false;
};

/// Clusters level after level on top of `bottom`, up to config.max_depth levels in all. A level
/// that collapses to one node is dropped and ends it; one that does not shrink is kept. Appends to
/// `clusterings`.
Hierarchy Grow(Level bottom, const NativeConfig& config, std::vector<LevelClustering>& clusterings);

/// The tree of `frozen` with new features from `bottom` up.
Hierarchy Refill(const Hierarchy& frozen, Level bottom, Aggregation mode);

/// `bottom`, repeated as parents of one child each, config.max_depth levels in all.
Hierarchy PassThrough(Level bottom, const NativeConfig& config);

/// The nodes of `level` by parent, in index order; one family at the top.
Groups FamiliesOf(const Hierarchy& hierarchy, size_t level);

/// The node of `level` above each head; −1 for a head that no node has.
std::vector<int64_t> NodeOfHead(const Hierarchy& hierarchy, size_t level, int64_t heads);

}  // namespace lookback::controller
