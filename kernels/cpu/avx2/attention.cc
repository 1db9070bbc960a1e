// Attention over block lists: the order of summation is that of the reference (blocks in ascending
// absolute order by online softmax), with eight lanes inside a block.
#include <math.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/simd.h"
#include "kernels/cpu/avx2/tiles.h"
#include "kernels/cpu/block_walk.h"

namespace lookback::kernels::avx2 {
namespace {

constexpr int64_t kScoredAtOnce = 4;  // keys
// Sums of values kept in registers; more channels take another pass over the shares.
constexpr int64_t kMostRegisters = 12;
// Keys, then values, of a block that several query heads see are widened once for all of them, if
// they take no more than this of the first-level cache.
constexpr int64_t kWidenedValues = 4096;
constexpr int64_t kLineValues = kLineBytes / static_cast<int64_t>(sizeof(uint16_t));

/// SumLanes of four registers at once: each result in the same order.
inline __m128 SumLanesOfFour(const __m256 (&x)[4]) {
  __m128 a = _mm_add_ps(_mm256_castps256_ps128(x[0]), _mm256_extractf128_ps(x[0], 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(x[1]), _mm256_extractf128_ps(x[1], 1));
  __m128 c = _mm_add_ps(_mm256_castps256_ps128(x[2]), _mm256_extractf128_ps(x[2], 1));
  __m128 d = _mm_add_ps(_mm256_castps256_ps128(x[3]), _mm256_extractf128_ps(x[3], 1));
  _MM_TRANSPOSE4_PS(a, b, c, d);
  return _mm_add_ps(_mm_add_ps(a, c), _mm_add_ps(b, d));
}

/// scores[t] = scale · <query, key t> for t in [begin, end). What lies from `next` on is fetched
/// meanwhile, as much as keys and values of those tokens take.
template <typename T>
inline void Score(const float* query, const T* keys, int64_t dim, float scale, int64_t begin,
                  int64_t end, const char*& next, float* scores) {
  for (int64_t t = begin; t < end; t += kScoredAtOnce) {
    Fetch<1>(next, 2 * kScoredAtOnce * dim * static_cast<int64_t>(sizeof(T)));
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

/// The shares of the keys that one query head sees, those of the others 0, before the division by
/// the softmax' sum; returns what the sums so far shrink by.
template <typename T>
float TakeKeys(const AttentionArgs& args, const T* keys, int64_t tokens, const HeadTask& task,
               const char*& next, float* shares) {
  Softmax& state = *task.softmax;
  const int64_t padded = (tokens + kLanes - 1) / kLanes * kLanes;
  for (int64_t t = 0; t < padded; t += kLanes) {
    _mm256_store_ps(shares + t, _mm256_set1_ps(-INFINITY));
  }
  for (int64_t run = 0; run < 2; ++run) {
    Score(task.query, keys, args.pool.head_dim, args.scale, task.seen.begin[run],
          task.seen.end[run], next, shares);
  }
  __m256 top = _mm256_set1_ps(state.largest);
  for (int64_t t = 0; t < padded; t += kLanes) {
    top = _mm256_max_ps(top, _mm256_load_ps(shares + t));
  }
  const float largest = MaxLanes(top);
  top = _mm256_set1_ps(largest);
  __m256 sum = _mm256_setzero_ps();
  for (int64_t t = 0; t < padded; t += kLanes) {
    const __m256 share = Exp(_mm256_sub_ps(_mm256_load_ps(shares + t), top));
    _mm256_store_ps(shares + t, share);
    sum = _mm256_add_ps(sum, share);
  }
  const float shrink = ExpOne(state.largest - largest);
  state.largest = largest;
  state.sum = state.sum * shrink + SumLanes(sum);
  return shrink;
}

template <typename T>
void TakeValues(const T* values, int64_t dim, const HeadTask& task, const float* shares,
                float shrink) {
  int64_t c = 0;
  while (const int64_t left = (dim - c) / kLanes) {
    const int64_t registers = left > kMostRegisters ? kMostRegisters / 2 : left;
    Unrolled<kMostRegisters>([&](auto i) {
      if (registers != i + 1) return;
      AddValues<T, i + 1>(values + c, shares, task.seen, shrink, dim, task.out + c);
    });
    c += registers * kLanes;
  }
  if (c < dim) {
    AddLastValues(values + c, shares, task.seen, shrink, dim, dim - c, task.out + c);
  }
}

/// Widens the rows of `from` that any of the tasks sees.
inline void WidenSeen(const uint16_t* from, int64_t dim, const HeadTask* tasks, int64_t count,
                      const char*& next, float* to) {
  for (int64_t run = 0; run < 2; ++run) {
    int64_t begin = kMaxBlockTokens, end = 0;
    for (int64_t i = 0; i < count; ++i) {
      const SeenKeys& seen = tasks[i].seen;
      if (seen.begin[run] == seen.end[run]) continue;
      begin = Least(begin, seen.begin[run]);
      end = Most(end, seen.end[run]);
    }
    int64_t at = begin * dim;
    for (; at + kLineValues <= end * dim; at += kLineValues) {
      Fetch<1>(next, kLineBytes);
      for (int64_t i = 0; i < kLineValues; i += kLanes) {
        _mm256_store_ps(to + at + i, Load(from + at + i));
      }
    }
    for (; at < end * dim; at += kLanes) _mm256_store_ps(to + at, Load(from + at));
  }
}

template <typename T>
struct Block {
  static void Take(const AttentionArgs& args, const BlockView<T>& block, const HeadTask* tasks,
                   int64_t count) {
    alignas(32) float shares[kHeadTile][kMaxBlockTokens];
    float shrink[kHeadTile];
    const int64_t dim = args.pool.head_dim;
    const char* next = reinterpret_cast<const char*>(block.next);
    if constexpr (sizeof(T) == sizeof(uint16_t)) {
      if (count > 1 && dim % kLanes == 0 && block.tokens * dim <= kWidenedValues) {
        alignas(32) float widened[kWidenedValues];
        const char* fetched = nullptr;
        WidenSeen(block.keys, dim, tasks, count, next, widened);
        for (int64_t i = 0; i < count; ++i) {
          shrink[i] = TakeKeys(args, widened, block.tokens, tasks[i], fetched, shares[i]);
        }
        WidenSeen(block.values, dim, tasks, count, next, widened);
        for (int64_t i = 0; i < count; ++i) {
          TakeValues(widened, dim, tasks[i], shares[i], shrink[i]);
        }
        return;
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      shrink[i] = TakeKeys(args, block.keys, block.tokens, tasks[i], next, shares[i]);
      next = nullptr;  // fetched once
    }
    for (int64_t i = 0; i < count; ++i) {
      TakeValues(block.values, dim, tasks[i], shares[i], shrink[i]);
    }
  }
};

}  // namespace

void Attention(const AttentionArgs& args) { WalkBlocks<Block>(args); }

void MaskedAttention(const AttentionArgs& args) { WalkAllBlocks<Block>(args); }

}  // namespace lookback::kernels::avx2
