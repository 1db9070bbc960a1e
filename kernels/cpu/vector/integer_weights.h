// Quantized weights as integers: how a group is read and multiplied, and what products of few rows
// and of many have in common.
#pragma once

#include "kernels/cpu/vector/bytes.h"
#include "kernels/cpu/vector/simd.h"
#include "kernels/cpu/vector/tiles.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

// Outputs that are laid out, and groups whose scales are transposed, together.
constexpr int64_t kTile = 8;

inline __m256i Load32(const void* from) { return eight::LoadInts(from); }

/// How weights of one type are read and multiplied. A group's 32 bytes of Load meet as many of x in
/// AddProducts, which leaves them added by fours or by twos; Whole makes integers of 32 bits of
/// them, a lane's sum over the group.
template <Element kType>
struct Weights;

/// With dots, w · x as (w + 128) · x − 128 · x; else as |w| · (x with w's sign), of which no pair
/// leaves 16 bits: at most 2 · 128 · 127.
template <>
struct Weights<Element::kQ8> {
  static inline __m256i OfBytes(__m256i w) { return kHasDots ? FlipSign(w) : w; }
  static inline __m256i Load(const IntegerGemmArgs& args, int64_t row, int64_t group) {
    const auto* from = static_cast<const int8_t*>(args.w.data) + row * args.k;
    return OfBytes(Load32(from + group * kQuantGroup));
  }
  static inline __m256i LoadLast(const IntegerGemmArgs& args, int64_t row, int64_t group) {
    const int8_t* from = static_cast<const int8_t*>(args.w.data) + row * args.k;
    int8_t padded[kQuantGroup] = {};
    for (int64_t i = group * kQuantGroup; i < args.k; ++i) padded[i % kQuantGroup] = from[i];
    return OfBytes(Load32(padded));
  }
  template <typename Register>
  static inline Register AddProducts(Register sums, Register w, Register x) {
    if constexpr (kHasDots) return AddDots(sums, w, x);
    return Add32(sums, AddPairs(MultiplyPairs(Magnitude(w), WithSignOf(w, x))));
  }
  template <typename Register>
  static inline Register Add(Register a, Register b) {
    return Add32(a, b);
  }
  template <typename Register>
  static inline Register Whole(Register sums, int32_t sum_of_x) {
    return kHasDots ? Subtract32(sums, 128 * sum_of_x) : sums;
  }
  /// What Load gave, as integers with a sign.
  static inline __m256i Signed(__m256i w) { return OfBytes(w); }
};

/// sum (nibble − 8) · x = sum nibble · x − 8 · sum x
template <>
struct Weights<Element::kQ4> {
  static inline __m256i Load(const IntegerGemmArgs& args, int64_t row, int64_t group) {
    const auto* from = static_cast<const uint8_t*>(args.w.data) +
                       (row * QuantGroups(args.k) + group) * kQ4GroupBytes;
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
    return _mm256_and_si256(both, _mm256_set1_epi8(0xF));
  }
  /// The bytes behind a short group are there, and x has zeros for them.
  static inline __m256i LoadLast(const IntegerGemmArgs& args, int64_t row, int64_t group) {
    return Load(args, row, group);
  }
  /// Sixteen pairs stay within 16 bits: at most 16 · 15 · 127.
  template <typename Register>
  static inline Register AddProducts(Register sums, Register w, Register x) {
    if constexpr (kHasDots) return AddDots(sums, w, x);
    return Add16(sums, MultiplyPairs(w, x));
  }
  template <typename Register>
  static inline Register Add(Register a, Register b) {
    return kHasDots ? Add32(a, b) : Add16(a, b);
  }
  template <typename Register>
  static inline Register Whole(Register sums, int32_t sum_of_x) {
    return Subtract32(kHasDots ? sums : AddPairs(sums), 8 * sum_of_x);
  }
  static inline __m256i Signed(__m256i w) { return _mm256_sub_epi8(w, _mm256_set1_epi8(8)); }
};

/// Element j of register i changes places with element i of register j.
inline void Transpose(__m256i (&x)[kTile]) {
  __m256i pairs[kTile], fours[kTile];
  for (int64_t i = 0; i < kTile; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(x[i], x[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int64_t i = 0; i < kTile; i += 4) {
    for (int64_t j = 0; j < 2; ++j) {
      fours[i + 2 * j] = _mm256_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
      fours[i + 2 * j + 1] = _mm256_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
    }
  }
  for (int64_t i = 0; i < kTile / 2; ++i) {
    x[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
    x[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
  }
}

/// The outputs [out, out + count) of a product, count >= 1. The last one stands in for those that
/// are asked for beyond.
struct Outputs {
  int64_t out;
  int64_t count;
  int64_t row(int64_t o) const { return out + (o < count ? o : count - 1); }
};

/// to[g · stride + o]: the scale of group first + g of output begin + o, for kTile of each; zeros
/// for groups that are not there.
inline void TransposeScales(const IntegerGemmArgs& args, const Outputs& outputs, int64_t begin,
                            int64_t first, float* to, int64_t stride) {
  const int64_t groups = QuantGroups(args.k), count = Least(kTile, groups - first);
  __m256i scales[kTile];
  for (int64_t o = 0; o < kTile; ++o) {
    const uint16_t* from = args.w.scale + outputs.row(begin + o) * groups + first;
    uint16_t padded[kTile] = {};
    if (count < kTile) {
      for (int64_t g = 0; g < count; ++g) padded[g] = from[g];
      from = padded;
    }
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    scales[o] = _mm256_castps_si256(_mm256_cvtph_ps(halves));
  }
  Transpose(scales);
  for (int64_t g = 0; g < kTile; ++g) {
    _mm256_storeu_ps(to + g * stride, _mm256_castsi256_ps(scales[g]));
  }
}

/// y[row][o] = sums[o] + bias[o] of the outputs.
inline void StoreSums(const IntegerGemmArgs& args, int64_t row, const Outputs& outputs,
                      const float* sums) {
  float* y = args.y + row * args.y_stride + outputs.out;
  for (int64_t o = 0; o < outputs.count; ++o) {
    y[o] = sums[o] + (args.bias != nullptr ? args.bias[outputs.out + o] : 0.0F);
  }
}

}  // namespace
}  // namespace lookback::kernels::LOOKBACK_SET
