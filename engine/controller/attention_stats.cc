#include "engine/controller/attention_stats.h"

#include <algorithm>
#include <cmath>

namespace lookback::controller {
namespace {

constexpr int64_t kLanes = 8;

/// Independent sums, so that additions need not wait for each other.
float Dot(const float* a, const float* b, int64_t width) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < width; ++i) lanes[0] += a[i] * b[i];
  double sum = 0.0;
  for (const float lane : lanes) sum += lane;
  return static_cast<float>(sum);
}

}  // namespace

RowStats StatsOfRow(const HeadView& head, int64_t row, std::span<float> scratch) {
  const int64_t first = std::max<int64_t>(0, row - head.window + 1);
  const auto seen = static_cast<size_t>(row - first + 1);
  float highest = -INFINITY;
  for (size_t j = 0; j < seen; ++j) {
    const float* key = head.k + (first + static_cast<int64_t>(j)) * head.k_stride;
    scratch[j] = Dot(head.q + row * head.q_stride, key, head.head_dim) * head.scale;
    highest = std::max(highest, scratch[j]);
  }
  double sum = 0.0;
  for (size_t j = 0; j < seen; ++j) {
    scratch[j] = std::exp(scratch[j] - highest);
    sum += scratch[j];
  }
  RowStats stats;
  for (size_t j = 0; j < seen; ++j) {
    const double weight = scratch[j] / sum;
    // Keys out of the window weigh nothing and add 0 · log(1e-9).
    stats.entropy -= weight * std::log(weight + 1e-9);
  }
  if (row + 1 == head.tokens) stats.usage = scratch[seen - 1] / sum;
  double squares = 0.0;
  for (int64_t i = 0; i < head.head_dim; ++i) {
    const double value = head.out[row * head.out_stride + i];
    squares += value * value;
  }
  stats.norm = std::sqrt(squares);
  return stats;
}

AttentionStats MeanStats(std::span<const RowStats> rows, int64_t tokens) {
  double entropy = 0.0, norm = 0.0, usage = 0.0;
  for (const RowStats& row : rows) {
    entropy += row.entropy;
    norm += row.norm;
    usage += row.usage;
  }
  const auto count = static_cast<double>(rows.size());
  const double most = std::max(1.0, std::log(static_cast<double>(tokens)));
  return {static_cast<float>(entropy / count / most), static_cast<float>(norm / count),
          static_cast<float>(usage / count)};
}

}  // namespace lookback::controller
