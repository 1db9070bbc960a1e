// Vectors of f32, as wide as the set that is being compiled has them: `eight` lanes in every set,
// `sixteen` with AVX-512. Everything has internal linkage: a copy that other code could be linked
// to would hold instructions that another CPU lacks.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace lookback::kernels::LOOKBACK_SET {

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

namespace eight {

using Floats = __m256;
using Ints = __m256i;
constexpr int64_t kLanes = 8;
// A tile of a product: 3 rows by 4 outputs, 12 sums; with 3 pieces of x and one of w they fill the
// 16 registers.
constexpr int64_t kTileRows = 3;

static inline Floats Zero() { return _mm256_setzero_ps(); }
static inline Floats All(float x) { return _mm256_set1_ps(x); }
static inline Floats Load(const float* from) { return _mm256_loadu_ps(from); }
/// bf16, widened.
static inline Floats Load(const uint16_t* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
static inline void Store(float* to, Floats x) { _mm256_storeu_ps(to, x); }
static inline Floats Fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
/// b where a is NaN.
static inline Floats Max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
static inline Floats Min(Floats a, Floats b) { return _mm256_min_ps(a, b); }

/// The first `count` lanes, 0 to 8.
static inline __m256i LaneMask(int64_t count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}
/// `count` < kLanes values, zeros behind them. Nothing else is read.
static inline Floats LoadTail(const float* from, int64_t count) {
  return _mm256_maskload_ps(from, LaneMask(count));
}
static inline Floats LoadTail(const uint16_t* from, int64_t count) {
  uint16_t padded[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
  return Load(padded);
}
static inline void StoreTail(float* to, int64_t count, Floats x) {
  _mm256_maskstore_ps(to, LaneMask(count), x);
}
/// Zeros behind the first `count` lanes.
static inline Floats Head(Floats x, int64_t count) {
  return _mm256_and_ps(x, _mm256_castsi256_ps(LaneMask(count)));
}

static inline float First(Floats x) { return _mm256_cvtss_f32(x); }
static inline __m128 LowHalf(Floats x) { return _mm256_castps256_ps128(x); }
static inline __m128 HighHalf(Floats x) { return _mm256_extractf128_ps(x, 1); }
static inline __m128 AddHalves(Floats x) { return _mm_add_ps(LowHalf(x), HighHalf(x)); }
/// ((0+4) + (2+6)) + ((1+5) + (3+7))
static inline float SumLanes(Floats x) {
  const __m128 four = AddHalves(x);
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static inline float MaxLanes(Floats x) {
  const __m128 four = _mm_max_ps(LowHalf(x), HighHalf(x));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
/// SumLanes of four registers at once: each result in the same order.
static inline __m128 SumLanesOfFour(Floats x, Floats y, Floats z, Floats w) {
  __m128 a = AddHalves(x), b = AddHalves(y), c = AddHalves(z), d = AddHalves(w);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  return _mm_add_ps(_mm_add_ps(a, c), _mm_add_ps(b, d));
}

static inline Floats Round(Floats x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// x · 2^n for an integer n that leaves it a normal number.
static inline Floats TimesPowerOfTwo(Floats x, Floats n) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
}
/// x, 0 where a < b.
static inline Floats ZeroWhereLess(Floats a, Floats b, Floats x) {
  return _mm256_andnot_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), x);
}

static inline Floats ToFloats(Ints x) { return _mm256_cvtepi32_ps(x); }
/// Bytes as integers of 32 bits.
static inline Ints Widen(const int8_t* from) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
static inline Ints Widen(const uint8_t* from) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
static inline Ints LowNibbles(Ints x) { return _mm256_and_si256(x, _mm256_set1_epi32(0xF)); }
static inline Ints HighNibbles(Ints x) { return _mm256_srli_epi32(x, 4); }

static inline Ints LoadInts(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

}  // namespace eight

#ifdef __AVX512F__

namespace sixteen {

using Floats = __m512;
using Ints = __m512i;
constexpr int64_t kLanes = 16;
// 24 sums, 6 pieces of x and one of w: 31 of 32 registers.
constexpr int64_t kTileRows = 6;

static inline Floats Zero() { return _mm512_setzero_ps(); }
static inline Floats All(float x) { return _mm512_set1_ps(x); }
static inline Floats Load(const float* from) { return _mm512_loadu_ps(from); }
static inline Floats WidenBF16(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
static inline Floats Load(const uint16_t* from) {
  return WidenBF16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
static inline void Store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
static inline Floats Fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
static inline Floats Max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
static inline Floats Min(Floats a, Floats b) { return _mm512_min_ps(a, b); }

static inline __mmask16 LaneMask(int64_t count) {
  return static_cast<__mmask16>((1U << count) - 1U);
}
static inline Floats LoadTail(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(LaneMask(count), from);
}
static inline Floats LoadTail(const uint16_t* from, int64_t count) {
  return WidenBF16(_mm256_maskz_loadu_epi16(LaneMask(count), from));
}
static inline void StoreTail(float* to, int64_t count, Floats x) {
  _mm512_mask_storeu_ps(to, LaneMask(count), x);
}
static inline Floats Head(Floats x, int64_t count) {
  return _mm512_maskz_mov_ps(LaneMask(count), x);
}

static inline float First(Floats x) { return _mm512_cvtss_f32(x); }
static inline eight::Floats LowHalf(Floats x) { return _mm512_castps512_ps256(x); }
static inline eight::Floats HighHalf(Floats x) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
}
static inline eight::Floats AddHalves(Floats x) { return LowHalf(x) + HighHalf(x); }
static inline float SumLanes(Floats x) { return eight::SumLanes(AddHalves(x)); }
static inline float MaxLanes(Floats x) {
  return eight::MaxLanes(eight::Max(LowHalf(x), HighHalf(x)));
}
static inline __m128 SumLanesOfFour(Floats x, Floats y, Floats z, Floats w) {
  return eight::SumLanesOfFour(AddHalves(x), AddHalves(y), AddHalves(z), AddHalves(w));
}

static inline Floats Round(Floats x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline Floats TimesPowerOfTwo(Floats x, Floats n) {
  const __m512i exponent = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), exponent));
}
static inline Floats ZeroWhereLess(Floats a, Floats b, Floats x) {
  return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), Zero());
}

static inline Floats ToFloats(Ints x) { return _mm512_cvtepi32_ps(x); }
static inline Ints Widen(const int8_t* from) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
static inline Ints Widen(const uint8_t* from) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
static inline Ints LowNibbles(Ints x) { return _mm512_and_si512(x, _mm512_set1_epi32(0xF)); }
static inline Ints HighNibbles(Ints x) { return _mm512_srli_epi32(x, 4); }

static inline Ints LoadInts(const void* from) { return _mm512_loadu_si512(from); }

}  // namespace sixteen

using namespace sixteen;

#else

using namespace eight;

#endif

namespace {

/// Keeps x in a register at this point, whatever the compiler thinks of what made it.
template <typename Register>
inline void Keep(Register& x) {
#ifdef __AVX512F__
  asm volatile("" : "+v"(x));
#else
  asm volatile("" : "+x"(x));
#endif
}
/// What x has is in memory at this point.
template <typename Array>
inline void KeepInMemory(Array& x) {
  asm volatile("" : "+m"(x));
}

}  // namespace

/// sum_i a[i] · b[i], in an order that depends on n alone.
static inline float Dot(const float* a, const float* b, int64_t n) {
  Floats sums[4] = {Zero(), Zero(), Zero(), Zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int64_t j = 0; j < 4; ++j) {
      sums[j] = Fma(Load(a + i + j * kLanes), Load(b + i + j * kLanes), sums[j]);
    }
  }
  for (; i + kLanes <= n; i += kLanes) sums[0] = Fma(Load(a + i), Load(b + i), sums[0]);
  if (i < n) sums[1] = Fma(LoadTail(a + i, n - i), LoadTail(b + i, n - i), sums[1]);
  return SumLanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// exp(x) to 2 ulp; 0 below -87.3, the largest power of two's neighbourhood above 88; NaN stays
/// NaN. x = n · ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts (Cody and Waite); the polynomial
/// is that of the Cephes library's expf.
static inline Floats Exp(Floats x) {
  const Floats lowest = All(-87.3F);
  // A comparison with NaN gives the second operand.
  const Floats clamped = Max(lowest, Min(All(88.0F), x));
  const Floats n = Round(clamped * All(1.44269504F));
  Floats r = Fma(n, All(-0.693359375F), clamped);
  r = Fma(n, All(2.12194440e-4F), r);
  Floats p = All(1.9875691500e-4F);
  p = Fma(p, r, All(1.3981999507e-3F));
  p = Fma(p, r, All(8.3334519073e-3F));
  p = Fma(p, r, All(4.1665795894e-2F));
  p = Fma(p, r, All(1.6666665459e-1F));
  p = Fma(p, r, All(5.0000001201e-1F));
  p = Fma(r * r, p, r + All(1.0F));
  return ZeroWhereLess(x, lowest, TimesPowerOfTwo(p, n));
}

/// exp(x) in the arithmetic of Exp.
static inline float ExpOne(float x) { return First(Exp(All(x))); }

}  // namespace lookback::kernels::LOOKBACK_SET
