// Products of quantized activations with quantized weights. An element of y is the sum of one
// register's eight sums over ascending groups; inside a group the arithmetic is that of integers.
#include <math.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/simd.h"
#include "kernels/cpu/avx2/tiles.h"

namespace lookback::kernels::avx2 {
namespace {

// A tile of 2 rows by 4 outputs: 8 sums, and room for what each product takes. With 3 rows GCC 12
// keeps some of the sums in memory.
constexpr int64_t kTileRows = 2;
constexpr int64_t kTileOutputs = 4;
// Groups whose scales are multiplied at once.
constexpr int64_t kScaleRun = kLanes;
// A block's rows of x stay in the second-level cache while all outputs go over them.
constexpr int64_t kRowBlockBytes = int64_t{256} << 10;
// From so many rows on, the nibbles of a tile's weights become bytes once for all of them, if they
// have the room.
constexpr int64_t kManyRows = 4 * kTileRows;
constexpr int64_t kUnpackedDepth = 8192;
// What a tile's weights may have to be fetched, by the tile before, into the first-level cache.
constexpr int64_t kTileBytes = int64_t{16} << 10;

inline __m256i Load32(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

/// The sum of four products each, of bytes without sign by bytes with one. No pair of products
/// leaves 16 bits: at most 2 · 128 · 127.
inline __m256i Products(__m256i without_sign, __m256i with_sign) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(without_sign, with_sign), _mm256_set1_epi16(1));
}

/// A group of weights as bytes, and its product with one of x in eight sums.
template <Element kType>
struct Group;

template <>
struct Group<Element::kQ8> {
  __m256i w;
  __m256i magnitude;

  static const int8_t* At(const IntegerGemmArgs& args, int64_t row, int64_t group) {
    return static_cast<const int8_t*>(args.w.data) + row * args.k + group * kQuantGroup;
  }
  static inline Group Of(__m256i w) { return {w, _mm256_abs_epi8(w)}; }
  static inline Group Whole(const IntegerGemmArgs& args, int64_t row, int64_t group) {
    return Of(Load32(At(args, row, group)));
  }
  static inline Group Part(const IntegerGemmArgs& args, int64_t row, int64_t group) {
    int8_t padded[kQuantGroup] = {};
    const int8_t* from = At(args, row, group);
    for (int64_t i = 0; i < args.k - group * kQuantGroup; ++i) padded[i] = from[i];
    return Of(Load32(padded));
  }
  inline __m256i Times(const int8_t* x, const int32_t* /*sum*/) const {
    return Products(magnitude, _mm256_sign_epi8(Load32(x), w));
  }
};

/// sum (nibble − 8) · x = sum nibble · x − 8 · sum x; every one of the eight sums takes an eighth.
template <>
struct Group<Element::kQ4> {
  __m256i nibbles;

  static inline Group Of(const uint8_t* unpacked) { return {Load32(unpacked)}; }
  static inline Group Whole(const IntegerGemmArgs& args, int64_t row, int64_t group) {
    const auto* from = static_cast<const uint8_t*>(args.w.data) +
                       (row * QuantGroups(args.k) + group) * kQ4GroupBytes;
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
    return {_mm256_and_si256(both, _mm256_set1_epi8(0xF))};
  }
  /// The bytes behind a short group are there, and x has zeros for them.
  static inline Group Part(const IntegerGemmArgs& args, int64_t row, int64_t group) {
    return Whole(args, row, group);
  }
  inline __m256i Times(const int8_t* x, const int32_t* sum) const {
    return _mm256_sub_epi32(Products(nibbles, Load32(x)), _mm256_set1_epi32(*sum));
  }
};

/// The weights of a tile as they are stored.
template <Element kStored>
struct Stored {
  static constexpr Element kType = kStored;
  static constexpr bool kIsStored = true;
  int64_t out;

  inline Group<kType> Whole(const IntegerGemmArgs& args, int64_t o, int64_t group) const {
    return Group<kType>::Whole(args, out + o, group);
  }
  inline Group<kType> Part(const IntegerGemmArgs& args, int64_t o, int64_t group) const {
    return Group<kType>::Part(args, out + o, group);
  }
};

/// Those of kQ4 as bytes, [output][kUnpackedDepth].
struct Unpacked {
  static constexpr Element kType = Element::kQ4;
  static constexpr bool kIsStored = false;
  const uint8_t* bytes;

  inline Group<kType> Whole(const IntegerGemmArgs& /*args*/, int64_t o, int64_t group) const {
    return Group<kType>::Of(bytes + o * kUnpackedDepth + group * kQuantGroup);
  }
  inline Group<kType> Part(const IntegerGemmArgs& args, int64_t o, int64_t group) const {
    return Whole(args, o, group);
  }
};

/// Eight scales of weights from `from` on, of which `count` are there.
inline __m256 Scales(const uint16_t* from, int64_t count) {
  uint16_t padded[kScaleRun] = {};
  if (count < kScaleRun) {
    for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
    from = padded;
  }
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline __m256 Scales(const float* from, int64_t count) {
  return count >= kScaleRun ? Load(from) : LoadTail(from, count);
}

template <int64_t Rows, int64_t Outputs, typename Weights>
void Tile(const IntegerGemmArgs& args, Weights weights, int64_t row, int64_t out) {
  constexpr Element kType = Weights::kType;
  const int64_t groups = QuantGroups(args.k), whole = args.k / kQuantGroup;
  const char* next =
      Weights::kIsStored ? NextTile<Outputs>(args.w, args.k, out, kTileBytes) : nullptr;
  __m256 sums[Rows][Outputs];
  Unrolled<Rows>(
      [&](auto r) { Unrolled<Outputs>([&](auto o) { sums[r][o] = _mm256_setzero_ps(); }); });
  alignas(32) float scales[Rows][Outputs][kScaleRun];
  const auto add = [&](const Group<kType>& w, int64_t group, auto o)
      __attribute__((always_inline)) {
    Unrolled<Rows>([&](auto r) __attribute__((always_inline)) {
      const int64_t at = (row + r) * groups + group;
      const __m256i product = w.Times(args.x.q + at * kQuantGroup, args.x.sum + at);
      sums[r][o] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(product),
                                   _mm256_set1_ps(scales[r][o][group % kScaleRun]), sums[r][o]);
    });
  };
  for (int64_t first = 0; first < groups; first += kScaleRun) {
    for (int64_t o = 0; o < Outputs; ++o) {
      const __m256 of_weights = Scales(args.w.scale + (out + o) * groups + first, groups - first);
      for (int64_t r = 0; r < Rows; ++r) {
        const __m256 of_x = Scales(args.x.scale + (row + r) * groups + first, groups - first);
        _mm256_store_ps(scales[r][o], _mm256_mul_ps(of_x, of_weights));
      }
    }
    const int64_t end = Least(first + kScaleRun, whole);
    for (int64_t group = first; group < end; ++group) {
      Fetch<1>(next, Outputs * RowBytes(kType, kQuantGroup));
      Unrolled<Outputs>([&](auto o) __attribute__((always_inline)) {
        add(weights.Whole(args, o, group), group, o);
      });
    }
  }
  if (whole < groups) {
    Unrolled<Outputs>([&](auto o) __attribute__((always_inline)) {
      add(weights.Part(args, o, whole), whole, o);
    });
  }
  Unrolled<Rows>([&](auto r) {
    Unrolled<Outputs>([&](auto o) {
      args.y[(row + r) * args.y_stride + out + o] =
          SumLanes(sums[r][o]) + (args.bias != nullptr ? args.bias[out + o] : 0.0F);
    });
  });
}

template <int64_t Outputs, typename Weights>
void Rows(const IntegerGemmArgs& args, Weights weights, int64_t begin, int64_t end, int64_t out) {
  int64_t row = begin;
  for (; row + kTileRows <= end; row += kTileRows) {
    Tile<kTileRows, Outputs>(args, weights, row, out);
  }
  if (row < end) Tile<1, Outputs>(args, weights, row, out);
}

template <Element kType, int64_t Outputs>
void Outs(const IntegerGemmArgs& args, int64_t begin, int64_t end, int64_t out) {
  if constexpr (kType == Element::kQ4) {
    if (end - begin >= kManyRows && args.k <= kUnpackedDepth) {
      alignas(32) uint8_t unpacked[Outputs * kUnpackedDepth];
      for (int64_t o = 0; o < Outputs; ++o) {
        for (int64_t group = 0; group < QuantGroups(args.k); ++group) {
          uint8_t* to = unpacked + o * kUnpackedDepth + group * kQuantGroup;
          _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                             Group<kType>::Whole(args, out + o, group).nibbles);
        }
      }
      return Rows<Outputs>(args, Unpacked{unpacked}, begin, end, out);
    }
  }
  Rows<Outputs>(args, Stored<kType>{out}, begin, end, out);
}

template <Element kType>
void GemmOf(const IntegerGemmArgs& args) {
  const int64_t row_bytes = QuantGroups(args.k) * kQuantGroup;
  const int64_t fitting = kRowBlockBytes / row_bytes;
  const int64_t block = fitting < kTileRows ? kTileRows : fitting / kTileRows * kTileRows;
  for (int64_t begin = 0; begin < args.rows; begin += block) {
    const int64_t end = Least(begin + block, args.rows);
    int64_t out = args.out_begin;
    for (; out + kTileOutputs <= args.out_end; out += kTileOutputs) {
      Outs<kType, kTileOutputs>(args, begin, end, out);
    }
    for (; out < args.out_end; ++out) Outs<kType, 1>(args, begin, end, out);
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
