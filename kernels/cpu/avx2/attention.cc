// Attention over block lists: the order of summation is that of the reference (blocks in ascending
// absolute order by online softmax), with eight lanes inside a block.
#include <math.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/simd.h"
#include "kernels/cpu/block_walk.h"

namespace lookback::kernels::avx2 {
namespace {

constexpr int64_t kScoredAtOnce = 4;  // keys

/// SumLanes of four registers at once: each result in the same order.
inline __m128 SumLanesOfFour(const __m256 (&x)[4]) {
  __m128 a = _mm_add_ps(_mm256_castps256_ps128(x[0]), _mm256_extractf128_ps(x[0], 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(x[1]), _mm256_extractf128_ps(x[1], 1));
  __m128 c = _mm_add_ps(_mm256_castps256_ps128(x[2]), _mm256_extractf128_ps(x[2], 1));
  __m128 d = _mm_add_ps(_mm256_castps256_ps128(x[3]), _mm256_extractf128_ps(x[3], 1));
  _MM_TRANSPOSE4_PS(a, b, c, d);
  return _mm_add_ps(_mm_add_ps(a, c), _mm_add_ps(b, d));
}

/// scores[t] = scale · <query, key t> for t in [begin, end).
template <typename T>
inline void Score(const float* query, const T* keys, int64_t dim, float scale, int64_t begin,
                  int64_t end, float* scores) {
  for (int64_t t = begin; t < end; t += kScoredAtOnce) {
    // A last piece of fewer keys scores one of them several times.
    const T* key[kScoredAtOnce];
    for (int64_t j = 0; j < kScoredAtOnce; ++j) {
      key[j] = keys + (t + j < end ? t + j : end - 1) * dim;
    }
    __m256 sums[kScoredAtOnce] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                                  _mm256_setzero_ps()};
    int64_t c = 0;
    for (; c + kLanes <= dim; c += kLanes) {
      const __m256 part = Load(query + c);
      for (int64_t j = 0; j < kScoredAtOnce; ++j) {
        sums[j] = _mm256_fmadd_ps(part, Load(key[j] + c), sums[j]);
      }
    }
    if (c < dim) {
      const __m256 part = LoadTail(query + c, dim - c);
      for (int64_t j = 0; j < kScoredAtOnce; ++j) {
        sums[j] = _mm256_fmadd_ps(part, LoadTail(key[j] + c, dim - c), sums[j]);
      }
    }
    float four[kScoredAtOnce];
    _mm_storeu_ps(four, _mm_mul_ps(SumLanesOfFour(sums), _mm_set1_ps(scale)));
    for (int64_t j = 0; j < kScoredAtOnce && t + j < end; ++j) scores[t + j] = four[j];
  }
}

/// out[c] = shrink · out[c] + sum over the shares that are not zero of share[t] · values[t][c], for
/// Registers · 8 channels.
template <typename T, int64_t Registers>
inline void AddValues(const T* values, const float* shares, const SeenKeys& seen, float shrink,
                      int64_t dim, float* out) {
  __m256 sums[Registers];
  for (int64_t j = 0; j < Registers; ++j) {
    sums[j] = _mm256_mul_ps(Load(out + j * kLanes), _mm256_set1_ps(shrink));
  }
  for (int64_t run = 0; run < 2; ++run) {
    for (int64_t t = seen.begin[run]; t < seen.end[run]; ++t) {
      const __m256 share = _mm256_set1_ps(shares[t]);
      const T* value = values + t * dim;
      for (int64_t j = 0; j < Registers; ++j) {
        sums[j] = _mm256_fmadd_ps(share, Load(value + j * kLanes), sums[j]);
      }
    }
  }
  for (int64_t j = 0; j < Registers; ++j) _mm256_storeu_ps(out + j * kLanes, sums[j]);
}

/// The same for the last `count` < 8 channels.
template <typename T>
inline void AddLastValues(const T* values, const float* shares, const SeenKeys& seen, float shrink,
                          int64_t dim, int64_t count, float* out) {
  __m256 sum = _mm256_mul_ps(LoadTail(out, count), _mm256_set1_ps(shrink));
  for (int64_t run = 0; run < 2; ++run) {
    for (int64_t t = seen.begin[run]; t < seen.end[run]; ++t) {
      sum = _mm256_fmadd_ps(_mm256_set1_ps(shares[t]), LoadTail(values + t * dim, count), sum);
    }
  }
  StoreTail(out, count, sum);
}

/// What one query head makes of the keys of one block that it sees.
template <typename T>
struct Head {
  static void Take(const AttentionArgs& args, const float* query, const BlockView<T>& block,
                   const SeenKeys& seen, Softmax& state, float* out) {
    const int64_t dim = args.pool.head_dim;
    alignas(32) float scores[kMaxBlockTokens];
    const int64_t padded = (block.tokens + kLanes - 1) / kLanes * kLanes;
    for (int64_t t = 0; t < padded; t += kLanes) {
      _mm256_store_ps(scores + t, _mm256_set1_ps(-INFINITY));
    }
    for (int64_t run = 0; run < 2; ++run) {
      Score(query, block.keys, dim, args.scale, seen.begin[run], seen.end[run], scores);
    }
    __m256 top = _mm256_set1_ps(state.largest);
    for (int64_t t = 0; t < padded; t += kLanes) {
      top = _mm256_max_ps(top, _mm256_load_ps(scores + t));
    }
    const float largest = MaxLanes(top);
    top = _mm256_set1_ps(largest);
    __m256 sum = _mm256_setzero_ps();
    for (int64_t t = 0; t < padded; t += kLanes) {
      const __m256 share = Exp(_mm256_sub_ps(_mm256_load_ps(scores + t), top));
      _mm256_store_ps(scores + t, share);
      sum = _mm256_add_ps(sum, share);
    }
    const float shrink = ExpOne(state.largest - largest);
    int64_t c = 0;
    for (; c + 8 * kLanes <= dim; c += 8 * kLanes) {
      AddValues<T, 8>(block.values + c, scores, seen, shrink, dim, out + c);
    }
    for (; c + kLanes <= dim; c += kLanes) {
      AddValues<T, 1>(block.values + c, scores, seen, shrink, dim, out + c);
    }
    if (c < dim) AddLastValues(block.values + c, scores, seen, shrink, dim, dim - c, out + c);
    state.largest = largest;
    state.sum = state.sum * shrink + SumLanes(sum);
  }
};

}  // namespace

void Attention(const AttentionArgs& args) { WalkBlocks<Head>(args); }

void MaskedAttention(const AttentionArgs& args) { WalkAllBlocks<Head>(args); }

}  // namespace lookback::kernels::avx2
