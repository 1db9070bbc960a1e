// Every set of kernels against plain f64 loops: odd sizes, NaN-prefilled outputs, any split.
#include "tests/kernels/per_set.h"

namespace lookback::kernels {
namespace {

FOR_EVERY_SET(RmsNorm);
FOR_EVERY_SET(Rope);
FOR_EVERY_SET(Swiglu);
FOR_EVERY_SET(DepthMix);
FOR_EVERY_SET(LayerNorm);
FOR_EVERY_SET(Gelu);
FOR_EVERY_SET(Combine);
FOR_EVERY_SET(Gate);
FOR_EVERY_SET(Embed);
FOR_EVERY_SET(Attention);

TEST_P(RmsNorm, MatchesF64AndMayWorkInPlace) {
  for (const int64_t width : {1, 16, 19, 192}) {
    const int64_t rows = 3;
    const auto x = Random(rows * width, 4), weight = Random(width, 5);
    std::vector<float> y = x;
    set().rms_norm({y.data(), width, weight.data(), y.data(), width, width, 1e-6F, 0, rows});
    std::vector<float> inverse(static_cast<size_t>(rows), kNan);
    set().inverse_rms({x.data(), width, inverse.data(), width, 1e-6F, 0, rows});
    for (int64_t r = 0; r < rows; ++r) {
      double square = 0.0;
      for (int64_t i = 0; i < width; ++i) {
        square += std::pow(static_cast<double>(x[static_cast<size_t>(r * width + i)]), 2);
      }
      const double scale = 1.0 / std::sqrt(square / static_cast<double>(width) + 1e-6);
      const double bound = (static_cast<double>(width) + 6) * kUnit;
      EXPECT_WITHIN(inverse[static_cast<size_t>(r)], scale, bound * scale);
      for (int64_t i = 0; i < width; ++i) {
        const double expected =
            weight[static_cast<size_t>(i)] * x[static_cast<size_t>(r * width + i)] * scale;
        EXPECT_WITHIN(y[static_cast<size_t>(r * width + i)], expected, bound * std::abs(expected));
      }
    }
  }
}

TEST_P(Rope, RotatesHalvesByThePositionsAngle) {
  const int64_t heads = 2, half = 3;
  const std::vector<int64_t> positions = {0, 1, 509};
  const std::vector<float> frequency = {1.0F, 0.1F, 0.01F};
  std::vector<float> cosine(9, kNan), sine(9, kNan);
  set().rope_table({positions.data(), frequency.data(), cosine.data(), sine.data(), half, 0, 3});
  const auto before = Random(3 * heads * 2 * half, 6);
  auto x = before;
  set().rope({x.data(), heads * 2 * half, cosine.data(), sine.data(), heads, half, 0, 3});
  for (size_t r = 0; r < 3; ++r) {
    for (size_t head = 0; head < 2; ++head) {
      for (size_t i = 0; i < 3; ++i) {
        const float angle = static_cast<float>(positions[r]) * frequency[i];
        const size_t low = r * 12 + head * 6 + i, high = low + 3;
        const double c = std::cos(static_cast<double>(angle)),
                     s = std::sin(static_cast<double>(angle));
        EXPECT_WITHIN(x[low], before[low] * c - before[high] * s, 1e-6);
        EXPECT_WITHIN(x[high], before[high] * c + before[low] * s, 1e-6);
      }
    }
  }
}

TEST_P(Swiglu, MatchesF64ForLargeAndSmallGates) {
  const std::vector<float> gate = {-100.0F, -20.0F, -1.0F, 0.0F, 1.0F, 20.0F, 100.0F};
  const auto up = Random(7, 8);
  std::vector<float> out(7, kNan);
  set().swiglu({gate.data(), up.data(), out.data(), 7, 0, 1});
  for (size_t i = 0; i < 7; ++i) {
    const double expected = gate[i] / (1.0 + std::exp(-static_cast<double>(gate[i]))) * up[i];
    EXPECT_WITHIN(out[i], expected, 1e-6 * std::abs(expected) + 1e-30);
  }
}

/// Sources of a routing read and what it needs of them.
struct DepthCase {
  DepthCase(const KernelTable& set, int64_t count, bool null, int64_t rows, int64_t heads,
            int64_t width)
      : set(set),
        rows(rows),
        heads(heads),
        width(width),
        count(count),
        nulls(null ? 1 : 0),
        sources(Random((count + 1) * rows * width, 9)),
        null_source(Random(width, 11)),
        inverse(static_cast<size_t>((count + 1) * rows), kNan) {
    for (int64_t i = 0; i < kMaxDepthQueries; ++i) {
      queries.push_back(Random(width, static_cast<uint32_t>(20 + i)));
    }
    set.inverse_rms({sources.data(), width, inverse.data(), width, 1e-6F, 0, count * rows});
    set.inverse_rms({null_source.data(), width, &null_inverse, width, 1e-6F, 0, 1});
  }

  /// The results of a query.
  struct Result {
    std::vector<float> out, logit;
  };
  /// Of the queries [first_query, first_query + num_queries) over the sources from `first` on, with
  /// `mean` before them. `shares`: null, or where those of the only query go.
  std::vector<Result> Mix(int64_t first_query, int64_t num_queries, int64_t first = 0,
                          int64_t end = -1, const Result* mean = nullptr,
                          std::vector<float>* shares = nullptr) const {
    const bool has_null = nulls != 0 && end < 0;  // a read that goes to the end
    DepthMixArgs args = {.sources = sources.data() + first * rows * width,
                         .source_stride = rows * width,
                         .inverse_rms = inverse.data() + first * rows,
                         .inverse_rms_stride = rows,
                         .num_sources = (end < 0 ? count : end) - first,
                         .null_source = has_null ? null_source.data() : nullptr,
                         .null_inverse_rms = null_inverse,
                         .mean = mean == nullptr ? nullptr : mean->out.data(),
                         .mean_logit = mean == nullptr ? nullptr : mean->logit.data(),
                         .num_queries = num_queries,
                         .heads = heads,
                         .width = width,
                         .item_begin = 0,
                         .item_end = rows * heads};
    std::vector<float> scratch(static_cast<size_t>(num_queries * (args.num_sources + 2)), kNan);
    args.scratch = scratch.data();
    if (shares != nullptr) {
      shares->assign(static_cast<size_t>(rows * heads * (count + nulls)), kNan);
      args.shares = shares->data();
    }
    std::vector<Result> results(static_cast<size_t>(num_queries),
                                {std::vector<float>(static_cast<size_t>(rows * width), kNan),
                                 std::vector<float>(static_cast<size_t>(rows * heads), kNan)});
    for (int64_t i = 0; i < num_queries; ++i) {
      args.queries[i] = queries[static_cast<size_t>(first_query + i)].data();
      args.out[i] = results[static_cast<size_t>(i)].out.data();
      args.logit[i] = results[static_cast<size_t>(i)].logit.data();
    }
    set.depth_mix(args);
    return results;
  }
  /// Expects `result` and, where there are some, `shares` of what query `query` makes of all.
  void Check(int64_t query, const Result& result, const std::vector<float>* shares) const {
    const int64_t slice = width / heads, all = count + nulls;
    const std::vector<float>& q = queries[static_cast<size_t>(query)];
    for (int64_t r = 0; r < rows; ++r) {
      const auto source = [&](int64_t i) {
        if (i < nulls) return null_source.data();
        return sources.data() + ((i - nulls) * rows + r) * width;
      };
      for (int64_t h = 0; h < heads; ++h) {
        std::vector<double> score;
        // A logit: a sum of `slice` products, none of whose parts is larger than `size`, times what
        // a sum of `width` squares gives, whose relative error its root halves.
        double slack = 0.0;
        for (int64_t i = 0; i < all; ++i) {
          const float* s = source(i);
          double square = 0.0, dot = 0.0, size = 0.0;
          for (int64_t c = 0; c < width; ++c) square += static_cast<double>(s[c]) * s[c];
          for (int64_t c = h * slice; c < (h + 1) * slice; ++c) {
            const double term = static_cast<double>(s[c]) * q[static_cast<size_t>(c)];
            dot += term;
            size += std::abs(term);
          }
          const double inverse = 1.0 / std::sqrt(square / static_cast<double>(width) + 1e-6);
          score.push_back(dot * inverse);
          const double roundings = static_cast<double>(slice) + static_cast<double>(width) / 2 + 4;
          slack = std::max(slack, roundings * kUnit * size * inverse);
        }
        // What all logits may be off, twice in a share (its own and the sum's), and the
        // exponential, the sums and the quotient.
        slack = 2 * slack + static_cast<double>(all + 8) * kUnit;
        double sum = 0.0;
        for (double& z : score) sum += z = std::exp(z);
        const auto at = static_cast<size_t>(r * heads + h);
        EXPECT_WITHIN(result.logit[at], std::log(sum), slack * (1.0 + std::abs(std::log(sum))));
        for (int64_t i = 0; shares != nullptr && i < all; ++i) {
          EXPECT_WITHIN((*shares)[at * static_cast<size_t>(all) + static_cast<size_t>(i)],
                        score[static_cast<size_t>(i)] / sum, slack);
        }
        for (int64_t c = h * slice; c < (h + 1) * slice; ++c) {
          double expected = 0.0, size = 0.0;
          for (int64_t i = 0; i < all; ++i) {
            const double term = score[static_cast<size_t>(i)] / sum * source(i)[c];
            expected += term;
            size += std::abs(term);
          }
          EXPECT_WITHIN(result.out[static_cast<size_t>(r * width + c)], expected, slack * size);
        }
      }
    }
  }

  const KernelTable& set;
  int64_t rows, heads, width, count, nulls;
  std::vector<float> sources, null_source, inverse;
  std::vector<std::vector<float>> queries;
  float null_inverse = kNan;
};

TEST_P(DepthMix, MatchesF64ForEveryNumberOfSourcesAndHeads) {
  for (const auto& [heads, width] :
       {std::pair<int64_t, int64_t>{1, 24}, {3, 24}, {8, 24}, {2, 150}, {1, 192}}) {
    for (const auto& [count, null] : {std::pair<int64_t, bool>{1, false},
                                      {2, false},
                                      {13, false},
                                      {0, true},
                                      {1, true},
                                      {13, true}}) {
      const DepthCase depth(set(), count, null, 3, heads, width);
      std::vector<float> shares;
      const auto result = depth.Mix(0, 1, 0, -1, nullptr, &shares);
      depth.Check(0, result[0], &shares);
    }
  }
}

TEST_P(DepthMix, AQueryDoesNotDependOnThoseBesideIt) {
  const DepthCase depth(set(), 13, true, 2, 2, 150);
  std::vector<DepthCase::Result> alone;
  for (int64_t i = 0; i < kMaxDepthQueries; ++i) alone.push_back(depth.Mix(i, 1)[0]);
  for (int64_t count = 2; count <= kMaxDepthQueries; ++count) {
    const auto together = depth.Mix(kMaxDepthQueries - count, count);
    for (int64_t i = 0; i < count; ++i) {
      const auto& one = alone[static_cast<size_t>(kMaxDepthQueries - count + i)];
      EXPECT_EQ(together[static_cast<size_t>(i)].out, one.out);
      EXPECT_EQ(together[static_cast<size_t>(i)].logit, one.logit);
    }
  }
}

TEST_P(DepthMix, AMeanCountsForWhatItIsTheMeanOf) {
  for (const bool null : {false, true}) {
    for (const int64_t cut : {1, 5, 13}) {
      const DepthCase depth(set(), 13, null, 3, 3, 72);
      const auto mean = depth.Mix(4, 1, 0, cut);
      depth.Check(4, depth.Mix(4, 1, cut, -1, &mean[0])[0], nullptr);
    }
  }
}

TEST_P(LayerNorm, MatchesF64WithTheBiasedVarianceAndMayWorkInPlace) {
  for (const int64_t width : {1, 16, 19, 192}) {
    const int64_t rows = 3;
    auto x = Random(rows * width, 40, 3.0F);
    const auto weight = Random(width, 41), bias = Random(width, 42);
    std::vector<float> y(x.size(), kNan);
    set().layer_norm({x.data(), weight.data(), bias.data(), y.data(), width, 1e-5F, 0, rows});
    for (int64_t r = 0; r < rows; ++r) {
      double mean = 0.0, variance = 0.0;
      const float* row = x.data() + r * width;
      for (int64_t c = 0; c < width; ++c) mean += row[c];
      mean /= static_cast<double>(width);
      for (int64_t c = 0; c < width; ++c) variance += (row[c] - mean) * (row[c] - mean);
      variance /= static_cast<double>(width);
      for (int64_t c = 0; c < width; ++c) {
        const auto i = static_cast<size_t>(c);
        EXPECT_WITHIN(y[static_cast<size_t>(r * width) + i],
                      (row[c] - mean) / std::sqrt(variance + 1e-5) * weight[i] + bias[i], 2e-5);
      }
    }
    set().layer_norm({x.data(), weight.data(), bias.data(), x.data(), width, 1e-5F, 0, rows});
    EXPECT_EQ(x, y);
  }
}

TEST_P(Gelu, IsTheExactFormAndNotTheTangent) {
  std::vector<float> x = {-30.0F, -3.0F, -1.0F, -0.1F, 0.0F, 0.1F, 1.0F, 2.5F, 30.0F};
  const std::vector<float> before = x;
  set().gelu({x.data(), std::ssize(x), 0, 1});
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = before[i];
    EXPECT_WITHIN(x[i], v / 2 * (1 + std::erf(v / std::sqrt(2.0))), 4 * kUnit * (1 + std::abs(v)));
  }
}

TEST_P(Combine, AddsWeightedSourcesAndSubtractsExactly) {
  const int64_t rows = 2, width = 5, count = 3;
  const auto sources = Random(count * rows * width, 50), weights = Random(count, 51);
  std::vector<float> out(static_cast<size_t>(rows * width), kNan);
  set().combine({sources.data(), rows * width, weights.data(), count, out.data(), width, 0, rows});
  for (size_t i = 0; i < out.size(); ++i) {
    double sum = 0.0;
    for (size_t n = 0; n < 3; ++n) sum += static_cast<double>(weights[n]) * sources[n * 10 + i];
    EXPECT_WITHIN(out[i], sum, 1e-6);
  }
  const float difference[] = {-1.0F, 1.0F};
  set().combine({sources.data(), rows * width, difference, 2, out.data(), width, 0, rows});
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], sources[10 + i] - sources[i]);
}

TEST_P(Gate, MixesByANumberOrByLogitsAndZeroKeepsTheStateBitForBit) {
  const int64_t rows = 2, width = 7;
  const auto state = Random(rows * width, 60), logits = Random(rows * width, 61, 3.0F);
  const auto before = Random(rows * width, 62);
  for (const float alpha : {0.0F, 0.3F, -1.5F, 1.0F}) {
    auto read = before;
    set().gate({state.data(), nullptr, alpha, read.data(), width, 0, rows});
    for (size_t i = 0; i < read.size(); ++i) {
      EXPECT_WITHIN(read[i], (1.0 - alpha) * state[i] + static_cast<double>(alpha) * before[i],
                    1e-6);
    }
    EXPECT_EQ(read == state, alpha == 0.0F);
    EXPECT_EQ(read == before, alpha == 1.0F);
  }
  auto read = before;
  set().gate({state.data(), logits.data(), 0.0F, read.data(), width, 0, rows});
  for (size_t i = 0; i < read.size(); ++i) {
    const double a = 1.0 / (1.0 + std::exp(-static_cast<double>(logits[i])));
    EXPECT_WITHIN(read[i], (1.0 - a) * state[i] + a * before[i], 1e-6);
  }
}

TEST_P(Embed, TakesRowsAndAddsThoseOfThePositions) {
  const int64_t width = 37;
  for (const Element type : kWeightTypes) {
    const Weights table(type, 3, width, 17), places(type, 4, width, 18);
    const std::vector<int32_t> ids = {2, 0};
    const std::vector<int64_t> position = {3, 1};
    std::vector<float> out(static_cast<size_t>(2 * width), kNan);
    EmbedArgs args{table.view(), ids.data(), {}, position.data(), out.data(), width, 0, 2};
    set().embed(args);
    for (const bool with_positions : {false, true}) {
      if (with_positions) {
        args.positions = places.view();
        set().embed(args);
      }
      for (int64_t r = 0; r < 2; ++r) {
        const auto row = static_cast<size_t>(r);
        for (int64_t c = 0; c < width; ++c) {
          float expected = table.values[static_cast<size_t>(ids[row] * width + c)];
          if (with_positions)
            expected += places.values[static_cast<size_t>(position[row] * width + c)];
          EXPECT_EQ(out[static_cast<size_t>(r * width + c)], expected);
        }
      }
    }
  }
}

/// One sequence of `tokens` random keys and values in a pool where block b has id ids[b].
struct Cache {
  Cache(int64_t tokens, int64_t kv_heads, int64_t head_dim, int64_t block_tokens, Element type)
      : blocks((tokens + block_tokens - 1) / block_tokens) {
    const int64_t bytes = block_tokens * head_dim * 2 * (type == Element::kF32 ? 4 : 2);
    // Poison: a key that is read without having been written shows as NaN.
    memory.assign(static_cast<size_t>(blocks * kv_heads * bytes), std::byte{0xFF});
    pool = {memory.data(), bytes, block_tokens, head_dim, type};
    for (int64_t head = 0; head < kv_heads; ++head) {
      auto& ids = tables.emplace_back();
      for (int64_t b = 0; b < blocks; ++b) {
        ids.push_back(static_cast<int32_t>((blocks - 1 - b) * kv_heads + head));  // not in order
      }
    }
    for (const auto& ids : tables) lists.push_back({nullptr, ids.data(), 0, blocks});
    k = Random(tokens * kv_heads * head_dim, 20);
    v = Random(tokens * kv_heads * head_dim, 21);
    for (int64_t t = 0; t < tokens; ++t) {
      positions.push_back(t);
      sequence.push_back(0);
    }
    list = lists.data();
    ReferenceKernels().kv_write(
        {pool, map(), k.data(), v.data(), kv_heads * head_dim, kv_heads, 0, tokens});
  }
  RowMap map() const { return {&list, 0, sequence.data(), positions.data()}; }

  int64_t blocks;
  std::vector<std::byte> memory;
  KvPool pool{};
  std::vector<std::vector<int32_t>> tables;
  std::vector<BlockList> lists;
  const BlockList* list = nullptr;
  std::vector<float> k, v;
  std::vector<int64_t> positions;
  std::vector<int32_t> sequence;
};

TEST_P(Attention, MatchesF64TouchesOnlyVisibleKeysAndCountsThem) {
  const int64_t tokens = 150, kv_heads = 2, group = 3;
  const std::vector<HeadReach> reach = {{1, 0},  {7, 0}, {32, 5}, {33, 0}, {INT64_MAX / 2, 0},
                                        {64, 40}};
  struct Shape {
    int64_t block_tokens;
    int64_t dim;
  };
  for (const Element type : {Element::kF32, Element::kBF16}) {
    for (const Shape shape : {Shape{16, 20}, {32, 20}, {32, 64}, {16, 80}, {32, 136}}) {
      const int64_t block_tokens = shape.block_tokens, dim = shape.dim;
      const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
      Cache cache(tokens, kv_heads, dim, block_tokens, type);
      const int64_t heads = kv_heads * group, stride = heads * dim;
      const auto q = Random(tokens * stride, 22);
      std::vector<float> out(q.size(), kNan), twin = out;
      AttentionCount count, unused;
      AttentionArgs args{cache.pool,        cache.map(), q.data(), out.data(), stride,
                         reach.data(),      kv_heads,    group,    scale,      0,
                         tokens * kv_heads, &count};
      set().attention(args);
      args.out = twin.data();
      args.count = &unused;
      set().masked_attention(args);
      EXPECT_EQ(out, twin) << "skipping and masking give the same bits";

      int64_t products = 0, keys_read = 0;
      for (int64_t i = 0; i < tokens; ++i) {
        for (int64_t g = 0; g < kv_heads; ++g) {
          int64_t widest = 0;
          for (int64_t h = g * group; h < (g + 1) * group; ++h) {
            const HeadReach r = reach[static_cast<size_t>(h)];
            double sum = 0.0;
            std::vector<double> mix(static_cast<size_t>(dim), 0.0);
            int64_t seen = 0;
            for (int64_t j = 0; j <= i; ++j) {
              if (!(j < r.sinks || j >= i - r.window + 1)) continue;
              ++seen;
              double score = 0.0;
              const auto at = [&](const std::vector<float>& x, int64_t c) -> double {
                const float value = x[static_cast<size_t>((j * kv_heads + g) * dim + c)];
                if (type == Element::kF32) return value;
                const auto bits = std::bit_cast<uint32_t>(value);
                return FromBF16(static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16));
              };
              for (int64_t c = 0; c < dim; ++c)
                score += q[static_cast<size_t>(i * stride + h * dim + c)] * at(cache.k, c);
              const double weight = std::exp(score * static_cast<double>(scale));
              sum += weight;
              for (int64_t c = 0; c < dim; ++c)
                mix[static_cast<size_t>(c)] += weight * at(cache.v, c);
            }
            products += seen;
            widest = std::max(widest, seen);
            for (int64_t c = 0; c < dim; ++c) {
              EXPECT_WITHIN(out[static_cast<size_t>(i * stride + h * dim + c)],
                            mix[static_cast<size_t>(c)] / sum, 1e-5);
            }
          }
          // The widest window and the most sinks of the group may belong to different heads.
          HeadReach both{0, 0};
          for (int64_t h = g * group; h < (g + 1) * group; ++h) {
            both.window = std::max(both.window, reach[static_cast<size_t>(h)].window);
            both.sinks = std::max(both.sinks, reach[static_cast<size_t>(h)].sinks);
          }
          int64_t fetched = 0;
          for (int64_t j = 0; j <= i; ++j) fetched += j < both.sinks || j >= i - both.window + 1;
          EXPECT_GE(fetched, widest);
          keys_read += fetched;
        }
      }
      EXPECT_EQ(count.products, products);
      EXPECT_EQ(count.keys_read, keys_read);
    }
  }
}

TEST_P(Attention, EvictedBlocksMayHoldAnything) {
  const int64_t tokens = 200, dim = 8;
  Cache cache(tokens, 1, dim, 16, Element::kF32);
  const std::vector<HeadReach> reach = {{20, 3}};
  const auto q = Random(tokens * dim, 30);
  const std::vector<int64_t> position = {tokens - 1};
  const std::vector<int32_t> sequence = {0};
  std::vector<float> out(static_cast<size_t>(dim), kNan), after = out;
  AttentionCount count;
  AttentionArgs args{cache.pool, {&cache.list, 0, sequence.data(), position.data()},
                     q.data(),   out.data(),
                     dim,        reach.data(),
                     1,          1,
                     1.0F,       0,
                     1,          &count};
  set().attention(args);
  for (int64_t b = 1; b < (tokens - 20) / 16; ++b)
    cache.tables[0][static_cast<size_t>(b)] = INT32_MAX;
  args.out = after.data();
  set().attention(args);
  EXPECT_EQ(out, after);
}

}  // namespace
}  // namespace lookback::kernels
