#include "engine/controller/features.h"

#include <algorithm>
#include <cmath>

namespace lookback::controller {
namespace {

/// The six statistics of queries, keys and values.
template <size_t N>
void PutStatistics(const HeadMoments& moments, std::array<float, N>& features) {
  size_t next = 0;
  for (const Moments* part : {&moments.q, &moments.k, &moments.v}) {
    features[next++] = static_cast<float>(part->mean_abs);
    features[next++] = static_cast<float>(part->std());
  }
}

}  // namespace

double Moments::std() const {
  return count < 2 ? 0.0 : std::sqrt(m2 / static_cast<double>(count - 1));
}

Moments MomentsOf(const float* x, int64_t rows, int64_t stride, int64_t width) {
  Moments moments;
  moments.count = rows * width;
  double sum = 0.0, sum_abs = 0.0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      const double value = x[row * stride + i];
      sum += value;
      sum_abs += std::abs(value);
    }
  }
  const auto count = static_cast<double>(moments.count);
  moments.mean = sum / count;
  moments.mean_abs = sum_abs / count;
  // A second pass: sums of squares would cancel where the mean is large.
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      const double difference = x[row * stride + i] - moments.mean;
      moments.m2 += difference * difference;
    }
  }
  return moments;
}

Moments Union(std::span<const Moments> parts) {
  Moments all;
  for (const Moments& part : parts) {
    const auto count = static_cast<double>(part.count);
    all.count += part.count;
    all.mean += part.mean * count;
    all.mean_abs += part.mean_abs * count;
  }
  all.mean /= static_cast<double>(all.count);
  all.mean_abs /= static_cast<double>(all.count);
  for (const Moments& part : parts) {
    const double offset = part.mean - all.mean;
    all.m2 += part.m2 + offset * offset * static_cast<double>(part.count);
  }
  return all;
}

Features FreshFeatures(const HeadMoments& moments, const AttentionStats& previous) {
  Features features{};
  PutStatistics(moments, features);
  features[6] = previous.entropy;
  features[7] = previous.norm;
  features[8] = previous.usage;
  return features;
}

Features UnionFeatures(std::span<const HeadMoments> moments,
                       std::span<const AttentionStats> previous, std::span<const int64_t> heads) {
  std::vector<Moments> q, k, v;
  double entropy = 0.0, norm = 0.0, usage = 0.0;
  for (const int64_t head : heads) {
    const auto h = static_cast<size_t>(head);
    q.push_back(moments[h].q);
    k.push_back(moments[h].k);
    v.push_back(moments[h].v);
    entropy += previous[h].entropy;
    norm += previous[h].norm;
    usage += previous[h].usage;
  }
  const auto count = static_cast<double>(heads.size());
  return FreshFeatures({Union(q), Union(k), Union(v)},
                       {static_cast<float>(entropy / count), static_cast<float>(norm / count),
                        static_cast<float>(usage / count)});
}

std::vector<AdapterFeatures> FreshAdapterFeatures(std::span<const HeadMoments> moments,
                                                  int64_t layer) {
  std::vector<AdapterFeatures> all(moments.size());
  const auto last = static_cast<float>(std::max<size_t>(1, moments.size() - 1));
  for (size_t head = 0; head < moments.size(); ++head) {
    PutStatistics(moments[head], all[head]);
    all[head][6] = static_cast<float>(head) / last;
    all[head][7] = static_cast<float>(layer) / 100.0F;
  }
  return all;
}

}  // namespace lookback::controller
