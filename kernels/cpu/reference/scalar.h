// What the reference kernels share: widening and sums with a fixed set of partial accumulators.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/kernels.h"

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

/// f32 from the bits of an f16 (exact, subnormals too).
inline float WidenF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU, mantissa = bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t widened = exponent == 0x1F ? 0x7F800000U : (exponent + 112) << 23;
  return std::bit_cast<float>(sign | widened | (mantissa << 13));
}

/// A group of a quantized row: value i is q[i] · scale; zeros behind a short one.
struct Group {
  int32_t q[kQuantGroup];
  float scale;
};

/// Group `group` of a row of `n`.
inline Group LoadGroup(const WeightView& w, int64_t row, int64_t n, int64_t group) {
  const int64_t groups = QuantGroups(n), begin = group * kQuantGroup;
  const int64_t count = n - begin < kQuantGroup ? n - begin : kQuantGroup;
  Group out{{}, WidenF16(w.scale[row * groups + group])};
  if (w.type == Element::kQ8) {
    const int8_t* q = static_cast<const int8_t*>(w.data) + row * n + begin;
    for (int64_t i = 0; i < count; ++i) out.q[i] = q[i];
  } else {
    const uint8_t* q = static_cast<const uint8_t*>(w.data) + (row * groups + group) * kQ4GroupBytes;
    for (int64_t i = 0; i < count; ++i) {
      out.q[i] = (i < kQ4GroupBytes ? q[i] & 0xF : q[i - kQ4GroupBytes] >> 4) - 8;
    }
  }
  return out;
}

/// Its values, to out[32].
inline void Dequantize(const WeightView& w, int64_t row, int64_t n, int64_t group, float* out) {
  const Group values = LoadGroup(w, row, n, group);
  for (int64_t i = 0; i < kQuantGroup; ++i) out[i] = static_cast<float>(values.q[i]) * values.scale;
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
template <typename A, typename B>
float Dot(const A* a, const B* b, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += Widen(a[i + lane]) * Widen(b[i + lane]);
    }
  }
  for (int64_t lane = 0; i + lane < n; ++lane) {
    lanes[lane] += Widen(a[i + lane]) * Widen(b[i + lane]);
  }
  return SumLanes(lanes);
}

/// sum_i x[i], in the order of Dot.
inline float Sum(const float* x, int64_t n) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % kLanes] += x[i];
  return SumLanes(lanes);
}

}  // namespace lookback::kernels::reference
