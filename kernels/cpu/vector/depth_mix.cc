// The routing read, a head of a row at a time: what its sources have there stays in the caches from
// the products with the queries to the sums.
#include <math.h>

#include "kernels/cpu/depth_sources.h"
#include "kernels/cpu/vector/set.h"
#include "kernels/cpu/vector/simd.h"
#include "kernels/cpu/vector/tiles.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

// A tile of products is so many queries by so many sources, 12 sums; a tile of sums as many queries
// by four registers of channels.
constexpr int64_t kTileQueries = 3;
constexpr int64_t kTileSources = 4;
constexpr int64_t kTileRegisters = 4;

/// The channels of one head in one row, and the logits or shares of the sources there.
struct RowHead {
  const DepthMixArgs& args;
  DepthSources sources;
  int64_t head;
  int64_t slice;  ///< channels
  int64_t begin;
  int64_t count;  ///< sources

  float* weights(int64_t query) const { return args.scratch + query * count; }
};

/// Logits of Queries queries from `first` on. kFetches: fetches the next head's channels, or the
/// next row's, which lie behind.
template <int64_t Queries, bool kFetches>
void Logits(const RowHead& at, int64_t first) {
  for (int64_t i = 0; i < at.count; i += kTileSources) {
    const float* sources[kTileSources];
    // Behind the last one, that one again.
    Unrolled<kTileSources>(
        [&](auto j) { sources[j] = at.sources.source(Least(i + j, at.count - 1)) + at.begin; });
    Floats sums[Queries][kTileSources];
    Unrolled<Queries>(
        [&](auto q) { Unrolled<kTileSources>([&](auto j) { sums[q][j] = Zero(); }); });
    const auto step = [&](int64_t c, const auto& load) __attribute__((always_inline)) {
      Floats queries[Queries];
      Unrolled<Queries>(
          [&](auto q) { queries[q] = load(at.args.queries[first + q] + at.begin + c); });
      Unrolled<kTileSources>([&](auto j) __attribute__((always_inline)) {
        const Floats part = load(sources[j] + c);
        if constexpr (kFetches) _mm_prefetch(sources[j] + at.slice + c, _MM_HINT_T0);
        Unrolled<Queries>([&](auto q) { sums[q][j] = Fma(part, queries[q], sums[q][j]); });
      });
    };
    int64_t c = 0;
    for (; c + kLanes <= at.slice; c += kLanes)
      step(c, [](const float* from) { return Load(from); });
    if (const int64_t left = at.slice - c; left != 0) {
      step(c, [left](const float* from) { return LoadTail(from, left); });
    }
    const int64_t valid = Least(kTileSources, at.count - i);
    Unrolled<Queries>([&](auto q) {
      alignas(16) float dots[kTileSources];
      _mm_store_ps(dots, SumLanesOfFour(sums[q][0], sums[q][1], sums[q][2], sums[q][3]));
      float* z = at.weights(first + q) + i;
      for (int64_t j = 0; j < valid; ++j) z[j] = at.sources.logit(i + j, at.head, dots[j]);
    });
  }
}

/// z = exp(z − largest); returns their sum.
float ExpAndSum(float* z, int64_t count, float largest) {
  const Floats top = All(largest);
  Floats sum = Zero();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats share = Exp(Load(z + i) - top);
    Store(z + i, share);
    sum += share;
  }
  if (i < count) {
    const Floats share = Head(Exp(LoadTail(z + i, count - i) - top), count - i);
    StoreTail(z + i, count - i, share);
    sum += share;
  }
  return SumLanes(sum);
}

/// The softmax of one query, in place.
void Shares(const RowHead& at, int64_t query) {
  float* weights = at.weights(query);
  float largest = -INFINITY;
  for (int64_t i = 0; i < at.count; ++i) largest = fmaxf(largest, weights[i]);
  const float sum = ExpAndSum(weights, at.count, largest);
  for (int64_t i = 0; i < at.count; ++i) weights[i] /= sum;
  const int64_t place = at.sources.row * at.args.heads + at.head;
  if (at.args.logit[query] != nullptr) at.args.logit[query][place] = largest + logf(sum);
  if (at.args.shares == nullptr) return;
  for (int64_t i = 0; i < at.count; ++i) at.args.shares[place * at.count + i] = weights[i];
}

/// Registers registers of channels from `c` on, of Queries queries from `first` on, as `load` and
/// `store` take them.
template <int64_t Queries, int64_t Registers, typename Load, typename Store>
inline void Sum(const RowHead& at, int64_t first, int64_t c, const Load& load, const Store& store) {
  Floats sums[Queries][Registers];
  Unrolled<Queries>([&](auto q) { Unrolled<Registers>([&](auto j) { sums[q][j] = Zero(); }); });
  const auto add = [&](int64_t i, const float* source) __attribute__((always_inline)) {
    Floats shares[Queries];
    Unrolled<Queries>([&](auto q) { shares[q] = All(at.weights(first + q)[i]); });
    Unrolled<Registers>([&](auto j) __attribute__((always_inline)) {
      const Floats part = load(source + c + j * kLanes);
      Unrolled<Queries>([&](auto q) { sums[q][j] = Fma(part, shares[q], sums[q][j]); });
    });
  };
  const int64_t others = at.sources.others();
  for (int64_t i = 0; i < others; ++i) add(i, at.sources.source(i) + at.begin);
  const float* source = at.sources.source(others) + at.begin;
  for (int64_t i = others; i < at.count; ++i, source += at.args.source_stride) add(i, source);
  Unrolled<Queries>([&](auto q) {
    float* out = at.args.out[first + q] + at.sources.row * at.args.width + at.begin + c;
    Unrolled<Registers>([&](auto j) { store(out + j * kLanes, sums[q][j]); });
  });
}

template <int64_t Queries>
void Sums(const RowHead& at, int64_t first) {
  const auto load = [](const float* from) { return Load(from); };
  const auto store = [](float* to, Floats x) { Store(to, x); };
  int64_t c = 0;
  for (; c + kTileRegisters * kLanes <= at.slice; c += kTileRegisters * kLanes) {
    Sum<Queries, kTileRegisters>(at, first, c, load, store);
  }
  for (; c + kLanes <= at.slice; c += kLanes) Sum<Queries, 1>(at, first, c, load, store);
  if (const int64_t left = at.slice - c; left != 0) {
    Sum<Queries, 1>(
        at, first, c, [left](const float* from) { return LoadTail(from, left); },
        [left](float* to, Floats x) { StoreTail(to, left, x); });
  }
}

/// body(count, first) for tiles of queries, `count` a constant.
template <typename Body>
void ForTiles(int64_t queries, const Body& body) {
  int64_t first = 0;
  for (; first + kTileQueries <= queries; first += kTileQueries) {
    body(Constant<kTileQueries>{}, first);
  }
  Unrolled<kTileQueries - 1>([&](auto i) {
    if (queries - first == i + 1) body(Constant<i + 1>{}, first);
  });
}

}  // namespace

void DepthMix(const DepthMixArgs& args) {
  const int64_t slice = args.width / args.heads;
  for (int64_t item = args.item_begin; item < args.item_end; ++item) {
    const DepthSources sources{args, item / args.heads};
    const int64_t head = item % args.heads;
    const RowHead at{args, sources, head, slice, head * slice, sources.count()};
    ForTiles(args.num_queries, [&](auto count, int64_t first) {
      if (first == 0) return Logits<count, true>(at, first);
      Logits<count, false>(at, first);
    });
    for (int64_t query = 0; query < args.num_queries; ++query) Shares(at, query);
    ForTiles(args.num_queries, [&](auto count, int64_t first) { Sums<count>(at, first); });
  }
}

}  // namespace lookback::kernels::LOOKBACK_SET
