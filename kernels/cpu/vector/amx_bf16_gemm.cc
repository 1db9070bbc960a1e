// Products of bf16 in tiles of 16 outputs by up to 16 rows of x. The weights are the tiles' left
// side, as they lie in the file; the right side are rows of x, which RoundRows lays out by pairs.
// An element of y is the tiles' sum over ascending steps of 32 values, whatever stands beside it.
#include "kernels/cpu/vector/amx.h"
#include "kernels/cpu/vector/bf16.h"
#include "kernels/cpu/vector/set.h"
#include "kernels/cpu/vector/tiles.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

static_assert(kRoundedRows == kTileSide && kLanes == kTileSide);
static_assert(kRoundedStep == kPairValues && kPairValues * 2 == kTileRowBytes);

// A block: so many tiles of outputs by as many of rows; with the two sides they fill the eight.
constexpr int64_t kBlockTiles = 2;
constexpr int64_t kBlockSide = kBlockTiles * kTileSide;
constexpr int kLeft = kBlockTiles * kBlockTiles, kRight = kLeft + kBlockTiles;
// A block's rows of x, which are gone over for every block of outputs, stay in the second-level
// cache.
constexpr int64_t kRowBlockBytes = int64_t{1} << 20;
// A block's weights are fetched into the second-level cache while the block before is worked on.
constexpr int64_t kFetchedBytes = int64_t{768} << 10;

int64_t Steps(int64_t k) { return (k + kPairValues - 1) / kPairValues; }

/// The values [at, at + 32) of a row of k as bf16, zeros behind them.
inline Ints RoundStep(const float* x, int64_t left) {
  const auto part = [&](int64_t i) {
    return left - i >= kLanes ? Load(x + i) : left <= i ? Zero() : LoadTail(x + i, left - i);
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(RoundToBF16(part(0))), RoundToBF16(part(kLanes)),
                            1);
}

/// How many outputs or rows a block's tiles have; the second may have none.
struct Counts {
  int64_t of[kBlockTiles];

  explicit Counts(int64_t left) {
    of[0] = Least(left, kTileSide);
    of[1] = Least(left - of[0], kTileSide);
  }
  bool operator==(const Counts& other) const {
    return of[0] == other.of[0] && of[1] == other.of[1];
  }
};

/// What a block multiplies: outputs from `out` on, rows of x from `row` on.
struct Block {
  int64_t out;
  int64_t row;
  Counts outputs;
  Counts rows;
};

/// The tiles' shapes for such a block.
inline void Shape(const Block& block) {
  TileShapes shapes;
  for (int64_t i = 0; i < kBlockTiles; ++i) {
    for (int64_t r = 0; r < kBlockTiles; ++r) {
      shapes.Set(i * kBlockTiles + r, block.outputs.of[i], block.rows.of[r] * 4);
    }
    shapes.Set(kLeft + i, block.outputs.of[i], kTileRowBytes);
    shapes.Set(kRight + i, kTileSide, block.rows.of[i] * 4);
  }
  ShapeTiles(shapes);
}

/// y of a tile, which lies in `sums` as [outputs][rows].
inline void StoreSums(const BF16GemmArgs& args, const float* sums, int64_t out, int64_t outputs,
                      int64_t row, int64_t rows) {
  const auto bias = args.bias;
  if (outputs == kTileSide && rows == kTileSide) {
    Ints lanes[kTileSide];
    for (int64_t i = 0; i < kTileSide; ++i) lanes[i] = LoadInts(sums + i * kTileSide);
    Transpose(lanes);
    const Floats more = bias != nullptr ? Load(bias + out) : Zero();
    for (int64_t r = 0; r < kTileSide; ++r) {
      Store(args.y + (row + r) * args.y_stride + out, _mm512_castsi512_ps(lanes[r]) + more);
    }
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < outputs; ++o) {
      args.y[(row + r) * args.y_stride + out + o] =
          sums[o * rows + r] + (bias != nullptr ? bias[out + o] : 0.0F);
    }
  }
}

/// The tiles must have the block's shapes. Fetches `ahead` bytes from `next` on at every step.
template <int64_t Outputs, int64_t Rows>
void Multiply(const BF16GemmArgs& args, const Block& block, const char*& next, int64_t ahead) {
  const int64_t stride = args.k * 2, steps = Steps(args.k), whole = args.k / kPairValues;
  const char* w = static_cast<const char*>(args.w.data) + block.out * stride;
  // Rows lie in tiles one after another, of 16 pairs by up to 16 rows.
  const char* x = reinterpret_cast<const char*>(args.x + block.row * steps * kPairValues);
  const int64_t other = kTileSide * steps * kTileRowBytes;
  Unrolled<Outputs>(
      [](auto o) { Unrolled<Rows>([o](auto r) { ZeroTile<o * kBlockTiles + r>(); }); });
  const auto step = [&](int64_t s, const char* from, int64_t from_stride) {
    Unrolled<Rows>([&](auto r) {
      const int64_t row_bytes = block.rows.of[r] * 4;
      LoadTile<kRight + r>(x + r * other + s * kTileSide * row_bytes, row_bytes);
    });
    Unrolled<Outputs>([&](auto o) {
      LoadTile<kLeft + o>(from + o * kTileSide * from_stride, from_stride);
      Unrolled<Rows>([o](auto r) { AddTileOfBF16<o * kBlockTiles + r, kLeft + o, kRight + r>(); });
    });
  };
  for (int64_t s = 0; s < whole; ++s) {
    Fetch<2>(next, ahead);
    step(s, w + s * kTileRowBytes, stride);
  }
  if (whole < steps) {
    // Behind a row's end lies something else, or nothing.
    alignas(64) uint16_t last[kBlockSide][kPairValues] = {};
    const auto bytes = static_cast<size_t>(args.k - whole * kPairValues) * 2;
    for (int64_t o = 0; o < block.outputs.of[0] + block.outputs.of[1]; ++o) {
      __builtin_memcpy(last[o], w + o * stride + whole * kTileRowBytes, bytes);
    }
    step(whole, reinterpret_cast<const char*>(last), kTileRowBytes);
  }
  Unrolled<Outputs>([&](auto o) {
    Unrolled<Rows>([&](auto r) {
      alignas(64) float sums[kTileSide * kTileSide];
      StoreTile<o * kBlockTiles + r>(sums, block.rows.of[r] * 4);
      StoreSums(args, sums, block.out + o * kTileSide, block.outputs.of[o],
                block.row + r * kTileSide, block.rows.of[r]);
    });
  });
}

}  // namespace

void RoundRows(const RoundRowsArgs& args) {
  const int64_t steps = Steps(args.k);
  for (int64_t begin = args.row_begin; begin < args.row_end; begin += kTileSide) {
    const int64_t rows = Least(kTileSide, args.rows - begin);
    const float* x = args.x + begin * args.x_stride;
    uint16_t* out = args.out + begin * steps * kPairValues;
    const auto lanes = LaneMask(rows);
    for (int64_t s = 0; s < steps; ++s, x += kPairValues, out += kTileSide * rows * 2) {
      const int64_t left = args.k - s * kPairValues;
      if (rows == 1) {
        _mm512_storeu_si512(out, RoundStep(x, left));
        continue;
      }
      Ints pairs[kTileSide] = {};
      for (int64_t r = 0; r < rows; ++r) pairs[r] = RoundStep(x + r * args.x_stride, left);
      Transpose(pairs);
      for (int64_t i = 0; i < kTileSide; ++i) {
        _mm512_mask_storeu_epi32(out + i * rows * 2, lanes, pairs[i]);
      }
    }
  }
}

void BF16Gemm(const BF16GemmArgs& args) {
  const int64_t steps = Steps(args.k);
  const int64_t fitting = kRowBlockBytes / (steps * kTileRowBytes) / kBlockSide * kBlockSide;
  const int64_t rows = fitting < kBlockSide ? kBlockSide : fitting;
  Counts outputs(0), rows_of_x(0);  // what the tiles are shaped for
  for (int64_t begin = 0; begin < args.rows; begin += rows) {
    const int64_t end = Least(begin + rows, args.rows);
    const int64_t visits = (end - begin + kBlockSide - 1) / kBlockSide;
    const int64_t ahead =
        WholeLines(kBlockSide * RowBytes(Element::kBF16, args.k) / (visits * steps));
    for (int64_t out = args.out_begin; out < args.out_end; out += kBlockSide) {
      const char* next = NextTile<kBlockSide>(args.w, args.k, out, kFetchedBytes);
      for (int64_t row = begin; row < end; row += kBlockSide) {
        const Block block{out, row, Counts(args.out_end - out), Counts(end - row)};
        if (!(block.outputs == outputs && block.rows == rows_of_x)) Shape(block);
        outputs = block.outputs;
        rows_of_x = block.rows;
        const bool two = outputs.of[1] > 0, both = rows_of_x.of[1] > 0;
        if (two && both) {
          Multiply<2, 2>(args, block, next, ahead);
        } else if (two) {
          Multiply<2, 1>(args, block, next, ahead);
        } else if (both) {
          Multiply<1, 2>(args, block, next, ahead);
        } else {
          Multiply<1, 1>(args, block, next, ahead);
        }
      }
    }
  }
  ReleaseTiles();
}

}  // namespace lookback::kernels::LOOKBACK_SET
