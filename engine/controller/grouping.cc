#include "engine/controller/grouping.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace lookback::controller {
namespace {

constexpr double kMinLength = 1e-6;
constexpr double kTie = 1e-8;

double Dot(const Score& a, const Score& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double Length(const Score& a) { return std::sqrt(Dot(a, a)); }

Score Normalized(Score a) {
  const double length = std::max(Length(a), kMinLength);
  for (double& value : a) value /= length;
  return a;
}

Score Widened(const Features& features) {
  Score wide;
  std::copy(features.begin(), features.end(), wide.begin());
  return wide;
}

void AddTo(const Score& a, Score& sum) {
  for (size_t i = 0; i < kFeatures; ++i) sum[i] += a[i];
}

Score Scaled(Score a, double factor) {
  for (double& value : a) value *= factor;
  return a;
}

Score MeanOf(std::span<const Score> scores, const std::vector<int64_t>& members) {
  Score sum{};
  for (const int64_t member : members) AddTo(scores[static_cast<size_t>(member)], sum);
  return Scaled(sum, 1.0 / static_cast<double>(members.size()));
}

double Distance(const Score& a, const Score& b) {
  double sum = 0.0;
  for (size_t i = 0; i < kFeatures; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

/// One group of the greedy pass: sums over its members.
struct Growing {
  Score scores{};
  Score raw{};
  double members = 0.0;
};

double Likeness(const Growing& group, const Score& score, const Score& raw,
                const ClusterRules& rules) {
  const Score mean = Scaled(group.scores, 1.0 / group.members);
  if (rules.metric == Metric::kL2) return -Distance(mean, score);
  const double cosine = Dot(Normalized(mean), score);
  if (rules.metric != Metric::kCosineNormdiff) return cosine;
  const double group_length = Length(Scaled(group.raw, 1.0 / group.members));
  const double length = Length(raw);
  return cosine - rules.normdiff_scale * std::abs(group_length - length) /
                      std::max({group_length, length, kMinLength});
}

int64_t NonEmpty(const Groups& groups) {
  return std::count_if(groups.begin(), groups.end(),
                       [](const std::vector<int64_t>& group) { return !group.empty(); });
}

}  // namespace

std::vector<int64_t> GroupOf(const Groups& groups, int64_t items) {
  std::vector<int64_t> group_of(static_cast<size_t>(items), -1);
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const int64_t item : groups[group]) {
      group_of[static_cast<size_t>(item)] = static_cast<int64_t>(group);
    }
  }
  return group_of;
}

ClusterRules HeadRules(const NativeConfig& config) {
  return {Metric::kCosine, config.sim_threshold, 0.0, config.min_group_size};
}

ClusterRules NodeRules(const NativeConfig& config) {
  const bool l2 = config.upper_cluster_metric == Metric::kL2;
  return {config.upper_cluster_metric, l2 ? config.upper_l2_threshold : config.super_threshold,
          config.cosine_normdiff_scale, config.min_group_size};
}

std::vector<Score> ScoresOf(std::span<const Features> items, Metric metric) {
  std::vector<Score> scores;
  Score mean{};
  for (const Features& item : items) {
    scores.push_back(Widened(item));
    AddTo(scores.back(), mean);
  }
  if (metric == Metric::kL2) return scores;
  mean = Scaled(mean, 1.0 / static_cast<double>(items.size()));
  for (Score& score : scores) {
    if (metric == Metric::kCenteredCosine) AddTo(Scaled(mean, -1.0), score);
    score = Normalized(score);
  }
  return scores;
}

Groups GreedyGroups(std::span<const Features> items, std::span<const Score> scores,
                    const ClusterRules& rules) {
  Groups groups;
  std::vector<Growing> growing;
  for (size_t item = 0; item < items.size(); ++item) {
    const Score raw = Widened(items[item]);
    size_t best = growing.size();
    double best_likeness = 0.0;
    for (size_t group = 0; group < growing.size(); ++group) {
      const double likeness = Likeness(growing[group], scores[item], raw, rules);
      if (best != growing.size() && likeness <= best_likeness) continue;
      best = group;
      best_likeness = likeness;
    }
    if (best == growing.size() || best_likeness < rules.threshold) {
      best = growing.size();
      growing.emplace_back();
      groups.emplace_back();
    }
    AddTo(scores[item], growing[best].scores);
    AddTo(raw, growing[best].raw);
    growing[best].members += 1.0;
    groups[best].push_back(static_cast<int64_t>(item));
  }
  return groups;
}

Groups ForceSplit(std::span<const Score> scores, std::span<const int64_t> previous,
                  double churn_bonus) {
  size_t anchors[2] = {0, 1};
  double lowest = 0.0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = i + 1; j < scores.size(); ++j) {
      double likeness = Dot(scores[i], scores[j]);
      if (!previous.empty() && previous[i] == previous[j]) {
        likeness = std::min(1.0, likeness + churn_bonus);
      }
      const bool first = i == 0 && j == 1;
      if (!first && likeness >= lowest) continue;
      lowest = likeness;
      anchors[0] = i;
      anchors[1] = j;
    }
  }
  Groups groups = {{static_cast<int64_t>(anchors[0])}, {static_cast<int64_t>(anchors[1])}};
  for (size_t item = 0; item < scores.size(); ++item) {
    if (item == anchors[0] || item == anchors[1]) continue;
    const double lead =
        Dot(scores[item], scores[anchors[0]]) - Dot(scores[item], scores[anchors[1]]);
    size_t group = lead > 0.0 ? 0 : 1;
    if (std::abs(lead) <= kTie) group = groups[0].size() <= groups[1].size() ? 0 : 1;
    groups[group].push_back(static_cast<int64_t>(item));
  }
  for (std::vector<int64_t>& group : groups) std::sort(group.begin(), group.end());
  return groups;
}

Groups MergeSmallGroups(Groups groups, std::span<const Score> scores, const ClusterRules& rules) {
  const auto is_small = [&](size_t group) {
    return std::ssize(groups[group]) < rules.min_group_size;
  };
  std::vector<Score> means;
  std::vector<size_t> small;
  for (size_t group = 0; group < groups.size(); ++group) {
    means.push_back(MeanOf(scores, groups[group]));
    if (is_small(group)) small.push_back(group);
  }
  for (const size_t group : small) {
    if (!is_small(group) || groups[group].empty()) continue;
    if (NonEmpty(groups) <= 2) break;
    size_t best = 0;
    double best_likeness = 0.0;
    for (size_t other = 0; other < groups.size(); ++other) {
      // The release lets the group itself compete, with the lowest of cosines.
      const double likeness = other == group ? -1.0 : Dot(means[group], means[other]);
      if (other > 0 && likeness <= best_likeness) continue;
      best = other;
      best_likeness = likeness;
    }
    if (best == group || best_likeness < rules.threshold) continue;
    groups[best].insert(groups[best].end(), groups[group].begin(), groups[group].end());
    std::sort(groups[best].begin(), groups[best].end());
    groups[group].clear();
    means[best] = MeanOf(scores, groups[best]);
  }
  std::erase_if(groups, [](const std::vector<int64_t>& group) { return group.empty(); });
  return groups;
}

Clustering ClusterHeads(std::span<const Features> heads, const ClusterRules& rules,
                        std::span<const int64_t> previous, double churn_bonus) {
  const std::vector<Score> scores = ScoresOf(heads, rules.metric);
  Clustering result;
  result.groups = GreedyGroups(heads, scores, rules);
  if (result.groups.size() == 1 && heads.size() >= 2) {
    result.groups = ForceSplit(scores, previous, churn_bonus);
    result.forced = true;
  }
  result.before_merge = std::ssize(result.groups);
  if (!result.forced && result.groups.size() > 1) {
    result.groups = MergeSmallGroups(std::move(result.groups), scores, rules);
  }
  return result;
}

Clustering ClusterNodes(std::span<const Features> nodes, const ClusterRules& rules) {
  const std::vector<Score> scores = ScoresOf(nodes, rules.metric);
  Clustering result;
  result.groups = GreedyGroups(nodes, scores, rules);
  result.before_merge = std::ssize(result.groups);
  if (result.groups.size() > 1) {
    result.groups = MergeSmallGroups(std::move(result.groups), scores, rules);
  }
  return result;
}

Groups AlternatingGroups(int64_t heads) {
  Groups groups(heads > 1 ? 2 : 1);
  for (int64_t head = 0; head < heads; ++head)
    groups[static_cast<size_t>(head % 2)].push_back(head);
  return groups;
}

Groups RandomGroups(int64_t heads, int64_t seed) {
  // One raw output a draw: what PyTorch's randperm takes from its CPU generator.
  std::mt19937 generator(static_cast<uint32_t>(static_cast<uint64_t>(seed)));
  std::vector<int64_t> order(static_cast<size_t>(heads));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    std::swap(order[i], order[i + generator() % (order.size() - i)]);
  }
  const auto half = order.begin() + heads / 2;
  Groups groups;
  if (half != order.begin()) groups.emplace_back(order.begin(), half);
  groups.emplace_back(half, order.end());
  for (std::vector<int64_t>& group : groups) std::sort(group.begin(), group.end());
  return groups;
}

}  // namespace lookback::controller
