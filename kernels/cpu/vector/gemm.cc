#include "kernels/cpu/vector/set.h"
#include "kernels/cpu/vector/simd.h"
#include "kernels/cpu/vector/tiles.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

// An element of y is the sum of one register's kLanes sums over ascending k, whatever the tile and
// whatever the type of the weights, which are widened to f32 without rounding.

// A tile of a product is kTileRows rows by so many outputs.
constexpr int64_t kTileOutputs = 4;
// Up to so many rows, weights are widened for each tile; beyond, once for all rows of a block.
constexpr int64_t kFewRows = 6;
// A block's rows of x, which are gone over for every tile of outputs, stay in the second-level
// cache, and the widened weights of a tile in the first.
constexpr int64_t kRowBlockBytes = int64_t{384} << 10;
constexpr int64_t kBlockRows = 96;
constexpr int64_t kBlockDepth = 1024;
// A tile's weights are fetched while the tile before is worked on, if both have room in the cache:
// the first-level one for few rows, the second for many. What is longer makes streams that the CPU
// fetches ahead by itself.
constexpr int64_t kFewRowsTileBytes = int64_t{16} << 10;
constexpr int64_t kManyRowsTileBytes = int64_t{96} << 10;

/// What weights are loaded by: a quantized group, 32 values of one row in f32.
constexpr int64_t kPiece = kQuantGroup;
struct Piece {
  Floats part[kPiece / kLanes];
};

/// Weights of f32 or bf16.
template <typename T>
struct Plain {
  static constexpr int64_t kPieceBytes = kPiece * static_cast<int64_t>(sizeof(T));

  static const T* At(const GemmArgs& args, int64_t row, int64_t piece) {
    return static_cast<const T*>(args.w.data) + row * args.k + piece * kPiece;
  }
  static inline Piece Whole(const GemmArgs& args, int64_t row, int64_t piece) {
    const T* from = At(args, row, piece);
    Piece out;
    for (int64_t j = 0; j < kPiece / kLanes; ++j) out.part[j] = Load(from + j * kLanes);
    return out;
  }
  /// The first `count` of a piece, zeros behind them.
  static inline Piece Part(const GemmArgs& args, int64_t row, int64_t piece, int64_t count) {
    const T* from = At(args, row, piece);
    Piece out;
    for (int64_t j = 0; j < kPiece / kLanes; ++j) {
      const int64_t left = count - j * kLanes;
      out.part[j] = left <= 0 ? Zero() : LoadTail(from + j * kLanes, Least(left, kLanes));
    }
    return out;
  }
};

/// 32 integers of 8 bits times `scale`.
inline Piece LoadQ8(const int8_t* from, Floats scale) {
  Piece out;
  for (int64_t j = 0; j < kPiece / kLanes; ++j) {
    out.part[j] = ToFloats(Widen(from + j * kLanes)) * scale;
  }
  return out;
}

/// (nibble − 8) · scale as nibble · scale − 8 · scale, which is exact as well.
inline Piece LoadQ4(const uint8_t* from, Floats scale) {
  const Floats offset = scale * All(-8.0F);
  constexpr int64_t kHalf = kPiece / kLanes / 2;
  Piece out;
  for (int64_t j = 0; j < kHalf; ++j) {
    const Ints bytes = Widen(from + j * kLanes);
    out.part[j] = Fma(ToFloats(LowNibbles(bytes)), scale, offset);
    out.part[kHalf + j] = Fma(ToFloats(HighNibbles(bytes)), scale, offset);
  }
  return out;
}

/// Quantized weights. An integer of 8 bits times a scale of 11 is exact in f32.
template <Element kType>
struct Quantized {
  static constexpr int64_t kPieceBytes = kType == Element::kQ4 ? kPiece / 2 : kPiece;

  static inline Floats Scale(const GemmArgs& args, int64_t row, int64_t group) {
    const int bits = args.w.scale[row * QuantGroups(args.k) + group];
    return All(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))));
  }
  static inline Piece Whole(const GemmArgs& args, int64_t row, int64_t group) {
    const Floats scale = Scale(args, row, group);
    if constexpr (kType == Element::kQ4) {
      return LoadQ4(static_cast<const uint8_t*>(args.w.data) +
                        (row * QuantGroups(args.k) + group) * kQ4GroupBytes,
                    scale);
    } else {
      return LoadQ8(static_cast<const int8_t*>(args.w.data) + row * args.k + group * kPiece, scale);
    }
  }
  static inline Piece Part(const GemmArgs& args, int64_t row, int64_t group, int64_t count) {
    if constexpr (kType == Element::kQ4) {
      return Whole(args, row, group);  // zeros are in the file
    } else {
      const int8_t* from = static_cast<const int8_t*>(args.w.data) + row * args.k + group * kPiece;
      int8_t padded[kPiece] = {};
      for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
      return LoadQ8(padded, Scale(args, row, group));
    }
  }
};

template <int64_t Rows, int64_t Outputs>
inline void StoreSums(const GemmArgs& args, int64_t row, int64_t out,
                      const Floats (&sums)[Rows][Outputs]) {
  for (int64_t r = 0; r < Rows; ++r) {
    for (int64_t o = 0; o < Outputs; ++o) {
      args.y[(row + r) * args.y_stride + out + o] =
          SumLanes(sums[r][o]) + (args.bias != nullptr ? args.bias[out + o] : 0.0F);
    }
  }
}

/// Rows by Outputs elements, weights widened on the way.
template <typename Weights, int64_t Rows, int64_t Outputs>
void Tile(const GemmArgs& args, int64_t row, int64_t out) {
  Floats sums[Rows][Outputs];
  for (int64_t r = 0; r < Rows; ++r) {
    for (int64_t o = 0; o < Outputs; ++o) sums[r][o] = Zero();
  }
  const float* x = args.x + row * args.x_stride;
  const char* next = NextTile<Outputs>(args.w, args.k, out, kFewRowsTileBytes);
  const int64_t whole = args.k / kPiece;
  for (int64_t piece = 0; piece < whole; ++piece, x += kPiece) {
    Fetch<1>(next, Outputs * Weights::kPieceBytes);
    for (int64_t o = 0; o < Outputs; ++o) {
      const Piece weights = Weights::Whole(args, out + o, piece);
      for (int64_t j = 0; j < kPiece / kLanes; ++j) {
        for (int64_t r = 0; r < Rows; ++r) {
          sums[r][o] = Fma(Load(x + r * args.x_stride + j * kLanes), weights.part[j], sums[r][o]);
        }
      }
    }
  }
  if (const int64_t left = args.k - whole * kPiece; left != 0) {
    for (int64_t o = 0; o < Outputs; ++o) {
      const Piece weights = Weights::Part(args, out + o, whole, left);
      for (int64_t j = 0; j * kLanes < left; ++j) {
        for (int64_t r = 0; r < Rows; ++r) {
          const float* from = x + r * args.x_stride + j * kLanes;
          sums[r][o] = Fma(LoadTail(from, left - j * kLanes), weights.part[j], sums[r][o]);
        }
      }
    }
  }
  StoreSums(args, row, out, sums);
}

template <typename Weights, int64_t Outputs>
void FewRows(const GemmArgs& args, int64_t out) {
  int64_t row = 0;
  for (; row + kTileRows <= args.rows; row += kTileRows) {
    Tile<Weights, kTileRows, Outputs>(args, row, out);
  }
  Unrolled<kTileRows - 1>([&](auto i) {
    if (args.rows - row == i + 1) Tile<Weights, i + 1, Outputs>(args, row, out);
  });
}

/// A block of rows against a tile of outputs: the weights of up to kBlockDepth of k, widened, and
/// the sums so far.
template <int64_t Outputs>
struct Block {
  alignas(64) float weights[Outputs][kBlockDepth];
  alignas(64) Floats sums[kBlockRows][Outputs];

  /// The weights from piece `begin` on; `depth` of them, zeros up to the next whole register.
  template <typename Weights>
  void Widen(const GemmArgs& args, int64_t out, int64_t begin, int64_t depth) {
    for (int64_t i = 0; i < depth; i += kPiece) {
      const int64_t piece = begin + i / kPiece;
      for (int64_t o = 0; o < Outputs; ++o) {
        const Piece values = depth - i >= kPiece ? Weights::Whole(args, out + o, piece)
                                                 : Weights::Part(args, out + o, piece, depth - i);
        for (int64_t j = 0; j < kPiece / kLanes; ++j) {
          Store(&weights[o][i + j * kLanes], values.part[j]);
        }
      }
    }
  }

  /// Adds the products with Rows rows of x to the sums from `row` on.
  template <int64_t Rows>
  void Multiply(const float* x, int64_t x_stride, int64_t depth, int64_t row) {
    Floats own[Rows][Outputs];
    for (int64_t r = 0; r < Rows; ++r) {
      for (int64_t o = 0; o < Outputs; ++o) own[r][o] = sums[row + r][o];
    }
    const auto add = [&](int64_t i, const Floats(&part)[Rows]) {
      for (int64_t o = 0; o < Outputs; ++o) {
        const Floats w = Load(&weights[o][i]);
        for (int64_t r = 0; r < Rows; ++r) own[r][o] = Fma(part[r], w, own[r][o]);
      }
    };
    Floats part[Rows];
    int64_t i = 0;
    for (; i + kLanes <= depth; i += kLanes) {
      for (int64_t r = 0; r < Rows; ++r) part[r] = Load(x + r * x_stride + i);
      add(i, part);
    }
    if (i < depth) {
      for (int64_t r = 0; r < Rows; ++r) part[r] = LoadTail(x + r * x_stride + i, depth - i);
      add(i, part);
    }
    for (int64_t r = 0; r < Rows; ++r) {
      for (int64_t o = 0; o < Outputs; ++o) sums[row + r][o] = own[r][o];
    }
  }
};

/// Outputs columns from `out` on, of the rows [begin, end): at most kBlockRows.
template <typename Weights, int64_t Outputs>
void ManyRows(const GemmArgs& args, int64_t begin, int64_t end, int64_t out) {
  Block<Outputs> block;
  const int64_t rows = end - begin;
  for (int64_t r = 0; r < rows; ++r) {
    for (Floats& sum : block.sums[r]) sum = Zero();
  }
  // Fetched a share at a time: as many lines at once would stop the loads that are waited for.
  const char* next = NextTile<Outputs>(args.w, args.k, out, kManyRowsTileBytes);
  const int64_t shares =
      (args.k + kBlockDepth - 1) / kBlockDepth * ((rows + kTileRows - 1) / kTileRows);
  const int64_t share = WholeLines(Outputs * RowBytes(args.w.type, args.k) / shares);
  for (int64_t first = 0; first < args.k; first += kBlockDepth) {
    const int64_t depth = Least(kBlockDepth, args.k - first);
    block.template Widen<Weights>(args, out, first / kPiece, depth);
    const float* x = args.x + begin * args.x_stride + first;
    int64_t r = 0;
    for (; r + kTileRows <= rows; r += kTileRows) {
      Fetch<2>(next, share);
      block.template Multiply<kTileRows>(x + r * args.x_stride, args.x_stride, depth, r);
    }
    Unrolled<kTileRows - 1>([&](auto i) {
      if (rows - r != i + 1) return;
      block.template Multiply<i + 1>(x + r * args.x_stride, args.x_stride, depth, r);
    });
  }
  for (int64_t r = 0; r < rows; ++r) {
    Floats sums[1][Outputs];
    for (int64_t o = 0; o < Outputs; ++o) sums[0][o] = block.sums[r][o];
    StoreSums(args, begin + r, out, sums);
  }
}

template <typename Weights>
void GemmOf(const GemmArgs& args) {
  int64_t out = args.out_begin;
  if (args.rows <= kFewRows) {
    for (; out + kTileOutputs <= args.out_end; out += kTileOutputs) {
      FewRows<Weights, kTileOutputs>(args, out);
    }
    for (; out < args.out_end; ++out) FewRows<Weights, 1>(args, out);
    return;
  }
  const int64_t fitting = kRowBlockBytes / (args.k * static_cast<int64_t>(sizeof(float)));
  const int64_t rows =
      Least(kBlockRows, (fitting < kTileRows ? kTileRows : fitting) / kTileRows * kTileRows);
  for (int64_t begin = 0; begin < args.rows; begin += rows) {
    const int64_t end = Least(begin + rows, args.rows);
    for (out = args.out_begin; out + kTileOutputs <= args.out_end; out += kTileOutputs) {
      ManyRows<Weights, kTileOutputs>(args, begin, end, out);
    }
    for (; out < args.out_end; ++out) ManyRows<Weights, 1>(args, begin, end, out);
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

}  // namespace lookback::kernels::LOOKBACK_SET
