// What is needed next, fetched while something is worked on: the weights of the next tile, the next
// block of keys and values.
#pragma once

#include <immintrin.h>

#include "kernels/kernels.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

constexpr int64_t kLineBytes = 64;

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

/// `bytes` and what is missing from a whole line.
inline int64_t WholeLines(int64_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

/// The weights after the Outputs rows from `out` on; null where a tile has more than `limit` bytes.
template <int64_t Outputs>
inline const char* NextTile(const WeightView& w, int64_t k, int64_t out, int64_t limit) {
  const int64_t row = RowBytes(w.type, k);
  if (Outputs * row > limit) return nullptr;
  return static_cast<const char*>(w.data) + (out + Outputs) * row;
}

/// Fetches `bytes` from `next` on into the cache of level kLevel, 1 or 2, and moves it behind them;
/// does nothing for null.
template <int kLevel>
inline void Fetch(const char*& next, int64_t bytes) {
  if (next == nullptr) return;
  for (int64_t at = 0; at < bytes; at += kLineBytes) {
    if constexpr (kLevel == 1) {
      _mm_prefetch(next + at, _MM_HINT_T0);
    } else {
      _mm_prefetch(next + at, _MM_HINT_T1);
    }
  }
  next += bytes;
}

}  // namespace
}  // namespace lookback::kernels::LOOKBACK_SET
