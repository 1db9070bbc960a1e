// Attention over block lists: the order of summation is that of the reference (blocks in ascending
// absolute order by online softmax), with kLanes sums inside a block.
#include <math.h>

#include "kernels/cpu/block_walk.h"
#include "kernels/cpu/vector/set.h"
#include "kernels/cpu/vector/simd.h"
#include "kernels/cpu/vector/tiles.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

constexpr int64_t kScoredAtOnce = 4;  // keys
// Sums of values kept in registers; more channels take another pass over the shares.
constexpr int64_t kMostRegisters = 12;
// Keys, then values, of a block that several queries see are widened once for all of them, if
// they take no more than this of the first-level cache.
constexpr int64_t kWidenedValues = 4096;
constexpr int64_t kLineValues = kLineBytes / static_cast<int64_t>(sizeof(uint16_t));

/// scores[t] = scale · <query, key t> for t in [begin, end). What lies from `next` on is fetched
/// meanwhile, as much as the keys take.
template <typename T>
inline void Score(const float* query, const T* keys, int64_t dim, float scale, int64_t begin,
                  int64_t end, const char*& next, float* scores) {
  for (int64_t t = begin; t < end; t += kScoredAtOnce) {
    Fetch<1>(next, kScoredAtOnce * dim * static_cast<int64_t>(sizeof(T)));
    // A last piece of fewer keys scores one of them several times.
    const T* key[kScoredAtOnce];
    for (int64_t j = 0; j < kScoredAtOnce; ++j) {
      key[j] = keys + (t + j < end ? t + j : end - 1) * dim;
    }
    Floats sums[kScoredAtOnce] = {Zero(), Zero(), Zero(), Zero()};
    int64_t c = 0;
    for (; c + kLanes <= dim; c += kLanes) {
      const Floats part = Load(query + c);
      for (int64_t j = 0; j < kScoredAtOnce; ++j) {
        sums[j] = Fma(part, Load(key[j] + c), sums[j]);
      }
    }
    if (c < dim) {
      const Floats part = LoadTail(query + c, dim - c);
      for (int64_t j = 0; j < kScoredAtOnce; ++j) {
        sums[j] = Fma(part, LoadTail(key[j] + c, dim - c), sums[j]);
      }
    }
    float four[kScoredAtOnce];
    _mm_storeu_ps(
        four, _mm_mul_ps(SumLanesOfFour(sums[0], sums[1], sums[2], sums[3]), _mm_set1_ps(scale)));
    for (int64_t j = 0; j < kScoredAtOnce && t + j < end; ++j) scores[t + j] = four[j];
  }
}

/// out[c] = shrink · out[c] + sum over the seen t of shares[t] · values[t][c], for Registers ·
/// kLanes channels; fetches from `next` on as Score does.
template <typename T, int64_t Registers>
inline void AddValues(const T* values, const float* shares, const SeenKeys& seen, float shrink,
                      int64_t dim, const char*& next, float* out) {
  Floats sums[Registers];
  for (int64_t j = 0; j < Registers; ++j) {
    sums[j] = Load(out + j * kLanes) * All(shrink);
  }
  for (int64_t run = 0; run < 2; ++run) {
    for (int64_t t = seen.begin[run]; t < seen.end[run]; ++t) {
      Fetch<1>(next, dim * static_cast<int64_t>(sizeof(T)));
      const Floats share = All(shares[t]);
      const T* value = values + t * dim;
      for (int64_t j = 0; j < Registers; ++j) {
        sums[j] = Fma(share, Load(value + j * kLanes), sums[j]);
      }
    }
  }
  for (int64_t j = 0; j < Registers; ++j) Store(out + j * kLanes, sums[j]);
}

/// The same for the last `count` < kLanes channels.
template <typename T>
inline void AddLastValues(const T* values, const float* shares, const SeenKeys& seen, float shrink,
                          int64_t dim, int64_t count, float* out) {
  Floats sum = LoadTail(out, count) * All(shrink);
  for (int64_t run = 0; run < 2; ++run) {
    for (int64_t t = seen.begin[run]; t < seen.end[run]; ++t) {
      sum = Fma(All(shares[t]), LoadTail(values + t * dim, count), sum);
    }
  }
  StoreTail(out, count, sum);
}

/// The shares of the keys that one query head sees, those of the others 0, before the division by
/// the softmax' sum; returns what the sums so far shrink by.
template <typename T>
float TakeKeys(const AttentionArgs& args, const T* keys, int64_t tokens, const Task& task,
               const char*& next, float* shares) {
  Softmax& state = *task.softmax;
  const int64_t padded = (tokens + kLanes - 1) / kLanes * kLanes;
  for (int64_t t = 0; t < padded; t += kLanes) {
    Store(shares + t, All(-INFINITY));
  }
  for (int64_t run = 0; run < 2; ++run) {
    Score(task.query, keys, args.pool.head_dim, args.scale, task.seen.begin[run],
          task.seen.end[run], next, shares);
  }
  Floats top = All(state.largest);
  for (int64_t t = 0; t < padded; t += kLanes) {
    top = Max(top, Load(shares + t));
  }
  const float largest = MaxLanes(top);
  top = All(largest);
  Floats sum = Zero();
  for (int64_t t = 0; t < padded; t += kLanes) {
    const Floats share = Exp(Load(shares + t) - top);
    Store(shares + t, share);
    sum += share;
  }
  const float shrink = ExpOne(state.largest - largest);
  state.largest = largest;
  state.sum = state.sum * shrink + SumLanes(sum);
  return shrink;
}

template <typename T>
void TakeValues(const T* values, int64_t dim, const Task& task, const float* shares, float shrink,
                const char*& next) {
  int64_t c = 0;
  while (const int64_t left = (dim - c) / kLanes) {
    const int64_t registers = left > kMostRegisters ? kMostRegisters / 2 : left;
    Unrolled<kMostRegisters>([&](auto i) {
      if (registers != i + 1) return;
      AddValues<T, i + 1>(values + c, shares, task.seen, shrink, dim, next, task.out + c);
    });
    next = nullptr;  // fetched once
    c += registers * kLanes;
  }
  if (c < dim) {
    AddLastValues(values + c, shares, task.seen, shrink, dim, dim - c, task.out + c);
  }
}

/// Widens the rows of `from` that any of the tasks sees; what lies from `next` on is fetched
/// meanwhile, as many bytes as are read.
inline void WidenSeen(const uint16_t* from, int64_t dim, const Task* tasks, int64_t count,
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
        Store(to + at + i, Load(from + at + i));
      }
    }
    for (; at < end * dim; at += kLanes) Store(to + at, Load(from + at));
  }
}

/// Half of the next block is fetched while the keys are worked on and half with the values: all at
/// once, its lines would stop the loads of the keys, and the memory would rest during the values.
template <typename T>
struct Block {
  static void Take(const AttentionArgs& args, const BlockView<T>& block, const Task* tasks,
                   int64_t count) {
    alignas(64) float shares[kTasks][kMaxBlockTokens];
    float shrink[kTasks];
    const int64_t dim = args.pool.head_dim;
    const char* next = reinterpret_cast<const char*>(block.next);
    const char* none = nullptr;
    if constexpr (sizeof(T) == sizeof(uint16_t)) {
      if (count > 1 && dim % kLanes == 0 && block.tokens * dim <= kWidenedValues) {
        alignas(64) float widened[kWidenedValues];
        WidenSeen(block.keys, dim, tasks, count, next, widened);
        for (int64_t i = 0; i < count; ++i) {
          shrink[i] = TakeKeys(args, widened, block.tokens, tasks[i], none, shares[i]);
        }
        WidenSeen(block.values, dim, tasks, count, next, widened);
        for (int64_t i = 0; i < count; ++i) {
          TakeValues(widened, dim, tasks[i], shares[i], shrink[i], none);
        }
        return;
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      shrink[i] =
          TakeKeys(args, block.keys, block.tokens, tasks[i], i == 0 ? next : none, shares[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
      TakeValues(block.values, dim, tasks[i], shares[i], shrink[i], i == 0 ? next : none);
    }
  }
};

}  // namespace

void Attention(const AttentionArgs& args) { WalkBlocks<Block>(args); }

void MaskedAttention(const AttentionArgs& args) { WalkAllBlocks<Block>(args); }

}  // namespace lookback::kernels::LOOKBACK_SET
