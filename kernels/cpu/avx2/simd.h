// What the AVX2 + FMA kernels share. Everything has internal linkage: a copy that other code could
// be linked to would hold instructions that another CPU lacks.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace lookback::kernels::avx2 {

constexpr int64_t kLanes = 8;

static inline __m256 Load(const float* from) { return _mm256_loadu_ps(from); }
/// Eight bf16, widened.
static inline __m256 Load(const uint16_t* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/// The first `count` lanes, 0 to 8.
static inline __m256i LaneMask(int64_t count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}

/// `count` < 8 values, zeros behind them. Nothing else is read.
static inline __m256 LoadTail(const float* from, int64_t count) {
  return _mm256_maskload_ps(from, LaneMask(count));
}
static inline __m256 LoadTail(const uint16_t* from, int64_t count) {
  uint16_t padded[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
  return Load(padded);
}

static inline void StoreTail(float* to, int64_t count, __m256 values) {
  _mm256_maskstore_ps(to, LaneMask(count), values);
}

namespace {

/// body(i) for i = 0 … N − 1, as constants: an array of sums that a loop goes over may be kept in
/// memory.
template <int64_t I>
struct Constant {
  constexpr operator int64_t() const { return I; }
};
template <int64_t N, typename Body>
__attribute__((always_inline)) inline void Unrolled(const Body& body) {
  if constexpr (N > 0) {
    Unrolled<N - 1>(body);
    body(Constant<N - 1>{});
  }
}

}  // namespace

/// ((0+4) + (2+6)) + ((1+5) + (3+7))
static inline float SumLanes(__m256 x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float MaxLanes(__m256 x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/// sum_i a[i] · b[i], in an order that depends on n alone.
static inline float Dot(const float* a, const float* b, int64_t n) {
  __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                    _mm256_setzero_ps()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int64_t j = 0; j < 4; ++j) {
      sums[j] = _mm256_fmadd_ps(Load(a + i + j * kLanes), Load(b + i + j * kLanes), sums[j]);
    }
  }
  for (; i + kLanes <= n; i += kLanes) sums[0] = _mm256_fmadd_ps(Load(a + i), Load(b + i), sums[0]);
  if (i < n) sums[1] = _mm256_fmadd_ps(LoadTail(a + i, n - i), LoadTail(b + i, n - i), sums[1]);
  return SumLanes(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
}

/// exp(x) to 2 ulp; 0 below -87.3, the largest power of two's neighbourhood above 88; NaN stays
/// NaN. x = n · ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts (Cody and Waite); the polynomial
/// is that of the Cephes library's expf.
static inline __m256 Exp(__m256 x) {
  const __m256 lowest = _mm256_set1_ps(-87.3F);
  const __m256 is_zero = _mm256_cmp_ps(x, lowest, _CMP_LT_OQ);
  // A comparison with NaN gives the second operand.
  x = _mm256_max_ps(lowest, _mm256_min_ps(_mm256_set1_ps(88.0F), x));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4F);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1F));
  const __m256 one_and_r = _mm256_add_ps(r, _mm256_set1_ps(1.0F));
  p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, one_and_r);
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
  return _mm256_andnot_ps(is_zero, p);
}

/// exp(x) in the arithmetic of Exp.
static inline float ExpOne(float x) { return _mm256_cvtss_f32(Exp(_mm256_set1_ps(x))); }

}  // namespace lookback::kernels::avx2
