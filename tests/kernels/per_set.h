// What the tests of the kernels share: the sets of this machine, random values and matrices.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace lookback::kernels {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Relative rounding of one f32 operation.
inline constexpr double kUnit = 0x1p-24;

inline std::vector<float> Random(int64_t count, uint32_t seed, float scale = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

inline uint16_t ToBF16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}
inline float FromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// Of a positive f16.
inline float FromF16(uint16_t bits) {
  const int e = bits >> 10, m = bits & 1023;
  return e == 0 ? std::ldexp(static_cast<float>(m), -24)
                : std::ldexp(1.0F + static_cast<float>(m) / 1024, e - 15);
}

/// !(error <= tolerance), so that NaN fails.
#define EXPECT_WITHIN(actual, expected, tolerance)                               \
  EXPECT_TRUE(std::abs(static_cast<double>(actual) - (expected)) <= (tolerance)) \
      << "got " << (actual) << ", expected " << (expected) << " within " << (tolerance)

/// Every test runs with every set that this machine can run.
class PerSet : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  static const KernelTable& set() { return *GetParam(); }
};

inline std::vector<const KernelTable*> AllSets() {
  std::vector<const KernelTable*> sets;
  for (const KernelTable* const* set = UsableKernels(); *set != nullptr; ++set) {
    sets.push_back(*set);
  }
  return sets;
}

#define FOR_EVERY_SET(suite)                                            \
  class suite : public PerSet {};                                       \
  INSTANTIATE_TEST_SUITE_P(Sets, suite, ::testing::ValuesIn(AllSets()), \
                           [](const auto& set) { return std::string(set.param->name); })
/// A random matrix of any type, and what its elements are worth.
struct Weights {
  Weights(Element type, int64_t rows, int64_t k, uint32_t seed) : type(type) {
    values = Random(rows * k, seed);
    if (type == Element::kBF16) {
      for (float& value : values) {
        narrow.push_back(ToBF16(value));
        value = FromBF16(narrow.back());
      }
    }
    if (!IsQuantized(type)) return;
    std::mt19937 random(seed);
    bytes.resize(static_cast<size_t>(rows * RowBytes(type, k)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t group = 0; group < QuantGroups(k); ++group) {
        // f16 of 2^-e · (1 + m/1024), and one subnormal: 3 · 2^-24.
        const int e = static_cast<int>(random() % 8), m = static_cast<int>(random() % 1024);
        const bool tiny = group == 1;
        scales.push_back(static_cast<uint16_t>(tiny ? 3 : ((15 - e) << 10) | m));
        const float scale = FromF16(scales.back());
        for (int64_t i = group * kQuantGroup; i < std::min(k, (group + 1) * kQuantGroup); ++i) {
          values[static_cast<size_t>(r * k + i)] = static_cast<float>(Integer(r, k, i)) * scale;
        }
      }
    }
  }

  int Integer(int64_t row, int64_t k, int64_t i) const {
    if (type == Element::kQ8) {
      return static_cast<int8_t>(bytes[static_cast<size_t>(row * k + i)]);
    }
    const int64_t group = row * QuantGroups(k) + i / kQuantGroup, in_group = i % kQuantGroup;
    const uint8_t byte = bytes[static_cast<size_t>(group * kQ4GroupBytes + in_group % 16)];
    return (in_group < 16 ? byte & 0xF : byte >> 4) - 8;
  }

  WeightView view() const {
    if (type == Element::kF32) return {values.data(), type};
    if (type == Element::kBF16) return {narrow.data(), type};
    return {bytes.data(), type, scales.data()};
  }

  Element type;
  std::vector<float> values;  ///< [rows][k]
  std::vector<uint16_t> narrow;
  std::vector<uint8_t> bytes;
  std::vector<uint16_t> scales;
};

inline constexpr Element kWeightTypes[] = {Element::kF32, Element::kBF16, Element::kQ8,
                                           Element::kQ4};

}  // namespace lookback::kernels
