// Products of quantized activations with quantized weights. An element of y is one sum over
// ascending groups, an integer times its scales at a time. What is inside a group is exact, so it
// may be summed by whatever way is fastest.
#include <math.h>

#ifdef __AMX_INT8__
#include "kernels/cpu/vector/amx.h"
#endif
#include "kernels/cpu/vector/bytes.h"
#include "kernels/cpu/vector/set.h"
#include "kernels/cpu/vector/simd.h"
#include "kernels/cpu/vector/tiles.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

// Up to so many rows, a group's products are summed across a register; beyond, the weights are laid
// out anew so that a register holds one step of many outputs.
constexpr int64_t kFewRows = 5;
// Outputs whose products are summed across registers together, and groups whose scales are
// transposed together.
constexpr int64_t kTile = 8;
// What a tile's weights may have to be fetched, by the tile before, into the first-level cache; a
// panel's into the second.
constexpr int64_t kTileBytes = int64_t{24} << 10;
constexpr int64_t kPanelBytes = int64_t{96} << 10;

// Bytes of x and of w whose products make one lane of 32 bits.
constexpr int64_t kStep = 4;
constexpr int64_t kGroupSteps = kQuantGroup / kStep;
// The sums of so many rows by two registers of outputs take half of the registers, what a product
// takes the others.
constexpr int64_t kPanelRegisters = 2;
constexpr int64_t kPanelOutputs = kPanelRegisters * kLanes;
constexpr int64_t kTileRows = kLanes / 2;
// So many groups of a panel stay in the first-level cache, beside the sums of so many rows.
constexpr int64_t kPanelGroups = 32;
#ifdef __AMX_INT8__
constexpr int64_t kBlockRows =
    512;  // a tile's sums are in registers, and packing is what takes time
#else
constexpr int64_t kBlockRows = 128;
#endif

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

/// Lane i of the result: the eight lanes of p[i], added.
template <typename Weights>
inline __m256i SumEachOfEight(const __m256i (&p)[kTile]) {
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

/// kTile outputs of all rows, at most kFewRows; the weights go through once.
template <Element kType, int64_t Rows>
void FewRows(const IntegerGemmArgs& args, const Outputs& outputs) {
  using W = Weights<kType>;
  const int64_t groups = QuantGroups(args.k), whole = args.k / kQuantGroup;
  const char* next = NextTile<kTile>(args.w, args.k, outputs.out, kTileBytes);
  int64_t rows_of_w[kTile];
  for (int64_t o = 0; o < kTile; ++o) rows_of_w[o] = outputs.row(o);
  eight::Floats sums[Rows];
  Unrolled<Rows>([&](auto r) { sums[r] = eight::Zero(); });
  alignas(32) float scales[kTile][kTile];
  const auto add = [&](int64_t group, const auto& load) __attribute__((always_inline)) {
    Unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
      const int64_t at = r * groups + group;
      const __m256i x = Load32(args.x.q + at * kQuantGroup);
      __m256i products[kTile];
      Unrolled<kTile>([&](auto o) __attribute__((always_inline)) {
        products[o] = W::AddProducts(_mm256_setzero_si256(), load(args, rows_of_w[o], group), x);
      });
      const __m256i integers = W::Whole(SumEachOfEight<W>(products), args.x.sum[at]);
      const eight::Floats scale = eight::Load(scales[group % kTile]) * eight::All(args.x.scale[at]);
      sums[r] = eight::Fma(eight::ToFloats(integers), scale, sums[r]);
    });
  };
  for (int64_t first = 0; first < groups; first += kTile) {
    TransposeScales(args, outputs, 0, first, scales[0], kTile);
    const int64_t end = Least(first + kTile, whole);
    for (int64_t group = first; group < end; ++group) {
      Fetch<1>(next, kTile * RowBytes(kType, kQuantGroup));
      add(group, W::Load);
    }
  }
  if (whole < groups) add(whole, W::LoadLast);
  for (int64_t r = 0; r < Rows; ++r) {
    eight::Store(scales[0], sums[r]);
    StoreSums(args, r, outputs, scales[0]);
  }
}

/// Up to kPanelGroups groups of the weights of kPanelOutputs outputs, and the sums so far.
template <Element kType>
struct Panel {
  using W = Weights<kType>;
  alignas(64) uint8_t bytes[kPanelGroups * kGroupSteps][kPanelOutputs][kStep];
  alignas(64) float scales[kPanelGroups][kPanelOutputs];
  alignas(64) float sums[kBlockRows][kPanelOutputs];

  void Pack(const IntegerGemmArgs& args, const Outputs& outputs, int64_t first, int64_t groups) {
    const int64_t whole = args.k / kQuantGroup;
    for (int64_t begin = 0; begin < kPanelOutputs; begin += kTile) {
      for (int64_t g = 0; g < groups; ++g) {
        __m256i rows[kTile];
        for (int64_t o = 0; o < kTile; ++o) {
          const int64_t row = outputs.row(begin + o);
          rows[o] =
              first + g < whole ? W::Load(args, row, first + g) : W::LoadLast(args, row, first + g);
          if constexpr (kHasTiles) rows[o] = W::Signed(rows[o]);
        }
        Transpose(rows);
        for (int64_t step = 0; step < kGroupSteps; ++step) {
          _mm256_store_si256(reinterpret_cast<__m256i*>(bytes[g * kGroupSteps + step][begin]),
                             rows[step]);
        }
      }
      for (int64_t g = 0; g < groups; g += kTile) {
        TransposeScales(args, outputs, begin, first + g, &scales[g][begin], kPanelOutputs);
      }
    }
  }

#ifdef __AMX_INT8__
  /// Adds the products with `rows` rows of x, for which the tiles must be shaped, from `row` on to
  /// the sums from `to` on.
  void MultiplyTile(const IntegerGemmArgs& args, int64_t row, int64_t rows, int64_t first,
                    int64_t groups, float (*to)[kPanelOutputs]) {
    const int64_t stride = QuantGroups(args.k);
    const int8_t* x = args.x.q + (row * stride + first) * kQuantGroup;
    const float* x_scale = args.x.scale + row * stride + first;
    for (int64_t c = 0; c < kPanelOutputs; c += kLanes) {
      Floats total[kTileSide];
      Unrolled<kTileSide>([&](auto r) { total[r] = r < rows ? Load(&to[r][c]) : Zero(); });
      for (int64_t g = 0; g < groups; ++g) {
        alignas(64) int32_t parts[kTileSide][kTileSide];
        ZeroTile<0>();
        LoadTile<1>(x + g * kQuantGroup, stride * kQuantGroup);
        LoadTile<2>(bytes[g * kGroupSteps][c], kPanelOutputs * kStep);
        AddTileOfBytes<0, 1, 2>();
        StoreTile<0>(parts, kTileRowBytes);
        const Floats scale = Load(&scales[g][c]);
        Unrolled<kTileSide>([&](auto r) __attribute__((always_inline)) {
          // Rows that are not there add the first one's.
          const float of_row = x_scale[(r < rows ? r : 0) * stride + g];
          total[r] = Fma(ToFloats(LoadInts(parts[r])), scale * All(of_row), total[r]);
        });
      }
      Unrolled<kTileSide>([&](auto r) {
        if (r < rows) Store(&to[r][c], total[r]);
      });
    }
  }
#endif

  /// Adds the products with Rows rows of x from `row` on to the sums from `to` on.
  template <int64_t Rows>
  void Multiply(const IntegerGemmArgs& args, int64_t row, int64_t first, int64_t groups,
                float (*to)[kPanelOutputs]) {
    const int64_t stride = QuantGroups(args.k);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t at = row * stride + first + g;
      const int8_t* x = args.x.q + at * kQuantGroup;
      Ints parts[Rows][kPanelRegisters];
      const auto step = [&](int64_t s, auto is_first) __attribute__((always_inline)) {
        Ints w[kPanelRegisters];
        Unrolled<kPanelRegisters>([&](auto c) __attribute__((always_inline)) {
          w[c] = LoadInts(bytes[g * kGroupSteps + s][c * kLanes]);
        });
        Unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
          const Ints part = AllLanes(x + r * stride * kQuantGroup + s * kStep);
          Unrolled<kPanelRegisters>([&](auto c) __attribute__((always_inline)) {
            parts[r][c] = W::AddProducts(is_first ? Ints{} : parts[r][c], w[c], part);
            Keep(parts[r][c]);  // else GCC 12 forms all products before it adds the first
          });
        });
      };
      step(0, Constant<1>{});
#pragma GCC unroll 1  // else GCC 12 adds in another order, for which there are too few registers
      for (int64_t s = 1; s < kGroupSteps; ++s) step(s, Constant<0>{});
      Unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
        const int64_t of_row = at + r * stride;
        Unrolled<kPanelRegisters>([&](auto c) __attribute__((always_inline)) {
          float* sum = &to[r][c * kLanes];
          const Ints integers = W::Whole(parts[r][c], args.x.sum[of_row]);
          const Floats scale = Load(&scales[g][c * kLanes]) * All(args.x.scale[of_row]);
          Store(sum, Fma(ToFloats(integers), scale, Load(sum)));
        });
      });
    }
  }
};

/// kPanelOutputs outputs of the rows [begin, end), at most kBlockRows.
template <Element kType>
void ManyRows(const IntegerGemmArgs& args, const Outputs& outputs, int64_t begin, int64_t end) {
  Panel<kType> panel;
  const int64_t groups = QuantGroups(args.k);
  for (int64_t r = 0; r < end - begin; ++r) {
    for (float& sum : panel.sums[r]) sum = 0.0F;
  }
  // Fetched a share at a time: as many lines at once would stop the loads that are waited for.
  const char* next = NextTile<kPanelOutputs>(args.w, args.k, outputs.out, kPanelBytes);
  const int64_t shares =
      (groups + kPanelGroups - 1) / kPanelGroups * ((end - begin + kTileRows - 1) / kTileRows);
  const int64_t share = kPanelOutputs * RowBytes(kType, args.k) / shares + kLineBytes;
  for (int64_t first = 0; first < groups; first += kPanelGroups) {
    const int64_t count = Least(kPanelGroups, groups - first);
    panel.Pack(args, outputs, first, count);
    int64_t row = begin;
#ifdef __AMX_INT8__
    for (; row < end; row += kTileSide) {
      const int64_t rows = Least(kTileSide, end - row);
      TileShapes shapes;
      shapes.Set(0, rows, kTileRowBytes);
      shapes.Set(1, rows, kQuantGroup);
      shapes.Set(2, kGroupSteps, kTileRowBytes);
      if (row == begin || rows < kTileSide) ShapeTiles(shapes);
      Fetch<2>(next, 2 * share);
      panel.MultiplyTile(args, row, rows, first, count, panel.sums + (row - begin));
    }
    ReleaseTiles();
#endif
    for (; row + kTileRows <= end; row += kTileRows) {
      Fetch<2>(next, share);
      panel.template Multiply<kTileRows>(args, row, first, count, panel.sums + (row - begin));
    }
    for (; row < end; ++row) {
      panel.template Multiply<1>(args, row, first, count, panel.sums + (row - begin));
    }
  }
  for (int64_t row = begin; row < end; ++row) {
    StoreSums(args, row, outputs, panel.sums[row - begin]);
  }
}

template <Element kType>
void GemmOf(const IntegerGemmArgs& args) {
  if (args.rows <= kFewRows) {
    for (int64_t out = args.out_begin; out < args.out_end; out += kTile) {
      const Outputs outputs{out, Least(kTile, args.out_end - out)};
      Unrolled<kFewRows>([&](auto r) {
        if (args.rows == r + 1) FewRows<kType, r + 1>(args, outputs);
      });
    }
    return;
  }
  for (int64_t begin = 0; begin < args.rows; begin += kBlockRows) {
    const int64_t end = Least(begin + kBlockRows, args.rows);
    for (int64_t out = args.out_begin; out < args.out_end; out += kPanelOutputs) {
      ManyRows<kType>(args, {out, Least(kPanelOutputs, args.out_end - out)}, begin, end);
    }
  }
}

}  // namespace

void IntegerGemm(const IntegerGemmArgs& args) {
  if (args.w.type == Element::kQ4) {
    GemmOf<Element::kQ4>(args);
  } else {
    GemmOf<Element::kQ8>(args);
  }
}

}  // namespace lookback::kernels::LOOKBACK_SET
