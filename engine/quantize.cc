#include "engine/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/status.h"
#include "engine/tensor.h"

namespace lookback {

namespace {

using kernels::Element;
using kernels::kQuantGroup;

/// round(value · inverse) within [low, high], ties to even: adding and subtracting 1.5 · 2^23
/// rounds, in a form that compilers vectorise.
inline float RoundTo(float value, float inverse, float low, float high) {
  constexpr float kRounder = 12582912.0F;
  const float clamped = std::clamp(value * inverse, low, high);
  return (clamped + kRounder) - kRounder;
}

struct Fit {
  float scale = 0.0F;
  float error = 0.0F;  ///< sum of squares
};

/// The best scale for the integers that `scale` gives, and the error with those integers.
Fit Refine(std::span<const float> values, float scale, float low, float high) {
  const float inverse = 1.0F / scale;
  float product = 0.0F, squares = 0.0F, total = 0.0F;
  for (const float value : values) {
    const float q = RoundTo(value, inverse, low, high);
    product += value * q;
    squares += q * q;
    total += value * value;
  }
  if (squares == 0.0F) return {scale, total};
  return {product / squares, total - product * product / squares};
}

}  // namespace

uint16_t QuantizeGroup(std::span<const float> values, int low, int high, std::span<int8_t> out) {
  LOOKBACK_CHECK(!values.empty() && values.size() == out.size());
  const auto bottom = static_cast<float>(low), top = static_cast<float>(high);
  float extreme = 0.0F;
  for (const float value : values) {
    if (std::fabs(value) > std::fabs(extreme)) extreme = value;
  }
  std::fill(out.begin(), out.end(), int8_t{0});
  if (extreme == 0.0F) return 0;
  // The extreme goes to the end of the range with more room, give or take: clipping it a little may
  // serve the others.
  Fit best{extreme / bottom, INFINITY};  // values whose squares overflow have no better
  const int steps = high > 15 ? 2 : 8;
  for (int step = -steps; step <= steps; ++step) {
    for (const float end : {bottom, top}) {
      const float at = end + (end < 0 ? -0.25F : 0.25F) * static_cast<float>(step);
      const Fit fit = Refine(values, extreme / at, bottom, top);
      if (fit.error < best.error) best = fit;
    }
  }
  const uint16_t bits = F32ToF16(best.scale);
  const float scale = F16ToF32(bits);
  if (scale == 0.0F || !std::isfinite(scale)) return bits;
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = static_cast<int8_t>(RoundTo(values[i], 1.0F / scale, bottom, top));
  }
  return bits;
}

void QuantizeRow(std::span<const float> values, Element type, std::span<std::byte> row,
                 std::span<uint16_t> scales) {
  LOOKBACK_CHECK(IsQuantized(type));
  LOOKBACK_CHECK(std::ssize(row) == kernels::RowBytes(type, std::ssize(values)));
  LOOKBACK_CHECK(std::ssize(scales) == kernels::QuantGroups(std::ssize(values)));
  for (size_t group = 0; group < scales.size(); ++group) {
    const size_t begin = group * kQuantGroup;
    const auto part = values.subspan(begin, std::min<size_t>(kQuantGroup, values.size() - begin));
    int8_t q[kQuantGroup] = {};
    const std::span<int8_t> integers(q, part.size());
    if (type == Element::kQ8) {
      scales[group] = QuantizeGroup(part, -127, 127, integers);
      std::memcpy(row.data() + begin, q, part.size());
    } else {
      scales[group] = QuantizeGroup(part, -8, 7, integers);
      std::byte* bytes = row.data() + group * kernels::kQ4GroupBytes;
      for (size_t i = 0; i < kernels::kQ4GroupBytes; ++i) {
        const int high_nibble = q[i + kernels::kQ4GroupBytes] + 8;
        bytes[i] = static_cast<std::byte>((q[i] + 8) | (high_nibble << 4));
      }
    }
  }
}

void DeclareWeights(const std::string& name, std::span<const int64_t> shape, Element target,
                    SafetensorsWriter& writer) {
  std::vector<int64_t> stored(shape.begin(), shape.end());
  if (!IsQuantized(target)) {
    writer.Declare(name, target == Element::kF32 ? DType::kF32 : DType::kBF16, std::move(stored));
    return;
  }
  LOOKBACK_CHECK(shape.size() == 2);
  const int64_t groups = kernels::QuantGroups(shape[1]);
  stored[1] = kernels::RowBytes(target, shape[1]);
  writer.Declare(name, target == Element::kQ8 ? DType::kI8 : DType::kU8, std::move(stored));
  writer.Declare(name + ".scale", DType::kF16, {shape[0], groups});
}

}  // namespace lookback
