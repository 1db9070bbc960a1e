// Integer products of a few rows: a group's products are summed across a register, those of several
// outputs together, and the weights go through once.
#pragma once

#include "kernels/cpu/vector/integer_weights.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

#ifdef __AVX512F__

// Outputs of a tile, and bytes of each that are worked on at a time.
constexpr int64_t kFewOutputs = 16;
constexpr int64_t kChunkBytes = 64;
// A tile's weights are fetched into the second-level cache while the tile before is worked on, if
// both have room there.
constexpr int64_t kTileBytes = int64_t{256} << 10;

inline __mmask64 FirstBytes(int64_t count) {
  return count >= kChunkBytes ? ~__mmask64{0} : count <= 0 ? 0 : (__mmask64{1} << count) - 1U;
}
inline Ints LoadBytes(const void* from, int64_t count) {
  return _mm512_maskz_loadu_epi8(FirstBytes(count), from);
}
/// Quarters of a and b: two of the one, then two of the other.
template <int kPick>
inline Ints Quarters(Ints a, Ints b) {
  return _mm512_shuffle_i32x4(a, b, kPick);
}
constexpr int kFirstTwo = 0x44, kLastTwo = 0xEE, kEven = 0x88, kOdd = 0xDD;

/// As many values of x as kChunkBytes of weights are.
template <Element kType>
struct Chunk;

template <>
struct Chunk<Element::kQ8> {
  using W = Weights<Element::kQ8>;
  static constexpr int64_t kGroups = kChunkBytes / kQuantGroup;

  Ints x;

  Chunk(const int8_t* from, int64_t count) : x(LoadBytes(from, count)) {}
  /// Of a row of weights with `left` values from the chunk's first on.
  static inline Ints LoadWeights(const char* from, int64_t left) {
    const Ints w = LoadBytes(from, left);
    return kHasDots ? _mm512_xor_si512(w, _mm512_set1_epi8(-128)) : w;
  }
  inline Ints Products(Ints w) const { return W::AddProducts(Ints{}, w, x); }
  /// From the sums of four outputs in every quarter, two of which are of one group, those of
  /// sixteen outputs in every group.
  static inline void Arrange(const Ints (&four)[4], Ints (&groups)[kGroups]) {
    const auto both = [](Ints a, Ints b) {
      return W::Add(Quarters<kEven>(a, b), Quarters<kOdd>(a, b));
    };
    const Ints low = both(four[0], four[1]), high = both(four[2], four[3]);
    groups[0] = Quarters<kEven>(low, high);
    groups[1] = Quarters<kOdd>(low, high);
  }
};

template <>
struct Chunk<Element::kQ4> {
  using W = Weights<Element::kQ4>;
  static constexpr int64_t kGroups = kChunkBytes / kQ4GroupBytes;

  Ints low, high;  // the first 16 values of every group, and the others

  Chunk(const int8_t* from, int64_t count) {
    const Ints a = LoadBytes(from, count), b = LoadBytes(from + kChunkBytes, count - kChunkBytes);
    low = Quarters<kEven>(a, b);
    high = Quarters<kOdd>(a, b);
  }
  static inline Ints LoadWeights(const char* from, int64_t left) {
    return LoadBytes(from, QuantGroups(left) * kQ4GroupBytes);
  }
  inline Ints Products(Ints w) const {
    const Ints nibble = _mm512_set1_epi8(0xF);
    const Ints sums = W::AddProducts(Ints{}, _mm512_and_si512(w, nibble), low);
    return W::AddProducts(sums, _mm512_and_si512(_mm512_srli_epi16(w, 4), nibble), high);
  }
  static inline void Arrange(const Ints (&four)[4], Ints (&groups)[kGroups]) {
    const Ints a = Quarters<kFirstTwo>(four[0], four[1]), b = Quarters<kLastTwo>(four[0], four[1]);
    const Ints c = Quarters<kFirstTwo>(four[2], four[3]), d = Quarters<kLastTwo>(four[2], four[3]);
    groups[0] = Quarters<kEven>(a, c);
    groups[1] = Quarters<kOdd>(a, c);
    groups[2] = Quarters<kEven>(b, d);
    groups[3] = Quarters<kOdd>(b, d);
  }
};

/// The sums of the four lanes in every quarter of a, b, c and d, in this order in every quarter.
template <typename W>
inline Ints SumFours(Ints a, Ints b, Ints c, Ints d) {
  const auto pair = [](Ints x, Ints y) {
    return W::Add(_mm512_unpacklo_epi32(x, y), _mm512_unpackhi_epi32(x, y));
  };
  const Ints ab = pair(a, b), cd = pair(c, d);
  return W::Add(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/// to[g][o]: what scales[o] has at first + g, widened; zeros for g from `count` on.
inline void TransposeScales(const uint16_t* const (&scales)[kFewOutputs], int64_t first,
                            int64_t count, float (&to)[kTile][kFewOutputs]) {
  const auto there = static_cast<__mmask8>((1U << Least(count, kTile)) - 1U);
  // Quarter q has the scales of output 4q + i.
  const auto every_fourth = [&](int64_t i) __attribute__((always_inline)) {
    const auto load = [&](int64_t o) { return _mm_maskz_loadu_epi16(there, scales[o] + first); };
    Ints x = _mm512_castsi128_si512(load(i));
    x = _mm512_inserti32x4(x, load(4 + i), 1);
    x = _mm512_inserti32x4(x, load(8 + i), 2);
    return _mm512_inserti32x4(x, load(12 + i), 3);
  };
  const Ints a = every_fourth(0), b = every_fourth(1), c = every_fourth(2), d = every_fourth(3);
  const Ints low[2] = {_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b)};
  const Ints high[2] = {_mm512_unpacklo_epi16(c, d), _mm512_unpackhi_epi16(c, d)};
  const Ints by_group = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  Unrolled<kTile / 2>([&](auto i) {
    const Ints mixed = i % 2 == 0 ? _mm512_unpacklo_epi32(low[i / 2], high[i / 2])
                                  : _mm512_unpackhi_epi32(low[i / 2], high[i / 2]);
    const Ints two = _mm512_permutexvar_epi64(by_group, mixed);
    Store(to[2 * i], _mm512_cvtph_ps(_mm512_castsi512_si256(two)));
    Store(to[2 * i + 1], _mm512_cvtph_ps(_mm512_extracti64x4_epi64(two, 1)));
  });
}

/// kFewOutputs outputs of all rows.
template <Element kType, int64_t Rows>
void FewRows(const IntegerGemmArgs& args, const Outputs& outputs) {
  using C = Chunk<kType>;
  constexpr int64_t kValues = C::kGroups * kQuantGroup;
  const int64_t groups = QuantGroups(args.k), row_bytes = RowBytes(kType, args.k);
  const char* next = NextTile<kFewOutputs>(args.w, args.k, outputs.out, kTileBytes);
  const char* next_scales = nullptr;
  if (next != nullptr) {
    next_scales =
        reinterpret_cast<const char*>(args.w.scale + (outputs.out + kFewOutputs) * groups);
  }
  const char* rows_of_w[kFewOutputs];
  const uint16_t* scales_of_w[kFewOutputs];
  for (int64_t o = 0; o < kFewOutputs; ++o) {
    scales_of_w[o] = args.w.scale + outputs.row(o) * groups;
    rows_of_w[o] = static_cast<const char*>(args.w.data) + outputs.row(o) * row_bytes;
  }
  KeepInMemory(rows_of_w);  // else GCC 12 has the addresses in lanes of vector registers
  KeepInMemory(scales_of_w);
  Floats sums[Rows];
  Unrolled<Rows>([&](auto r) { sums[r] = Zero(); });
  alignas(64) float scales[kTile][kFewOutputs];
  // The chunk from group `first` on, of `groups_here` groups and up to `values` values a row.
  const auto add = [&](int64_t first, int64_t groups_here, int64_t values)
      __attribute__((always_inline)) {
    Unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
      const int64_t of_row = r * groups + first;
      const C x(args.x.q + of_row * kQuantGroup, groups_here * kQuantGroup);
      Ints four[4], integers[C::kGroups];
      Unrolled<4>([&](auto j) __attribute__((always_inline)) {
        const auto products = [&](int64_t o) __attribute__((always_inline)) {
          const char* w = rows_of_w[4 * j + o] + first / C::kGroups * kChunkBytes;
          return x.Products(C::LoadWeights(w, values));
        };
        four[j] = SumFours<typename C::W>(products(0), products(1), products(2), products(3));
      });
      C::Arrange(four, integers);
      Unrolled<C::kGroups>([&](auto g) __attribute__((always_inline)) {
        if (g >= groups_here) return;
        const Ints whole = C::W::Whole(integers[g], args.x.sum[of_row + g]);
        const Floats scale = Load(scales[(first + g) % kTile]) * All(args.x.scale[of_row + g]);
        sums[r] = Fma(ToFloats(whole), scale, sums[r]);
      });
    });
  };
  for (int64_t first = 0; first < groups; first += kTile) {
    TransposeScales(scales_of_w, first, groups - first, scales);
    Fetch<2>(next_scales, kFewOutputs * kTile * 2);
    const int64_t end = Least(first + kTile, groups);
    int64_t group = first;
    for (; group + C::kGroups <= end && (group + C::kGroups) * kQuantGroup <= args.k;
         group += C::kGroups) {
      Fetch<2>(next, kFewOutputs * kChunkBytes);
      add(group, C::kGroups, kValues);
    }
    if (group < end) add(group, end - group, args.k - group * kQuantGroup);
  }
  for (int64_t r = 0; r < Rows; ++r) {
    Store(scales[0], sums[r]);
    StoreSums(args, r, outputs, scales[0]);
  }
}

#else

constexpr int64_t kFewOutputs = 8;
// A tile's weights are fetched into the first-level cache while the tile before is worked on, if
// both have room there.
constexpr int64_t kTileBytes = int64_t{24} << 10;

/// Lane i of the result: the eight lanes of p[i], added.
template <typename Weights>
inline __m256i SumEachOfEight(const __m256i (&p)[kFewOutputs]) {
  const auto pair = [](__m256i a, __m256i b) {
    return Weights::Add(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  };
  const auto four = [&](__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i ab = pair(a, b), cd = pair(c, d);
    return Weights::Add(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  };
  const __m256i low = four(p[0], p[1], p[2], p[3]), high = four(p[4], p[5], p[6], p[7]);
  return Weights::Add(_mm256_permute2x128_si256(low, high, 0x20),
                      _mm256_permute2x128_si256(low, high, 0x31));
}

/// kFewOutputs outputs of all rows.
template <Element kType, int64_t Rows>
void FewRows(const IntegerGemmArgs& args, const Outputs& outputs) {
  using W = Weights<kType>;
  const int64_t groups = QuantGroups(args.k), whole = args.k / kQuantGroup;
  const char* next = NextTile<kFewOutputs>(args.w, args.k, outputs.out, kTileBytes);
  int64_t rows_of_w[kFewOutputs];
  for (int64_t o = 0; o < kFewOutputs; ++o) rows_of_w[o] = outputs.row(o);
  eight::Floats sums[Rows];
  Unrolled<Rows>([&](auto r) { sums[r] = eight::Zero(); });
  alignas(32) float scales[kTile][kFewOutputs];
  const auto add = [&](int64_t group, const auto& load) __attribute__((always_inline)) {
    Unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
      const int64_t at = r * groups + group;
      const __m256i x = Load32(args.x.q + at * kQuantGroup);
      __m256i products[kFewOutputs];
      Unrolled<kFewOutputs>([&](auto o) __attribute__((always_inline)) {
        products[o] = W::AddProducts(_mm256_setzero_si256(), load(args, rows_of_w[o], group), x);
      });
      const __m256i integers = W::Whole(SumEachOfEight<W>(products), args.x.sum[at]);
      const eight::Floats scale = eight::Load(scales[group % kTile]) * eight::All(args.x.scale[at]);
      sums[r] = eight::Fma(eight::ToFloats(integers), scale, sums[r]);
    });
  };
  for (int64_t first = 0; first < groups; first += kTile) {
    TransposeScales(args, outputs, 0, first, scales[0], kFewOutputs);
    const int64_t end = Least(first + kTile, whole);
    for (int64_t group = first; group < end; ++group) {
      Fetch<1>(next, kFewOutputs * RowBytes(kType, kQuantGroup));
      add(group, W::Load);
    }
  }
  if (whole < groups) add(whole, W::LoadLast);
  for (int64_t r = 0; r < Rows; ++r) {
    eight::Store(scales[0], sums[r]);
    StoreSums(args, r, outputs, scales[0]);
  }
}

#endif

}  // namespace
}  // namespace lookback::kernels::LOOKBACK_SET
