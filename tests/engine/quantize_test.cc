#include "engine/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "engine/tensor.h"

namespace lookback {
namespace {

using kernels::Element;
using kernels::WeightView;

std::vector<float> Random(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// A row as the engine reads it back.
std::vector<float> RoundTrip(const std::vector<float>& values, Element type) {
  const int64_t k = std::ssize(values);
  std::vector<std::byte> row(static_cast<size_t>(kernels::RowBytes(type, k)));
  std::vector<uint16_t> scales(static_cast<size_t>(kernels::QuantGroups(k)));
  QuantizeRow(values, type, row, scales);
  std::vector<float> out(values.size());
  const int32_t id = 0;
  kernels::ReferenceKernels().embed(
      {WeightView{row.data(), type, scales.data()}, &id, {}, nullptr, out.data(), k, 0, 1});
  return out;
}

double SquaredError(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return sum;
}

/// The error of the plain way: the largest magnitude at the end of the range, no search.
double ErrorOfTheMaximum(std::span<const float> values, float end, float low, float high) {
  float extreme = 0.0F;
  for (const float value : values) {
    if (std::fabs(value) > std::fabs(extreme)) extreme = value;
  }
  const float scale = F16ToF32(F32ToF16(extreme / end));
  std::vector<float> back;
  for (const float value : values) {
    back.push_back(std::clamp(std::nearbyint(value / scale), low, high) * scale);
  }
  return SquaredError(values, back);
}

TEST(Quantize, NoValueIsOffByMoreThanItsStep) {
  for (const size_t k : {1U, 31U, 32U, 33U, 64U, 75U, 192U}) {
    const auto values = Random(k, 1);
    for (const Element type : {Element::kQ8, Element::kQ4}) {
      const auto back = RoundTrip(values, type);
      for (size_t i = 0; i < k; ++i) {
        const size_t begin = i / 32 * 32, end = std::min(k, begin + 32);
        float largest = 0.0F;
        for (size_t j = begin; j < end; ++j) largest = std::max(largest, std::fabs(values[j]));
        // Half a step, or somewhat more for values that the search clips.
        const float step = type == Element::kQ8 ? largest / 126.0F : largest / 4.0F;
        EXPECT_LE(std::fabs(back[i] - values[i]), step) << k << " values, at " << i;
      }
    }
  }
}

TEST(Quantize, TheSearchBeatsTheMaximum) {
  double q8 = 0.0, q8_plain = 0.0, q4 = 0.0, q4_plain = 0.0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto values = Random(32, seed);
    q8 += SquaredError(values, RoundTrip(values, Element::kQ8));
    q4 += SquaredError(values, RoundTrip(values, Element::kQ4));
    q8_plain += ErrorOfTheMaximum(values, 127.0F, -127.0F, 127.0F);
    q4_plain += ErrorOfTheMaximum(values, -8.0F, -8.0F, 7.0F);
  }
  EXPECT_LT(q8, q8_plain);
  EXPECT_LT(q4, 0.9 * q4_plain);
}

TEST(Quantize, WhatFitsIsExact) {
  std::vector<float> eights, fours;
  for (int i = 0; i < 32; ++i) {
    eights.push_back(0.25F * static_cast<float>(i * 8 - 127));
    fours.push_back(-0.5F * static_cast<float>(i % 16 - 8));
  }
  EXPECT_EQ(RoundTrip(eights, Element::kQ8), eights);
  EXPECT_EQ(RoundTrip(fours, Element::kQ4), fours);
  const std::vector<float> zeros(40, 0.0F);
  EXPECT_EQ(RoundTrip(zeros, Element::kQ8), zeros);
  EXPECT_EQ(RoundTrip(zeros, Element::kQ4), zeros);
}

TEST(Quantize, TinyValuesBecomeZerosAndHugeOnesAnInfiniteScale) {
  const std::vector<float> tiny(32, 1e-9F);
  EXPECT_EQ(RoundTrip(tiny, Element::kQ4), std::vector<float>(32, 0.0F));
  const std::vector<float> huge(32, 3e38F);
  std::vector<int8_t> q(32);
  EXPECT_TRUE(std::isinf(F16ToF32(QuantizeGroup(huge, -127, 127, q))));
}

TEST(F32ToF16, RoundsToTheNearestEvenOverAllOfF16) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const float value = F16ToF32(low), next = bits + 1 < 0x7C00 ? F16ToF32(low + 1) : 65536.0F;
    const float middle = value + (next - value) / 2;
    EXPECT_EQ(F32ToF16(value), low);
    EXPECT_EQ(F32ToF16(-value), low | 0x8000);
    EXPECT_EQ(F32ToF16(middle), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(F32ToF16(std::nextafter(middle, 0.0F)), bits);
    EXPECT_EQ(F32ToF16(std::nextafter(middle, INFINITY)), bits + 1);
  }
  EXPECT_EQ(F32ToF16(INFINITY), 0x7C00);
  EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(NAN))));
}

}  // namespace
}  // namespace lookback
