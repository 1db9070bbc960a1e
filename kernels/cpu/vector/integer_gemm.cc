// Products of quantized activations with quantized weights. An element of y is one sum over
// ascending groups, an integer times its scales at a time. What is inside a group is exact, so it
// may be summed by whatever way is fastest.
#include <math.h>

#ifdef __AMX_INT8__
#include "kernels/cpu/vector/amx.h"
#endif
#include "kernels/cpu/vector/integer_few_rows.h"
#include "kernels/cpu/vector/integer_weights.h"
#include "kernels/cpu/vector/set.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

// Up to so many rows, a group's products are summed across a register; beyond, the weights are laid
// out anew so that a register holds one step of many outputs.
constexpr int64_t kFewRows = 5;
// A panel's weights are fetched into the second-level cache while the panel before is worked on.
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
constexpr int64_t kBlockRows = 512;  // a tile's sums are in registers; what takes time is packing
#else
constexpr int64_t kBlockRows = 128;
#endif

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
  /// Shapes the tiles of both turns of MultiplyTile, for `rows` rows of x.
  static void ShapeFor(int64_t rows) {
    TileShapes shapes;
    for (int64_t sums = 0; sums < 6; sums += 3) {
      shapes.Set(sums, rows, kTileRowBytes);
      shapes.Set(sums + 1, rows, kQuantGroup);
      shapes.Set(sums + 2, kGroupSteps, kTileRowBytes);
    }
    ShapeTiles(shapes);
  }
  /// Adds the products with `rows` rows of x, for which the tiles must be shaped, from `row` on to
  /// the sums from `to` on. Fetches `bytes_ahead` bytes from `next` on.
  void MultiplyTile(const IntegerGemmArgs& args, int64_t row, int64_t rows, int64_t first,
                    int64_t groups, float (*to)[kPanelOutputs], const char*& next,
                    int64_t bytes_ahead) {
    const int64_t ahead = WholeLines(bytes_ahead / (groups * kPanelRegisters));
    const int64_t stride = QuantGroups(args.k), at = row * stride + first;
    alignas(64) float x_scale[kPanelGroups][kTileSide];  // zeros for rows that are not there
    for (int64_t g = 0; g < groups; g += kTileSide) {
      Ints lanes[kTileSide];
      const auto there = LaneMask(Least(kTileSide, groups - g));
      for (int64_t r = 0; r < kTileSide; ++r) {
        lanes[r] =
            r < rows ? _mm512_maskz_loadu_epi32(there, args.x.scale + at + r * stride + g) : Ints{};
      }
      Transpose(lanes);
      for (int64_t i = 0; i < kTileSide; ++i) {
        Store(x_scale[g + i], _mm512_castsi512_ps(lanes[i]));
      }
    }
    alignas(64) int32_t parts[2][kTileSide][kTileSide];
    for (int64_t c = 0; c < kPanelOutputs; c += kLanes) {
      Floats total[kTileSide];
      Unrolled<kTileSide>([&](auto r) { total[r] = r < rows ? Load(&to[r][c]) : Zero(); });
      // Groups by turns: the tiles multiply one while the one before is scaled.
      const auto multiply = [&](int64_t g, auto turn) __attribute__((always_inline)) {
        constexpr int kSums = 3 * turn, kLeft = kSums + 1, kRight = kSums + 2;
        Fetch<2>(next, ahead);
        ZeroTile<kSums>();
        LoadTile<kLeft>(args.x.q + (at + g) * kQuantGroup, stride * kQuantGroup);
        LoadTile<kRight>(bytes[g * kGroupSteps][c], kPanelOutputs * kStep);
        AddTileOfBytes<kSums, kLeft, kRight>();
        StoreTile<kSums>(parts[turn], kTileRowBytes);
      };
      const auto scale = [&](int64_t g, auto turn) __attribute__((always_inline)) {
        const Floats of_outputs = Load(&scales[g][c]);
        Unrolled<kTileSide>([&](auto r) __attribute__((always_inline)) {
          total[r] =
              Fma(ToFloats(LoadInts(parts[turn][r])), of_outputs * All(x_scale[g][r]), total[r]);
        });
      };
      multiply(0, Constant<0>{});
      for (int64_t g = 0; g < groups; g += 2) {
        if (g + 1 < groups) multiply(g + 1, Constant<1>{});
        scale(g, Constant<0>{});
        if (g + 2 < groups) multiply(g + 2, Constant<0>{});
        if (g + 1 < groups) scale(g + 1, Constant<1>{});
      }
      Unrolled<kTileSide>([&](auto r) {
        if (r < rows) Store(&to[r][c], total[r]);
      });
    }
  }
#else
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
#endif
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
  const int64_t share = WholeLines(kPanelOutputs * RowBytes(kType, args.k) / shares);
  for (int64_t first = 0; first < groups; first += kPanelGroups) {
    const int64_t count = Least(kPanelGroups, groups - first);
    panel.Pack(args, outputs, first, count);
    int64_t row = begin;
#ifdef __AMX_INT8__
    for (; row < end; row += kTileSide) {
      const int64_t rows = Least(kTileSide, end - row);
      if (row == begin || rows < kTileSide) panel.ShapeFor(rows);
      panel.MultiplyTile(args, row, rows, first, count, panel.sums + (row - begin), next,
                         kTileSide / kTileRows * share);
    }
    ReleaseTiles();
#else
    for (; row + kTileRows <= end; row += kTileRows) {
      Fetch<2>(next, share);
      panel.template Multiply<kTileRows>(args, row, first, count, panel.sums + (row - begin));
    }
    for (; row < end; ++row) {
      panel.template Multiply<1>(args, row, first, count, panel.sums + (row - begin));
    }
#endif
  }
  for (int64_t row = begin; row < end; ++row) {
    StoreSums(args, row, outputs, panel.sums[row - begin]);
  }
}

template <Element kType>
void GemmOf(const IntegerGemmArgs& args) {
  if (args.rows <= kFewRows) {
    for (int64_t out = args.out_begin; out < args.out_end; out += kFewOutputs) {
      const Outputs outputs{out, Least(kFewOutputs, args.out_end - out)};
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
