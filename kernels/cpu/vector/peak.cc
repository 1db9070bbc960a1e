#include "kernels/cpu/vector/set.h"
#include "kernels/cpu/vector/simd.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

// Enough sums that no instruction waits for the one before it, few enough for the registers.
constexpr int64_t kSums = 12;
constexpr double kOperations = 2.0 * kSums * kLanes;

inline Ints OnesInBytes() {
#ifdef __AVX512F__
  return _mm512_set1_epi8(1);
#else
  return _mm256_set1_epi8(1);
#endif
}

/// x + four products of bytes.
inline Ints Dots(Ints x, Ints ones) {
#if defined(__AVX512VNNI__)
  return _mm512_dpbusd_epi32(x, ones, ones);
#elif defined(__AVXVNNI__)
  return _mm256_dpbusd_avx_epi32(x, ones, ones);
#elif defined(__AVX512F__)
  const Ints pairs = _mm512_maddubs_epi16(x, ones);
  return _mm512_add_epi32(x, _mm512_madd_epi16(pairs, ones));
#else
  const Ints pairs = _mm256_maddubs_epi16(x, ones);
  return _mm256_add_epi32(x, _mm256_madd_epi16(pairs, ones));
#endif
}

template <typename Register>
inline void Keep(Register& x) {
#ifdef __AVX512F__
  asm volatile("" : "+v"(x));
#else
  asm volatile("" : "+x"(x));
#endif
}

}  // namespace

double Peak(Element type, int64_t rounds) {
  if (type == Element::kQ8) {
    const Ints ones = OnesInBytes();
    Ints sums[kSums];
    Unrolled<kSums>([&](auto i) { sums[i] = ones; });
    for (int64_t round = 0; round < rounds; ++round) {
      Unrolled<kSums>([&](auto i) __attribute__((always_inline)) {
        sums[i] = Dots(sums[i], ones);
        Keep(sums[i]);
      });
    }
    return 4 * kOperations * static_cast<double>(rounds);
  }
  const Floats half = All(0.5F);
  Floats sums[kSums];
  Unrolled<kSums>([&](auto i) { sums[i] = half; });
  for (int64_t round = 0; round < rounds; ++round) {
    Unrolled<kSums>([&](auto i) __attribute__((always_inline)) {
      sums[i] = Fma(sums[i], half, half);
      Keep(sums[i]);
    });
  }
  return kOperations * static_cast<double>(rounds);
}

}  // namespace lookback::kernels::LOOKBACK_SET
