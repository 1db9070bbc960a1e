#include "engine/controller/hierarchy.h"

#include <cmath>
#include <numeric>
#include <utility>

namespace lookback::controller {
namespace {

/// Mean of one feature over `members`.
double MeanOver(std::span<const Features> below, std::span<const int64_t> members, size_t feature) {
  double sum = 0.0;
  for (const int64_t member : members) sum += below[static_cast<size_t>(member)][feature];
  return sum / static_cast<double>(members.size());
}

double VarianceOver(std::span<const Features> below, std::span<const int64_t> members,
                    size_t feature, double mean) {
  double sum = 0.0;
  for (const int64_t member : members) {
    const double offset = below[static_cast<size_t>(member)][feature] - mean;
    sum += offset * offset;
  }
  return sum / static_cast<double>(members.size());
}

}  // namespace

std::vector<Features> Aggregate(std::span<const Features> below, const Groups& groups,
                                Aggregation mode) {
  std::vector<int64_t> all(below.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<Features> out(groups.size());
  for (size_t f = 0; f < kFeatures; ++f) {
    const double mean_of_all = MeanOver(below, all, f);
    for (size_t group = 0; group < groups.size(); ++group) {
      const double mean = MeanOver(below, groups[group], f);
      double value = mean;
      if (mode == Aggregation::kMeanGlobalOffset) value += mean - mean_of_all;
      if (mode == Aggregation::kMeanVar) value += VarianceOver(below, groups[group], f, mean);
      if (mode == Aggregation::kMeanStd) {
        value += std::sqrt(VarianceOver(below, groups[group], f, mean));
      }
      out[group][f] = static_cast<float>(value);
    }
  }
  return out;
}

Hierarchy Grow(Level bottom, const NativeConfig& config,
               std::vector<LevelClustering>& clusterings) {
  Hierarchy hierarchy;
  hierarchy.push_back(std::move(bottom));
  const ClusterRules rules = NodeRules(config);
  while (std::ssize(hierarchy) < config.max_depth) {
    const Level& below = hierarchy.back();
    Clustering clustering = ClusterNodes(below.features, rules);
    clusterings.push_back({clustering.before_merge, std::ssize(clustering.groups), false});
    if (clustering.groups.size() == 1) break;
    std::vector<Features> features =
        Aggregate(below.features, clustering.groups, config.group_feature_mode);
    hierarchy.push_back({std::move(clustering.groups), std::move(features)});
  }
  return hierarchy;
}

Hierarchy Refill(const Hierarchy& frozen, Level bottom, Aggregation mode) {
  Hierarchy hierarchy;
  hierarchy.push_back(std::move(bottom));
  for (size_t level = 1; level < frozen.size(); ++level) {
    std::vector<Features> features =
        Aggregate(hierarchy.back().features, frozen[level].children, mode);
    hierarchy.push_back({frozen[level].children, std::move(features)});
  }
  return hierarchy;
}

Hierarchy PassThrough(Level bottom, const NativeConfig& config) {
  Groups single;
  for (int64_t node = 0; node < bottom.nodes(); ++node) single.push_back({node});
  Hierarchy repeated(static_cast<size_t>(config.max_depth));
  for (size_t level = 1; level < repeated.size(); ++level) repeated[level].children = single;
  return Refill(repeated, std::move(bottom), config.group_feature_mode);
}

Groups FamiliesOf(const Hierarchy& hierarchy, size_t level) {
  if (level + 1 < hierarchy.size()) return hierarchy[level + 1].children;
  std::vector<int64_t> all(hierarchy[level].children.size());
  std::iota(all.begin(), all.end(), 0);
  return {std::move(all)};
}

std::vector<int64_t> NodeOfHead(const Hierarchy& hierarchy, size_t level, int64_t heads) {
  std::vector<int64_t> node = GroupOf(hierarchy[0].children, heads);
  for (size_t l = 1; l <= level; ++l) {
    const std::vector<int64_t> parent = GroupOf(hierarchy[l].children, hierarchy[l - 1].nodes());
    for (int64_t& n : node) {
      if (n >= 0) n = parent[static_cast<size_t>(n)];
    }
  }
  return node;
}

}  // namespace lookback::controller
