// Products of bf16, for sets that multiply them by pairs: a lane of f32 takes two at a time. An
// element of y is the sum of one register's lanes over ascending k, whatever the tile.
#include "kernels/cpu/vector/bf16.h"
#include "kernels/cpu/vector/set.h"
#include "kernels/cpu/vector/tiles.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

// 24 sums, 6 registers of x and one of w: 31 of 32.
constexpr int64_t kTileOutputs = 4;
static_assert(kTileRows == 6);
// A block's rows of x, which are gone over for every tile of outputs, stay in the second-level
// cache.
constexpr int64_t kRowBlockBytes = int64_t{384} << 10;
// A tile's weights are fetched while the tile before is worked on, if both have room in the cache:
// the first-level one for one tile of rows, the second for many.
constexpr int64_t kFewRowsTileBytes = int64_t{16} << 10;
constexpr int64_t kManyRowsTileBytes = int64_t{96} << 10;

/// Rows by Outputs elements. Fetches `ahead` bytes from `next` on at every step.
template <int64_t Rows, int64_t Outputs>
void Tile(const BF16GemmArgs& args, int64_t row, int64_t out, const char* next, int64_t ahead) {
  const uint16_t* x = args.x + row * args.k;
  const uint16_t* w = static_cast<const uint16_t*>(args.w.data) + out * args.k;
  Floats sums[Rows][Outputs];
  Unrolled<Rows>([&](auto r) { Unrolled<Outputs>([&](auto o) { sums[r][o] = Zero(); }); });
  const auto step = [&](int64_t i, const auto& load) __attribute__((always_inline)) {
    Pairs rows[Rows];
    Unrolled<Rows>([&](auto r) { rows[r] = load(x + r * args.k + i); });
    Unrolled<Outputs>([&](auto o) __attribute__((always_inline)) {
      const Pairs weights = load(w + o * args.k + i);
      Unrolled<Rows>([&](auto r) { sums[r][o] = AddDots(sums[r][o], rows[r], weights); });
    });
  };
  int64_t i = 0;
  for (; i + kPairValues <= args.k; i += kPairValues) {
    Fetch<1>(next, ahead);
    step(i, [](const uint16_t* from) { return LoadPairs(from); });
  }
  if (const int64_t left = args.k - i; left != 0) {
    step(i, [left](const uint16_t* from) { return LoadPairsTail(from, left); });
  }
  Unrolled<Rows>([&](auto r) {
    Unrolled<Outputs>([&](auto o) {
      args.y[(row + r) * args.y_stride + out + o] =
          SumLanes(sums[r][o]) + (args.bias != nullptr ? args.bias[out + o] : 0.0F);
    });
  });
}

/// Outputs columns from `out` on, of the rows [begin, end).
template <int64_t Outputs>
void Columns(const BF16GemmArgs& args, int64_t begin, int64_t end, int64_t out) {
  int64_t row = begin;
  const char* next = nullptr;
  int64_t ahead = 0;
  if (end - begin <= kTileRows) {
    next = NextTile<Outputs>(args.w, args.k, out, kFewRowsTileBytes);
    ahead = Outputs * RowBytes(Element::kBF16, kPairValues);
  }
  // Fetched a share at a time: as many lines at once would stop the loads that are waited for.
  const char* far = NextTile<Outputs>(args.w, args.k, out, kManyRowsTileBytes);
  const int64_t shares = (end - begin + kTileRows - 1) / kTileRows;
  const int64_t share = WholeLines(Outputs * RowBytes(Element::kBF16, args.k) / shares);
  for (; row + kTileRows <= end; row += kTileRows) {
    if (next == nullptr) Fetch<2>(far, share);
    Tile<kTileRows, Outputs>(args, row, out, next, ahead);
  }
  Unrolled<kTileRows - 1>([&](auto i) {
    if (end - row == i + 1) Tile<i + 1, Outputs>(args, row, out, next, ahead);
  });
}

}  // namespace

void RoundRows(const RoundRowsArgs& args) {
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    const float* x = args.x + row * args.x_stride;
    uint16_t* out = args.out + row * args.k;
    int64_t i = 0;
    for (; i + kLanes <= args.k; i += kLanes) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), RoundToBF16(Load(x + i)));
    }
    if (const int64_t left = args.k - i; left != 0) {
      _mm256_mask_storeu_epi16(out + i, LaneMask(left), RoundToBF16(LoadTail(x + i, left)));
    }
  }
}

void BF16Gemm(const BF16GemmArgs& args) {
  const int64_t fitting = kRowBlockBytes / RowBytes(Element::kBF16, args.k);
  const int64_t rows = (fitting < kTileRows ? kTileRows : fitting) / kTileRows * kTileRows;
  for (int64_t begin = 0; begin < args.rows; begin += rows) {
    const int64_t end = Least(begin + rows, args.rows);
    int64_t out = args.out_begin;
    for (; out + kTileOutputs <= args.out_end; out += kTileOutputs) {
      Columns<kTileOutputs>(args, begin, end, out);
    }
    for (; out < args.out_end; ++out) Columns<1>(args, begin, end, out);
  }
}

}  // namespace lookback::kernels::LOOKBACK_SET
