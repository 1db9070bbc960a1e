// Registers of bf16, which AVX-512-BF16 multiplies by pairs.
#pragma once

#include "kernels/cpu/vector/simd.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

using Pairs = __m512bh;
constexpr int64_t kPairValues = 2 * kLanes;

inline Pairs LoadPairs(const uint16_t* from) {
  return reinterpret_cast<Pairs>(_mm512_loadu_si512(from));
}
/// `count` < kPairValues values, zeros behind them. Nothing else is read.
inline Pairs LoadPairsTail(const uint16_t* from, int64_t count) {
  return reinterpret_cast<Pairs>(
      _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << count) - 1U), from));
}
/// sums + the products of two values each, in a lane of f32: the second's added first, each rounded
/// to nearest. Subnormal numbers count as zeros.
inline Floats AddDots(Floats sums, Pairs a, Pairs b) { return _mm512_dpbf16_ps(sums, a, b); }

/// To nearest, ties to even; NaN becomes a quiet NaN. Not _mm512_cvtneps_pbh, for which subnormal
/// numbers are zeros.
inline __m256i RoundToBF16(Floats x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7FFF));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(
      _mm512_mask_or_epi32(_mm512_srli_epi32(up, 16), is_nan, high, _mm512_set1_epi32(0x40)));
}

}  // namespace
}  // namespace lookback::kernels::LOOKBACK_SET
