// Stage 1 of the AAH controller (arXiv 2608.19203): what it knows of a head. Statistics of queries,
// keys and values, what attention left behind, and their running mean.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lookback::controller {

/// One head's or node's features, in the release's order: mean |q|, std q, mean |k|, std k,
/// mean |v|, std v, then entropy, norm and usage (AttentionStats).
inline constexpr size_t kFeatures = 9;
using Features = std::array<float, kFeatures>;
/// An adapter's: the six statistics, then where the head is: head / (heads − 1) and layer / 100.
inline constexpr size_t kAdapterFeatures = 8;
using AdapterFeatures = std::array<float, kAdapterFeatures>;

/// Moments of a set of numbers; enough to join sets.
struct Moments {
  int64_t count = 0;
  double mean_abs = 0.0;  ///< mean of |x|, not |mean of x|
  double mean = 0.0;
  double m2 = 0.0;  ///< sum of squared differences from the mean

  /// The unbiased one (n − 1); 0 of a single number.
  double std() const;
};

/// Moments of x[row · stride + i], row < rows, i < width.
Moments MomentsOf(const float* x, int64_t rows, int64_t stride, int64_t width);
/// Moments of all numbers of `parts` together.
Moments Union(std::span<const Moments> parts);

/// One head's queries, keys and values over (batch, time, head_dim). The keys and values of a head
/// that shares its KV head are those of that KV head.
struct HeadMoments {
  Moments q, k, v;
};

/// What one forward's attention leaves of a head for the next forward's features; zeros at first.
struct AttentionStats {
  float entropy = 0.0F;  ///< mean over rows of −sum_j a·log(a + 1e-9), over max(1, ln T)
  float norm = 0.0F;     ///< mean over rows of the Euclidean norm of the head's output
  float usage = 0.0F;    ///< mean over rows of the weight of the last key
};

/// The features of this forward, before any mean over time.
Features FreshFeatures(const HeadMoments& moments, const AttentionStats& previous);

/// The features of a set of heads taken straight from their queries, keys and values: std over the
/// union of the numbers, and the mean of what attention left. How the release sees a group of heads
/// that is kept from an earlier update.
Features UnionFeatures(std::span<const HeadMoments> moments,
                       std::span<const AttentionStats> previous, std::span<const int64_t> heads);

/// The first value as it is, then alpha · old + (1 − alpha) · new, in f32.
template <size_t N>
class FeatureEma {
 public:
  const std::vector<std::array<float, N>>& Update(const std::vector<std::array<float, N>>& fresh,
                                                  double alpha) {
    if (values_.empty()) {
      values_ = fresh;
      return values_;
    }
    const auto old_share = static_cast<float>(alpha);
    const auto new_share = static_cast<float>(1.0 - alpha);
    for (size_t i = 0; i < values_.size(); ++i) {
      for (size_t f = 0; f < N; ++f) {
        values_[i][f] = old_share * values_[i][f] + new_share * fresh[i][f];
      }
    }
    return values_;
  }
  /// Empty before the first update.
  const std::vector<std::array<float, N>>& values() const { return values_; }

 private:
  std::vector<std::array<float, N>> values_;
};

/// An adapter's features of this forward, one a head. `layer` counts from 0.
std::vector<AdapterFeatures> FreshAdapterFeatures(std::span<const HeadMoments> moments,
                                                  int64_t layer);

}  // namespace lookback::controller
