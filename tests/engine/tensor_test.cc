#include "engine/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace lookback {
namespace {

TEST(DType, NamesAndSizesAreThoseOfSafetensors) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                            DType::kI32, DType::kI16, DType::kI8, DType::kU8, DType::kBool}) {
    EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
  }
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2);
  EXPECT_EQ(DTypeBytes(DType::kF64), 8);
  EXPECT_FALSE(ParseDType("F8_E4M3").has_value());
  EXPECT_FALSE(ParseDType("f32").has_value());
}

TEST(CheckedElements, RefusesNegativeSizesAndOverflowEvenBesideAZero) {
  const auto count = [](std::vector<int64_t> shape) { return CheckedElements(shape); };
  EXPECT_EQ(count({}), 1);
  EXPECT_EQ(count({3, 4}), 12);
  EXPECT_EQ(count({3, 0}), 0);
  EXPECT_FALSE(count({-1}).has_value());
  EXPECT_FALSE(count({int64_t{1} << 32, int64_t{1} << 32}).has_value());
  EXPECT_FALSE(count({int64_t{1} << 62, int64_t{1} << 62, 0}).has_value());
  EXPECT_FALSE(count({0, -1}).has_value());
}

TEST(BF16, RoundsToNearestEven) {
  const auto round = [](uint32_t bits) { return F32ToBF16(std::bit_cast<float>(bits)); };
  EXPECT_EQ(round(0x3F800000), 0x3F80);
  EXPECT_EQ(round(0x3F808000), 0x3F80);  // a tie, down to even
  EXPECT_EQ(round(0x3F818000), 0x3F82);  // a tie, up to even
  EXPECT_EQ(round(0x3F808001), 0x3F81);
  EXPECT_EQ(round(0x80000000), 0x8000);
  EXPECT_EQ(round(0x7F7FFFFF), 0x7F80);  // the largest float rounds to infinity
  EXPECT_TRUE(std::isnan(BF16ToF32(round(0x7F800001))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = BF16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(F32ToBF16(value), bits);
  }
}

TEST(F16, WidensEveryValueExactly) {
  EXPECT_EQ(F16ToF32(0x3C00), 1.0F);
  EXPECT_EQ(F16ToF32(0xC000), -2.0F);
  EXPECT_EQ(F16ToF32(0x7BFF), 65504.0F);
  EXPECT_EQ(F16ToF32(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(F16ToF32(0x83FF), -1023.0F * std::ldexp(1.0F, -24));
  EXPECT_EQ(F16ToF32(0x7C00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(F16ToF32(0x7E00)));
  EXPECT_TRUE(std::signbit(F16ToF32(0x8000)));
}

TEST(CopyAsF32, ReadsMisalignedTensorsAndRefusesIntegers) {
  alignas(8) std::byte bytes[9] = {};
  const float value = 1.5F;
  const uint16_t half = 0x3E00;
  std::memcpy(bytes + 1, &value, sizeof value);
  std::memcpy(bytes + 5, &half, sizeof half);
  float out = NAN;
  ASSERT_TRUE(CopyAsF32({DType::kF32, {1}, std::span(bytes).subspan(1, 4)}, {&out, 1}).ok());
  EXPECT_EQ(out, 1.5F);
  ASSERT_TRUE(CopyAsF32({DType::kF16, {1}, std::span(bytes).subspan(5, 2)}, {&out, 1}).ok());
  EXPECT_EQ(out, 1.5F);
  const Status refused = CopyAsF32({DType::kI32, {1}, std::span(bytes).first(4)}, {&out, 1});
  EXPECT_EQ(refused.message(), "tensor dtype: got I32, expected F32, F16 or BF16");
}

TEST(Buffer, IsAlignedZeroedAndMovable) {
  Buffer buffer(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0U);
  for (int64_t i = 0; i < buffer.bytes(); ++i) EXPECT_EQ(buffer.data()[i], std::byte{0});
  Buffer other = std::move(buffer);
  EXPECT_EQ(other.bytes(), 100);
  other = Buffer();
  EXPECT_EQ(other.data(), nullptr);
  EXPECT_EQ(Buffer(0).data(), nullptr);
}

}  // namespace
}  // namespace lookback
