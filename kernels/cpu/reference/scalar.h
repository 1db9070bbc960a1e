// What the reference kernels share: widening and sums with a fixed set of partial accumulators.
#pragma once

#include <bit>
#include <cstdint>

namespace lookback::kernels::reference {

inline float Widen(float value) { return value; }
inline float Widen(uint16_t bf16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
}

/// Nearest bf16, ties to even; NaN becomes a quiet NaN.
inline uint16_t NarrowToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

/// Every reduction keeps this many partial sums: element i goes to sum i mod kLanes, whatever the
/// length, and the partial sums are added as a tree. A compiler may use vector registers for them
/// without changing a bit.
inline constexpr int64_t kLanes = 16;

inline float SumLanes(float* lanes) {
  for (int64_t width = kLanes / 2; width >= 1; width /= 2) {
    for (int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

/// sum_i a[i] · b[i]
template <typename T>
float Dot(const float* a, const T* b, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * Widen(b[i + lane]);
  }
  for (int64_t lane = 0; i + lane < n; ++lane) lanes[lane] += a[i + lane] * Widen(b[i + lane]);
  return SumLanes(lanes);
}

/// sum_i x[i], in the order of Dot.
inline float Sum(const float* x, int64_t n) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % kLanes] += x[i];
  return SumLanes(lanes);
}

}  // namespace lookback::kernels::reference
