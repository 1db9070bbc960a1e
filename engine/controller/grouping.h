// Stage 2 of the AAH controller (arXiv 2608.19203): which heads belong together, and which groups
// of them. Greedy clustering against centroids, with a forced split of level 0 and a merge of small
// groups.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/controller/config.h"
#include "engine/controller/features.h"

namespace lookback::controller {

/// Items of each group, ascending; no group is empty. Groups come in the order in which they were
/// opened.
using Groups = std::vector<std::vector<int64_t>>;

/// Group of each of `items` items.
std::vector<int64_t> GroupOf(const Groups& groups, int64_t items);

/// How the nodes of one level are compared and put together.
struct ClusterRules {
  Metric metric = Metric::kCosine;
  double threshold = 0.7;        ///< likeness that joins
  double normdiff_scale = 16.0;  ///< of kCosineNormdiff
  int64_t min_group_size = 1;    ///< children; smaller groups look for another
};

/// Level 0 is always compared by cosine.
ClusterRules HeadRules(const NativeConfig& config);
/// The levels above, by their own metric and threshold.
ClusterRules NodeRules(const NativeConfig& config);

struct Clustering {
  Groups groups;
  int64_t before_merge = 0;  ///< groups after the greedy pass and a forced split
  bool forced = false;       ///< level 0 was one group and had to be split
};

/// Level 0. `previous`: the group of each head at the last update, empty at the first. A single
/// group of two or more heads is split by force; otherwise small groups are merged.
Clustering ClusterHeads(std::span<const Features> heads, const ClusterRules& rules,
                        std::span<const int64_t> previous, double churn_bonus);
/// A level above.
Clustering ClusterNodes(std::span<const Features> nodes, const ClusterRules& rules);

// The steps of these two.

/// What nodes are compared in: their features normalized to length 1, centred on the level's mean
/// first (kCenteredCosine), or as they are (kL2). Lengths below 1e-6 count as that.
using Score = std::array<double, kFeatures>;
std::vector<Score> ScoresOf(std::span<const Features> items, Metric metric);

/// Every item, in index order, joins the likeliest group (the first of equals) if its likeness to
/// the group's centroid reaches the threshold, else it opens a group. A centroid is the normalized
/// mean of the members' scores (kL2: the mean). Likeness is the dot product; for kCosineNormdiff
/// less scale · |‖mean of the members‖ − ‖item‖| / the larger of the two; for kL2 the negative
/// distance.
Groups GreedyGroups(std::span<const Features> items, std::span<const Score> scores,
                    const ClusterRules& rules);

/// Two groups around the least alike pair (the first in row-major order; `churn_bonus` makes pairs
/// of one former group more alike, up to 1), the lower index in group 0. The others go to the
/// nearer of the two; within 1e-8 to the smaller group, the first if they are equal.
Groups ForceSplit(std::span<const Score> scores, std::span<const int64_t> previous,
                  double churn_bonus);

/// The groups below min_group_size, listed once, each join the group whose mean score is likest (by
/// dot product, whatever the metric) if that reaches the threshold, as long as more than two groups
/// have members. One that has grown meanwhile stays. A group that was emptied keeps its last mean
/// and may be chosen again.
Groups MergeSmallGroups(Groups groups, std::span<const Score> scores, const ClusterRules& rules);

/// Heads 0, 2, 4, … and 1, 3, 5, … (`fixed_deterministic`).
Groups AlternatingGroups(int64_t heads);
/// Half of the heads (rounded down) and the rest, by the release's shuffle (`fixed_random`): a
/// permutation drawn from MT19937, seeded with the low 32 bits of `seed`; the same in every layer.
Groups RandomGroups(int64_t heads, int64_t seed);

}  // namespace lookback::controller
