#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/simd.h"

namespace lookback::kernels::avx2 {
namespace {

// A tile of 3 rows by 4 outputs: 12 sums, 3 pieces of x and one of w fill the 16 registers.
constexpr int64_t kTileRows = 3;
constexpr int64_t kTileOutputs = 4;
// The rows of x that are gone over for every tile of outputs stay in the second-level cache.
constexpr int64_t kRowBlockBytes = int64_t{192} << 10;
constexpr int64_t kPrefetchBytes = 1024;

inline void Prefetch(const void* from) {
  _mm_prefetch(static_cast<const char*>(from) + kPrefetchBytes, _MM_HINT_T0);
}

/// Weights of f32 or bf16. Whatever the tile, an element is one register's eight sums over
/// ascending k.
template <typename T>
struct Plain {
  /// Rows by Outputs elements of x and the rows from `out` of w.
  template <int64_t Rows, int64_t Outputs>
  static inline void Multiply(const GemmArgs& args, const float* x, int64_t out,
                              __m256 (&sums)[Rows][Outputs]) {
    const T* w = static_cast<const T*>(args.w.data) + out * args.k;
    int64_t i = 0;
    for (; i + kLanes <= args.k; i += kLanes) {
      __m256 part[Rows];
      for (int64_t r = 0; r < Rows; ++r) part[r] = Load(x + r * args.x_stride + i);
      for (int64_t o = 0; o < Outputs; ++o) {
        const T* from = w + o * args.k + i;
        if constexpr (Rows == 1) Prefetch(from);
        const __m256 weights = Load(from);
        for (int64_t r = 0; r < Rows; ++r) {
          sums[r][o] = _mm256_fmadd_ps(part[r], weights, sums[r][o]);
        }
      }
    }
    if (i == args.k) return;
    for (int64_t o = 0; o < Outputs; ++o) {
      const __m256 weights = LoadTail(w + o * args.k + i, args.k - i);
      for (int64_t r = 0; r < Rows; ++r) {
        const __m256 part = LoadTail(x + r * args.x_stride + i, args.k - i);
        sums[r][o] = _mm256_fmadd_ps(part, weights, sums[r][o]);
      }
    }
  }
};

inline __m256 WidenBytes(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }

/// The 32 quantized values of a group as integers in f32.
struct Group {
  __m256 part[4];
};

inline Group LoadQ8(const int8_t* from) {
  const auto eight = [&](int64_t j) {
    return WidenBytes(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + j * kLanes)));
  };
  return {{eight(0), eight(1), eight(2), eight(3)}};
}

inline Group LoadQ4(const uint8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m128i nibble = _mm_set1_epi8(0xF), eight = _mm_set1_epi8(8);
  const __m128i low = _mm_sub_epi8(_mm_and_si128(bytes, nibble), eight);
  const __m128i high = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), nibble), eight);
  return {{WidenBytes(low), WidenBytes(_mm_srli_si128(low, 8)), WidenBytes(high),
           WidenBytes(_mm_srli_si128(high, 8))}};
}

/// Quantized weights: an element is one register's sums over ascending groups, each group's four
/// products of eight times its scale.
template <Element kType>
struct Quantized {
  static Group LoadGroup(const GemmArgs& args, int64_t row, int64_t group) {
    const int64_t begin = group * kQuantGroup, count = args.k - begin;
    if constexpr (kType == Element::kQ4) {
      return LoadQ4(static_cast<const uint8_t*>(args.w.data) +
                    (row * QuantGroups(args.k) + group) * kQ4GroupBytes);
    }
    const int8_t* from = static_cast<const int8_t*>(args.w.data) + row * args.k + begin;
    if (count >= kQuantGroup) return LoadQ8(from);
    int8_t padded[kQuantGroup] = {};
    for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
    return LoadQ8(padded);
  }

  static inline __m256 Scale(const GemmArgs& args, int64_t row, int64_t group) {
    const int bits = args.w.scale[row * QuantGroups(args.k) + group];
    return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
  }

  template <int64_t Rows, int64_t Outputs>
  static inline void Multiply(const GemmArgs& args, const float* x, int64_t out,
                              __m256 (&sums)[Rows][Outputs]) {
    const int64_t whole = args.k / kQuantGroup;
    for (int64_t group = 0; group < whole; ++group) {
      const float* from = x + group * kQuantGroup;
      for (int64_t o = 0; o < Outputs; ++o) {
        const Group weights = LoadGroup(args, out + o, group);
        const __m256 scale = Scale(args, out + o, group);
        for (int64_t r = 0; r < Rows; ++r) {
          const float* row = from + r * args.x_stride;
          __m256 sum = _mm256_mul_ps(Load(row), weights.part[0]);
          for (int64_t j = 1; j < 4; ++j) {
            sum = _mm256_fmadd_ps(Load(row + j * kLanes), weights.part[j], sum);
          }
          sums[r][o] = _mm256_fmadd_ps(sum, scale, sums[r][o]);
        }
      }
    }
    const int64_t left = args.k - whole * kQuantGroup;
    if (left == 0) return;
    for (int64_t o = 0; o < Outputs; ++o) {
      const Group weights = LoadGroup(args, out + o, whole);
      const __m256 scale = Scale(args, out + o, whole);
      for (int64_t r = 0; r < Rows; ++r) {
        const float* row = x + r * args.x_stride + whole * kQuantGroup;
        __m256 sum = _mm256_setzero_ps();
        for (int64_t j = 0; j * kLanes < left; ++j) {
          const __m256 part = LoadTail(row + j * kLanes, left - j * kLanes);
          sum = _mm256_fmadd_ps(part, weights.part[j], sum);
        }
        sums[r][o] = _mm256_fmadd_ps(sum, scale, sums[r][o]);
      }
    }
  }
};

/// Rows by Outputs elements from x, output `out` and y on.
template <typename Weights, int64_t Rows, int64_t Outputs>
void Tile(const GemmArgs& args, const float* x, int64_t out, float* y) {
  __m256 sums[Rows][Outputs];
  for (int64_t r = 0; r < Rows; ++r) {
    for (int64_t o = 0; o < Outputs; ++o) sums[r][o] = _mm256_setzero_ps();
  }
  Weights::template Multiply<Rows, Outputs>(args, x, out, sums);
  for (int64_t r = 0; r < Rows; ++r) {
    for (int64_t o = 0; o < Outputs; ++o) {
      y[r * args.y_stride + o] =
          SumLanes(sums[r][o]) + (args.bias != nullptr ? args.bias[out + o] : 0.0F);
    }
  }
}

/// Outputs columns from `out` on, of the rows [begin, end).
template <typename Weights, int64_t Outputs>
void Columns(const GemmArgs& args, int64_t out, int64_t begin, int64_t end) {
  const float* x = args.x + begin * args.x_stride;
  float* y = args.y + begin * args.y_stride + out;
  int64_t rows = end - begin;
  for (; rows >= kTileRows; rows -= kTileRows) {
    Tile<Weights, kTileRows, Outputs>(args, x, out, y);
    x += kTileRows * args.x_stride;
    y += kTileRows * args.y_stride;
  }
  if (rows == 2) Tile<Weights, 2, Outputs>(args, x, out, y);
  if (rows == 1) Tile<Weights, 1, Outputs>(args, x, out, y);
}

template <typename Weights>
void GemmOf(const GemmArgs& args) {
  const int64_t fitting = kRowBlockBytes / (args.k * static_cast<int64_t>(sizeof(float)));
  const int64_t block = (fitting < kTileRows ? kTileRows : fitting) / kTileRows * kTileRows;
  for (int64_t begin = 0; begin < args.rows; begin += block) {
    const int64_t end = begin + block < args.rows ? begin + block : args.rows;
    int64_t out = args.out_begin;
    for (; out + kTileOutputs <= args.out_end; out += kTileOutputs) {
      Columns<Weights, kTileOutputs>(args, out, begin, end);
    }
    for (; out < args.out_end; ++out) Columns<Weights, 1>(args, out, begin, end);
  }
}

}  // namespace

void Gemm(const GemmArgs& args) {
  switch (args.w.type) {
    case Element::kF32:
      return GemmOf<Plain<float>>(args);
    case Element::kBF16:
      return GemmOf<Plain<uint16_t>>(args);
    case Element::kQ8:
      return GemmOf<Quantized<Element::kQ8>>(args);
    case Element::kQ4:
      return GemmOf<Quantized<Element::kQ4>>(args);
  }
}

}  // namespace lookback::kernels::avx2
