// Products of every type of weights, of f32 and of quantized activations, against f64.
#include "tests/kernels/per_set.h"

namespace lookback::kernels {
namespace {

FOR_EVERY_SET(Gemm);
FOR_EVERY_SET(BF16Gemm);
FOR_EVERY_SET(IntegerGemm);

TEST_P(Gemm, MatchesF64ForOddSizesAndEveryType) {
  for (const Element type : kWeightTypes) {
    for (const int64_t k : {1, 7, 8, 15, 16, 17, 33, 64, 75, 192}) {
      for (const int64_t rows : {1, 2, 3, 5, 8}) {
        const int64_t out = 13;
        const auto x = Random(rows * (k + 3), 1);
        const Weights w(type, out, k, 2);
        const auto bias = Random(out, 3);
        std::vector<float> y(static_cast<size_t>(rows * out), kNan);
        set().gemm({x.data(), k + 3, w.view(), bias.data(), y.data(), out, rows, k, 0, out});
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t o = 0; o < out; ++o) {
            double sum = bias[static_cast<size_t>(o)], size = std::abs(sum);
            for (int64_t i = 0; i < k; ++i) {
              const double term = static_cast<double>(x[static_cast<size_t>(r * (k + 3) + i)]) *
                                  w.values[static_cast<size_t>(o * k + i)];
              sum += term;
              size += std::abs(term);
            }
            // A sum of n products: at most n + 1 roundings of partial sums no larger than `size`,
            // and one of each group's product with its scale.
            EXPECT_WITHIN(y[static_cast<size_t>(r * out + o)], sum,
                          static_cast<double>(k + 3) * kUnit * size);
          }
        }
      }
    }
  }
}

TEST_P(Gemm, ASplitOfOutputsOrRowsChangesNoBit) {
  for (const Element type : kWeightTypes) {
    for (const int64_t rows : {5, 600}) {  // more than one block of rows
      const int64_t k = rows == 5 ? 37 : 1024, out = 11;
      const auto x = Random(rows * k, 1);
      const Weights w(type, out, k, 2);
      std::vector<float> whole(static_cast<size_t>(rows * out), kNan), split = whole;
      set().gemm({x.data(), k, w.view(), nullptr, whole.data(), out, rows, k, 0, out});
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < out; ++o) {
          set().gemm({x.data() + r * k, k, w.view(), nullptr, split.data() + r * out, out, 1, k, o,
                      o + 1});
        }
      }
      EXPECT_EQ(whole, split);
    }
  }
}

/// x [rows][x_stride] rounded, as the set lays rows out.
std::vector<uint16_t> Rounded(const KernelTable& set, const std::vector<float>& x, int64_t x_stride,
                              int64_t rows, int64_t k) {
  std::vector<uint16_t> rounded(static_cast<size_t>(RoundedValues(rows, k)), 0x7FFF);
  for (int64_t begin = 0; begin < rows; begin += kRoundedRows) {  // the threads' least share
    const int64_t end = std::min(begin + kRoundedRows, rows);
    set.round_rows({x.data(), x_stride, rounded.data(), k, rows, begin, end});
  }
  return rounded;
}

TEST_P(BF16Gemm, RoundsToTheNearestAndTiesToEven) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const struct {
    float value;
    uint16_t bits;
  } cases[] = {{0.0F, 0},
               {-0.0F, 0x8000},
               {1.0F, 0x3F80},
               {0x1.01p0F, 0x3F80},      // half way, down to the even one
               {0x1.010002p0F, 0x3F81},  // a bit more
               {0x1.03p0F, 0x3F82},      // half way, up to the even one
               {-0x1.03p0F, 0xBF82},
               {0x1.fep127F, 0x7F7F},                        // the largest
               {std::numeric_limits<float>::max(), 0x7F80},  // beyond it
               {kInf, 0x7F80},
               {-kInf, 0xFF80},
               {0x1p-127F, 0x0040},  // subnormal, and stays so
               {std::numeric_limits<float>::denorm_min(), 0}};
  std::vector<float> x;
  for (const auto& one : cases) x.push_back(one.value);
  const auto count = static_cast<int64_t>(x.size());
  const auto rounded = Rounded(set(), x, count, 1, count);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(rounded[i], cases[i].bits) << x[i];
  // All NaN, whatever its bits: none may become infinity.
  for (const uint32_t bits : {0x7F800001U, 0xFF800001U, 0x7FFFFFFFU, 0x7FC00000U}) {
    const uint16_t nan = Rounded(set(), {std::bit_cast<float>(bits)}, 1, 1, 1)[0];
    EXPECT_TRUE(std::isnan(FromBF16(nan))) << bits;
  }
  // The same bits in every set, in whole registers and behind them.
  for (const int64_t k : {1, 15, 16, 17, 31, 33, 75, 192}) {
    const auto many = Random(k, 5, 1000.0F);
    const auto bits = Rounded(set(), many, k, 1, k),
               expected = Rounded(ReferenceKernels(), many, k, 1, k);
    EXPECT_TRUE(std::equal(bits.begin(), bits.begin() + k, expected.begin()));
  }
}

TEST_P(BF16Gemm, MatchesF64ForOddSizes) {
  for (const int64_t k : {1, 2, 15, 16, 31, 32, 33, 63, 64, 75, 192}) {
    for (const int64_t rows : {1, 2, 3, 5, 6, 7, 8, 13, 16, 17, 32, 45}) {
      const int64_t out = rows % 2 == 0 ? 13 : 53;
      const Weights w(Element::kBF16, out, k, 2);
      const auto values = Random(rows * (k + 3), 1);
      const auto x = Rounded(set(), values, k + 3, rows, k);
      const auto in_order = Rounded(ReferenceKernels(), values, k + 3, rows, k);
      const auto bias = Random(out, 3);
      std::vector<float> y(static_cast<size_t>(rows * out), kNan);
      set().bf16_gemm({x.data(), w.view(), bias.data(), y.data(), out, rows, k, 0, out});
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < out; ++o) {
          double sum = bias[static_cast<size_t>(o)], size = std::abs(sum);
          for (int64_t i = 0; i < k; ++i) {
            const double value = FromBF16(in_order[static_cast<size_t>(r * k + i)]);
            const double term = value * w.values[static_cast<size_t>(o * k + i)];
            sum += term;
            size += std::abs(term);
          }
          // A product of bf16 is exact in f32 but for what is subnormal; then as many roundings of
          // partial sums as terms.
          EXPECT_WITHIN(y[static_cast<size_t>(r * out + o)], sum,
                        static_cast<double>(k + 3) * (kUnit * size + 0x1p-126));
        }
      }
    }
  }
}

TEST_P(BF16Gemm, ASplitOfOutputsOrRowsChangesNoBit) {
  for (const int64_t rows : {5, 600}) {  // more than one block of rows
    const int64_t k = rows == 5 ? 37 : 2048, out = rows == 5 ? 51 : 11;
    const Weights w(Element::kBF16, out, k, 2);
    const auto values = Random(rows * k, 1);
    const auto x = Rounded(set(), values, k, rows, k);
    std::vector<float> whole(static_cast<size_t>(rows * out), kNan), split = whole;
    set().bf16_gemm({x.data(), w.view(), nullptr, whole.data(), out, rows, k, 0, out});
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float> one(values.begin() + r * k, values.begin() + (r + 1) * k);
      const auto row = Rounded(set(), one, k, 1, k);
      for (int64_t o = 0; o < out; ++o) {
        set().bf16_gemm(
            {row.data(), w.view(), nullptr, split.data() + r * out, out, 1, k, o, o + 1});
      }
    }
    EXPECT_EQ(whole, split);
  }
}

TEST_P(BF16Gemm, WhatIsNotFiniteReachesTheOutput) {
  const int64_t k = 40;
  const Weights w(Element::kBF16, 1, k, 3);
  for (const float value : {kNan, std::numeric_limits<float>::infinity()}) {
    for (const size_t at : {0, 39}) {
      auto x = Random(k, 1);
      x[at] = value;
      float y = 0.0F;
      set().bf16_gemm({Rounded(set(), x, k, 1, k).data(), w.view(), nullptr, &y, 1, 1, k, 0, 1});
      EXPECT_FALSE(std::isfinite(y));
    }
  }
}

/// Rows as integers, in arrays that are exactly as long as they must be.
struct Integers {
  Integers(const KernelTable& set, const std::vector<float>& x, int64_t x_stride, int64_t rows,
           int64_t k)
      : groups(QuantGroups(k)),
        q(static_cast<size_t>(rows * groups * kQuantGroup), 99),
        scale(static_cast<size_t>(rows * groups), kNan),
        sum(static_cast<size_t>(rows * groups), 99) {
    set.quantize_rows({x.data(), x_stride, view(), k, 0, rows});
  }
  QuantizedRows view() { return {q.data(), scale.data(), sum.data()}; }
  QuantizedRows Row(int64_t row) {
    return {q.data() + row * groups * kQuantGroup, scale.data() + row * groups,
            sum.data() + row * groups};
  }

  int64_t groups;
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum;
};

constexpr Element kIntegerTypes[] = {Element::kQ8, Element::kQ4};

TEST_P(IntegerGemm, RoundsToTheNearestOf255StepsOfAGroup) {
  for (const int64_t k : {1, 8, 31, 32, 33, 75, 192}) {
    const int64_t rows = 3, stride = k + 3;
    auto x = Random(rows * stride, 5, 1000.0F);
    const Integers whole(set(), x, stride, rows, k);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t group = 0; group < whole.groups; ++group) {
        const auto at = static_cast<size_t>(r * whole.groups + group);
        int32_t sum = 0;
        int most = 0;
        for (int64_t i = 0; i < kQuantGroup; ++i) {
          const int8_t q = whole.q[at * kQuantGroup + static_cast<size_t>(i)];
          const int64_t column = group * kQuantGroup + i;
          const float value = column < k ? x[static_cast<size_t>(r * stride + column)] : 0.0F;
          // Half a step, and what the scale and its reciprocal are rounded by.
          EXPECT_WITHIN(static_cast<float>(q) * whole.scale[at], static_cast<double>(value),
                        whole.scale[at] * (0.5 + 127 * 8 * kUnit));
          sum += q;
          most = std::max(most, std::abs(int{q}));
        }
        EXPECT_EQ(whole.sum[at], sum);
        EXPECT_EQ(most, 127);
      }
    }
    // The same bits in every set.
    const Integers twin(ReferenceKernels(), x, stride, rows, k);
    EXPECT_EQ(whole.q, twin.q);
    EXPECT_EQ(whole.scale, twin.scale);
    EXPECT_EQ(whole.sum, twin.sum);
  }
}

TEST_P(IntegerGemm, ZerosTiesAndWhatIsNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const int64_t k = 40;
  std::vector<float> x(static_cast<size_t>(7 * k), 0.0F);
  const auto row = [&](int64_t r) { return x.data() + r * k; };
  row(1)[3] = 1e-38F;                                       // its reciprocal is not finite
  row(2)[0] = 127.0F, row(2)[1] = 0.5F, row(2)[2] = -1.5F;  // ties go to even
  row(3)[5] = kNan;
  row(4)[31] = -kInf;
  row(5)[0] = std::numeric_limits<float>::max();
  row(6)[39] = kNan, row(6)[0] = 1.0F;  // in the short group
  const Integers rows(set(), x, k, 7, k);
  for (size_t at : {0, 1, 2, 3, 5, 7, 9, 11}) EXPECT_EQ(rows.scale[at], 0.0F) << at;
  for (size_t at : {6, 8, 13}) EXPECT_TRUE(std::isnan(rows.scale[at])) << at;
  EXPECT_EQ(rows.scale[10], std::numeric_limits<float>::max() / 127.0F);
  EXPECT_EQ(rows.scale[12], 1.0F / 127.0F);
  for (size_t i = 0; i < rows.q.size(); ++i) {
    const int expected = i == 4 * 32 ? 127 : i == 4 * 32 + 1 ? 0 : i == 4 * 32 + 2 ? -2 : -1;
    if (i == 10 * 32 || i == 12 * 32) {
      EXPECT_EQ(rows.q[i], 127);
    } else {
      EXPECT_EQ(rows.q[i], expected == -1 ? 0 : expected) << i;
    }
  }
  // What is not finite reaches the output.
  const Weights w(Element::kQ8, 1, k, 3);
  float y = 0.0F;
  set().integer_gemm({Integers(set(), {x.begin() + 3 * k, x.begin() + 4 * k}, k, 1, k).view(),
                      w.view(), nullptr, &y, 1, 1, k, 0, 1});
  EXPECT_TRUE(std::isnan(y));
}

TEST_P(IntegerGemm, MatchesF64ForOddSizesAndBothTypes) {
  for (const Element type : kIntegerTypes) {
    for (const int64_t k : {1, 7, 31, 32, 33, 64, 75, 192, 256, 288, 600, 1100}) {
      for (const int64_t rows : {1, 2, 3, 5, 6, 7, 13, 37}) {
        const int64_t out = 13;
        Weights w(type, out, k, 2);
        auto x = Random(rows * k, 1);
        // The most that a group's products may reach: -128 or 15, times 127.
        std::fill_n(w.bytes.begin(), std::min(k, RowBytes(type, kQuantGroup)),
                    type == Element::kQ8 ? uint8_t{0x80} : uint8_t{0xFF});
        std::fill_n(x.begin(), std::min(k, kQuantGroup), 10.0F);
        Integers integers(set(), x, k, rows, k);
        const auto bias = Random(out, 3);
        std::vector<float> y(static_cast<size_t>(rows * out), kNan);
        set().integer_gemm(
            {integers.view(), w.view(), bias.data(), y.data(), out, rows, k, 0, out});
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t o = 0; o < out; ++o) {
            double sum = bias[static_cast<size_t>(o)], size = std::abs(sum);
            for (int64_t i = 0; i < k; ++i) {
              const int64_t group = i / kQuantGroup;
              const auto at = static_cast<size_t>(r * integers.groups + group);
              const double x_value =
                  integers.q[at * kQuantGroup + static_cast<size_t>(i % kQuantGroup)] *
                  static_cast<double>(integers.scale[at]);
              const double scale =
                  FromF16(w.scales[static_cast<size_t>(o * integers.groups + group)]);
              const double term = x_value * w.Integer(o, k, i) * scale;
              sum += term;
              size += std::abs(term);
            }
            // Exact inside a group; beyond it one rounding of the product of scales, and at most
            // two of every sum so far, of which there are as many as groups and the bias.
            EXPECT_WITHIN(y[static_cast<size_t>(r * out + o)], sum,
                          static_cast<double>(integers.groups + 2) * 2 * kUnit * size);
          }
        }
      }
    }
  }
}

TEST_P(IntegerGemm, ASplitOfOutputsOrRowsChangesNoBit) {
  for (const Element type : kIntegerTypes) {
    for (const int64_t rows : {5, 600}) {  // more than one block of rows
      const int64_t k = rows == 5 ? 37 : 1024, out = 11;
      const auto x = Random(rows * k, 1);
      const Weights w(type, out, k, 2);
      Integers integers(set(), x, k, rows, k);
      std::vector<float> whole(static_cast<size_t>(rows * out), kNan), split = whole;
      set().integer_gemm({integers.view(), w.view(), nullptr, whole.data(), out, rows, k, 0, out});
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < out; ++o) {
          set().integer_gemm(
              {integers.Row(r), w.view(), nullptr, split.data() + r * out, out, 1, k, o, o + 1});
        }
      }
      EXPECT_EQ(whole, split);
    }
  }
}

}  // namespace
}  // namespace lookback::kernels
