// Products of quantized activations with quantized weights. An element of y is one sum over
// ascending groups, an integer times its scales at a time. What is inside a group is exact, so it
// may be summed by whatever way is fastest.
#include <math.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/simd.h"
#include "kernels/cpu/avx2/tiles.h"

namespace lookback::kernels::avx2 {
namespace {

// Up to so many rows, a group's products are summed across a register; beyond, the weights are laid
// out anew so that a register holds one step of many outputs.
constexpr int64_t kFewRows = 5;
// Outputs whose products are summed across registers together, and groups whose scales are
// transposed together.
constexpr int64_t kTile = 8;
// What a tile's weights may have to be fetched, by the tile before, into the first-level cache; a
// panel's into the second.
constexpr int64_t kTileBytes = int64_t{16} << 10;
constexpr int64_t kPanelBytes = int64_t{96} << 10;

// Bytes of x and of w whose products make one lane of 32 bits.
constexpr int64_t kStep = 4;
constexpr int64_t kGroupSteps = kQuantGroup / kStep;
// The sums of 4 rows by two registers of outputs, and room for what a product takes.
constexpr int64_t kPanelRegisters = 2;
constexpr int64_t kPanelOutputs = kPanelRegisters * kLanes;
constexpr int64_t kTileRows = 4;
// So many groups of a panel stay in the first-level cache, beside the sums of so many rows.
constexpr int64_t kPanelGroups = 32;
constexpr int64_t kBlockRows = 128;

inline __m256i Load32(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
inline __m256i Ones() { return _mm256_set1_epi16(1); }

/// How weights of one type are read and multiplied. A group's 32 bytes of Load meet as many of x in
/// Products, which leaves them added by fours or by twos; Whole makes integers of 32 bits of them,
/// a lane's sum over the group.
template <Element kType>
struct Weights;

template <>
struct Weights<Element::kQ8> {
  static inline __m256i Load(const IntegerGemmArgs& args, int64_t row, int64_t group) {
    return Load32(static_cast<const int8_t*>(args.w.data) + row * args.k + group * kQuantGroup);
  }
  static inline __m256i LoadLast(const IntegerGemmArgs& args, int64_t row, int64_t group) {
    const int8_t* from = static_cast<const int8_t*>(args.w.data) + row * args.k;
    int8_t padded[kQuantGroup] = {};
    for (int64_t i = group * kQuantGroup; i < args.k; ++i) padded[i % kQuantGroup] = from[i];
    return Load32(padded);
  }
  /// No pair leaves 16 bits: at most 2 · 128 · 127.
  static inline __m256i Products(__m256i w, __m256i x) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, Ones());
  }
  static inline __m256i Add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
  static inline __m256i Whole(__m256i sums, int32_t /*sum_of_x*/) { return sums; }
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
  static inline __m256i Products(__m256i w, __m256i x) { return _mm256_maddubs_epi16(w, x); }
  static inline __m256i Add(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
  static inline __m256i Whole(__m256i sums, int32_t sum_of_x) {
    return _mm256_sub_epi32(_mm256_madd_epi16(sums, Ones()), _mm256_set1_epi32(8 * sum_of_x));
  }
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

/// sums + an integer times its scales, lane by lane.
inline __m256 AddScaled(__m256i integers, __m256 scale_of_w, float scale_of_x, __m256 sums) {
  const __m256 scale = _mm256_mul_ps(scale_of_w, _mm256_set1_ps(scale_of_x));
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers), scale, sums);
}

/// y[row][o] for up to kLanes outputs from `begin` on.
inline void Store(const IntegerGemmArgs& args, int64_t row, const Outputs& outputs, int64_t begin,
                  __m256 sums) {
  const int64_t count = outputs.count - begin, out = outputs.out + begin;
  if (count <= 0) return;
  float* y = args.y + row * args.y_stride + out;
  if (count >= kLanes) {
    const __m256 bias = args.bias != nullptr ? Load(args.bias + out) : _mm256_setzero_ps();
    return _mm256_storeu_ps(y, _mm256_add_ps(sums, bias));
  }
  const __m256 bias = args.bias != nullptr ? LoadTail(args.bias + out, count) : _mm256_setzero_ps();
  StoreTail(y, count, _mm256_add_ps(sums, bias));
}

/// kTile outputs of all rows, at most kFewRows; the weights go through once.
template <Element kType, int64_t Rows>
void FewRows(const IntegerGemmArgs& args, const Outputs& outputs) {
  using W = Weights<kType>;
  const int64_t groups = QuantGroups(args.k), whole = args.k / kQuantGroup;
  const char* next = NextTile<kTile>(args.w, args.k, outputs.out, kTileBytes);
  int64_t rows_of_w[kTile];
  for (int64_t o = 0; o < kTile; ++o) rows_of_w[o] = outputs.row(o);
  __m256 sums[Rows];
  Unrolled<Rows>([&](auto r) { sums[r] = _mm256_setzero_ps(); });
  alignas(32) float scales[kTile][kTile];
  const auto add = [&](int64_t group, const auto& load) __attribute__((always_inline)) {
    Unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
      const int64_t at = r * groups + group;
      const __m256i x = Load32(args.x.q + at * kQuantGroup);
      __m256i products[kTile];
      Unrolled<kTile>([&](auto o) __attribute__((always_inline)) {
        products[o] = W::Products(load(args, rows_of_w[o], group), x);
      });
      sums[r] = AddScaled(W::Whole(SumEachOfEight<W>(products), args.x.sum[at]),
                          _mm256_load_ps(scales[group % kTile]), args.x.scale[at], sums[r]);
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
  for (int64_t r = 0; r < Rows; ++r) Store(args, r, outputs, 0, sums[r]);
}

/// Up to kPanelGroups groups of the weights of kPanelOutputs outputs, and the sums so far.
template <Element kType>
struct Panel {
  using W = Weights<kType>;
  alignas(32) uint8_t bytes[kPanelGroups * kGroupSteps][kPanelOutputs][kStep];
  alignas(32) float scales[kPanelGroups][kPanelOutputs];
  alignas(32) float sums[kBlockRows][kPanelOutputs];

  void Pack(const IntegerGemmArgs& args, const Outputs& outputs, int64_t first, int64_t groups) {
    const int64_t whole = args.k / kQuantGroup;
    for (int64_t begin = 0; begin < kPanelOutputs; begin += kTile) {
      for (int64_t g = 0; g < groups; ++g) {
        __m256i rows[kTile];
        for (int64_t o = 0; o < kTile; ++o) {
          const int64_t row = outputs.row(begin + o);
          rows[o] =
              first + g < whole ? W::Load(args, row, first + g) : W::LoadLast(args, row, first + g);
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

  /// Adds the products with Rows rows of x from `row` on to the sums from `to` on.
  template <int64_t Rows>
  void Multiply(const IntegerGemmArgs& args, int64_t row, int64_t first, int64_t groups,
                float (*to)[kPanelOutputs]) {
    const int64_t stride = QuantGroups(args.k);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t at = row * stride + first + g;
      const int8_t* x = args.x.q + at * kQuantGroup;
      __m256i parts[Rows][kPanelRegisters];
      const auto step = [&](int64_t s, auto is_first) __attribute__((always_inline)) {
        __m256i w[kPanelRegisters];
        Unrolled<kPanelRegisters>([&](auto c) __attribute__((always_inline)) {
          w[c] = Load32(bytes[g * kGroupSteps + s][c * kLanes]);
        });
        Unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
          int32_t four;
          __builtin_memcpy(&four, x + r * stride * kQuantGroup + s * kStep, sizeof four);
          const __m256i part = _mm256_set1_epi32(four);
          Unrolled<kPanelRegisters>([&](auto c) __attribute__((always_inline)) {
            const __m256i products = W::Products(w[c], part);
            parts[r][c] = is_first ? products : W::Add(parts[r][c], products);
            asm volatile("" : "+x"(parts[r][c]));  // else all products come before all sums
          });
        });
      };
      step(0, Constant<1>{});
#pragma GCC unroll 1  // else GCC 12 adds in another order, for which there are too few registers
      for (int64_t s = 1; s < kGroupSteps; ++s) step(s, Constant<0>{});
      Unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
        Unrolled<kPanelRegisters>([&](auto c) __attribute__((always_inline)) {
          float* sum = &to[r][c * kLanes];
          _mm256_store_ps(sum, AddScaled(W::Whole(parts[r][c], args.x.sum[at + r * stride]),
                                         _mm256_load_ps(&scales[g][c * kLanes]),
                                         args.x.scale[at + r * stride], _mm256_load_ps(sum)));
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
    for (; row + kTileRows <= end; row += kTileRows) {
      Fetch<2>(next, share);
      panel.template Multiply<kTileRows>(args, row, first, count, panel.sums + (row - begin));
    }
    for (; row < end; ++row) {
      panel.template Multiply<1>(args, row, first, count, panel.sums + (row - begin));
    }
  }
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t o = 0; o < kPanelOutputs; o += kLanes) {
      Store(args, row, outputs, o, _mm256_load_ps(&panel.sums[row - begin][o]));
    }
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

/// The four registers of a group of x, zeros behind `count` values.
struct Values {
  __m256 part[kQuantGroup / kLanes];
};

inline Values LoadValues(const float* x, int64_t count) {
  Values values;
  for (int64_t j = 0; j < kQuantGroup / kLanes; ++j) {
    const int64_t left = count - j * kLanes;
    values.part[j] = left >= kLanes ? Load(x + j * kLanes)
                     : left <= 0    ? _mm256_setzero_ps()
                                    : LoadTail(x + j * kLanes, left);
  }
  return values;
}

}  // namespace

void IntegerGemm(const IntegerGemmArgs& args) {
  if (args.w.type == Element::kQ4) {
    GemmOf<Element::kQ4>(args);
  } else {
    GemmOf<Element::kQ8>(args);
  }
}

void QuantizeRows(const QuantizeRowsArgs& args) {
  const int64_t groups = QuantGroups(args.k);
  const __m256 sign = _mm256_set1_ps(-0.0F);
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      const Values x = LoadValues(args.x + row * args.x_stride + group * kQuantGroup,
                                  args.k - group * kQuantGroup);
      __m256 top = _mm256_setzero_ps(), difference = top;
      for (const __m256 part : x.part) {
        top = _mm256_max_ps(top, _mm256_andnot_ps(sign, part));
        difference = _mm256_add_ps(difference, _mm256_sub_ps(part, part));  // NaN if not finite
      }
      const float largest = MaxLanes(top);
      const bool finite = SumLanes(difference) == 0.0F;
      const bool zeros = !finite || largest < kLeastQuantized;
      const __m256 inverse = _mm256_set1_ps(zeros ? 0.0F : 127.0F / largest);
      __m256i q[kQuantGroup / kLanes];
      for (int64_t j = 0; j < kQuantGroup / kLanes; ++j) {
        q[j] =
            zeros ? _mm256_setzero_si256() : _mm256_cvtps_epi32(_mm256_mul_ps(x.part[j], inverse));
      }
      const int64_t at = row * groups + group;
      // Packing goes by halves of registers: bytes come as 0 4 1 5 … in words of four.
      const __m256i packed =
          _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
      const __m256i ordered =
          _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(args.out.q + at * kQuantGroup), ordered);
      const __m256i four =
          _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
      // Exact in f32: at most 32 · 127.
      args.out.sum[at] = static_cast<int32_t>(SumLanes(_mm256_cvtepi32_ps(four)));
      args.out.scale[at] = !finite ? NAN : zeros ? 0.0F : largest / 127.0F;
    }
  }
}

}  // namespace lookback::kernels::avx2
