// The tiles of AMX: eight registers of up to 16 rows by 64 bytes, which a thread shapes before it
// uses them. In assembler, since GCC 12's intrinsics do not say what memory they read and write.
#pragma once

#include "kernels/cpu/vector/simd.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

constexpr int64_t kTileSide = 16;  // rows, and lanes of 32 bits in one
constexpr int64_t kTileRowBytes = 64;

/// What LDTILECFG reads: palette 1.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  /// A register that is not used has neither rows nor bytes; only one of them is a fault.
  void Set(int64_t tile, int64_t row_count, int64_t bytes) {
    if (row_count == 0 || bytes == 0) return;
    rows[tile] = static_cast<uint8_t>(row_count);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

/// All tiles are zeros afterwards.
inline void ShapeTiles(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
/// What a thread has left in its tiles would be saved at every switch to another.
inline void ReleaseTiles() { asm volatile("tilerelease"); }

template <int kTile>
inline void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kTile>
inline void LoadTile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void StoreTile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}
/// sums[m][n] += over ascending i: a[m][2i] · b[i][2n] + a[m][2i + 1] · b[i][2n + 1], of bf16; even
/// and odd i are summed apart, each rounded to nearest, then added. Subnormal numbers count as
/// zeros.
template <int kSums, int kA, int kB>
inline void AddTileOfBF16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
}
/// The same of fours of bytes, all with a sign, in integers of 32 bits.
template <int kSums, int kA, int kB>
inline void AddTileOfBytes() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
}

/// Lane j of register i changes places with lane i of register j.
inline void Transpose(Ints (&x)[kTileSide]) {
  Ints y[kTileSide];
  for (int64_t i = 0; i < kTileSide; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int64_t i = 0; i < kTileSide; i += 4) {
    for (int64_t j = 0; j < 2; ++j) {
      x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + j + 2]);
      x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + j + 2]);
    }
  }
  // Quarter q of x[4a + b] has lane 4q + b of the registers 4a to 4a + 3.
  for (int64_t b = 0; b < 4; ++b) {
    y[b] = _mm512_shuffle_i32x4(x[b], x[4 + b], 0x44);
    y[4 + b] = _mm512_shuffle_i32x4(x[b], x[4 + b], 0xEE);
    y[8 + b] = _mm512_shuffle_i32x4(x[8 + b], x[12 + b], 0x44);
    y[12 + b] = _mm512_shuffle_i32x4(x[8 + b], x[12 + b], 0xEE);
  }
  for (int64_t b = 0; b < 4; ++b) {
    x[b] = _mm512_shuffle_i32x4(y[b], y[8 + b], 0x88);
    x[4 + b] = _mm512_shuffle_i32x4(y[b], y[8 + b], 0xDD);
    x[8 + b] = _mm512_shuffle_i32x4(y[4 + b], y[12 + b], 0x88);
    x[12 + b] = _mm512_shuffle_i32x4(y[4 + b], y[12 + b], 0xDD);
  }
}

}  // namespace
}  // namespace lookback::kernels::LOOKBACK_SET
