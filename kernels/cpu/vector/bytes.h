// Products of bytes: of registers of bytes, pairs of them in lanes of 16 bits, and fours in lanes
// of 32, what AVX2, AVX-512 and their VNNI have, under one name.
#pragma once

#include "kernels/cpu/vector/simd.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

inline __m256i Add16(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
inline __m256i Add32(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
inline __m256i Subtract32(__m256i a, int32_t b) {
  return _mm256_sub_epi32(a, _mm256_set1_epi32(b));
}
/// u0 · s0 + u1 · s1 of bytes without and with a sign, in 16 bits, which must have room for it.
inline __m256i MultiplyPairs(__m256i u, __m256i s) { return _mm256_maddubs_epi16(u, s); }
inline __m256i AddPairs(__m256i x) { return _mm256_madd_epi16(x, _mm256_set1_epi16(1)); }
inline __m256i Magnitude(__m256i x) { return _mm256_abs_epi8(x); }
/// x, or −x where w is less than 0; anything where w is 0.
inline __m256i WithSignOf(__m256i w, __m256i x) { return _mm256_sign_epi8(x, w); }
inline __m256i FlipSign(__m256i x) { return _mm256_xor_si256(x, _mm256_set1_epi8(-128)); }

#ifdef __AVX512F__
inline __m512i Add16(__m512i a, __m512i b) { return _mm512_add_epi16(a, b); }
inline __m512i Add32(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
inline __m512i Subtract32(__m512i a, int32_t b) {
  return _mm512_sub_epi32(a, _mm512_set1_epi32(b));
}
inline __m512i MultiplyPairs(__m512i u, __m512i s) { return _mm512_maddubs_epi16(u, s); }
inline __m512i AddPairs(__m512i x) { return _mm512_madd_epi16(x, _mm512_set1_epi16(1)); }
inline __m512i Magnitude(__m512i x) { return _mm512_abs_epi8(x); }
inline __m512i WithSignOf(__m512i w, __m512i x) {
  return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
}
#endif

// sums + the products of four bytes without and with a sign each, in lanes of 32 bits.
#if defined(__AVX512VNNI__)
constexpr bool kHasDots = true;
inline __m256i AddDots(__m256i sums, __m256i u, __m256i s) {
  return _mm256_dpbusd_epi32(sums, u, s);
}
inline __m512i AddDots(__m512i sums, __m512i u, __m512i s) {
  return _mm512_dpbusd_epi32(sums, u, s);
}
#elif defined(__AVXVNNI__)
constexpr bool kHasDots = true;
inline __m256i AddDots(__m256i sums, __m256i u, __m256i s) {
  return _mm256_dpbusd_avx_epi32(sums, u, s);
}
#else
constexpr bool kHasDots = false;
template <typename Register>
inline Register AddDots(Register sums, Register /*u*/, Register /*s*/) {
  return sums;  // not called
}
#endif

#ifdef __AMX_INT8__
constexpr bool kHasTiles = true;
#else
constexpr bool kHasTiles = false;
#endif

/// Four bytes in every lane.
inline Ints AllLanes(const int8_t* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof four);
#ifdef __AVX512F__
  return _mm512_set1_epi32(four);
#else
  return _mm256_set1_epi32(four);
#endif
}

}  // namespace
}  // namespace lookback::kernels::LOOKBACK_SET
