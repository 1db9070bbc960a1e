#include "engine/ops.h"

#include <algorithm>

namespace lookback {
namespace {

// Below these a range is not worth handing to another thread.
constexpr int64_t kGrainOutputs = 16;
constexpr int64_t kGrainValues = 4096;

int64_t GrainRows(int64_t width) { return std::max<int64_t>(1, kGrainValues / width); }

/// Of a DepthMix, in floats; whole cache lines, so that threads do not share one.
int64_t ScratchStride(int64_t max_sources) {
  return (kernels::kMaxDepthQueries * (max_sources + 2) + 15) / 16 * 16;
}

}  // namespace

Ops::Ops(const kernels::KernelTable& kernels, ThreadPool& threads, int64_t max_sources,
         NarrowInput narrow)
    : kernels_(kernels),
      threads_(threads),
      max_sources_(max_sources),
      narrow_(narrow),
      scratch_(static_cast<size_t>(threads.threads() * ScratchStride(max_sources))),
      counts_(static_cast<size_t>(threads.threads())) {}

int64_t Ops::GrainOfHeads(int64_t rows, int64_t heads) const {
  return rows >= 4 * threads_.threads() ? heads : 1;
}

void Ops::MatMul(const float* x, int64_t rows, const Linear& w, float* y) {
  MatMulColumns(x, rows, w, 0, w.out, y);
}

void Ops::MatMulColumns(const float* x, int64_t rows, const Linear& w, int64_t out_begin,
                        int64_t out_end, float* y) {
  const int64_t k = w.in;
  const kernels::QuantizedRows& quantized = narrow_.quantized;
  const bool quantizes = quantized.q != nullptr && IsQuantized(w.weight.type);
  const bool rounds = narrow_.bf16 != nullptr && w.weight.type == kernels::Element::kBF16;
  if (quantizes || rounds) {
    const int64_t grain =
        rounds ? std::max(GrainRows(k) / kernels::kRoundedRows, int64_t{1}) * kernels::kRoundedRows
               : GrainRows(k);
    threads_.For(rows, grain, [&](int64_t begin, int64_t end, int64_t) {
      if (quantizes) {
        kernels_.quantize_rows({x, k, quantized, k, begin, end});
      } else {
        kernels_.round_rows({x, k, narrow_.bf16, k, rows, begin, end});
      }
    });
  }
  threads_.For(out_end - out_begin, kGrainOutputs, [&](int64_t begin, int64_t end, int64_t) {
    begin += out_begin;
    end += out_begin;
    if (quantizes) {
      kernels_.integer_gemm({quantized, w.weight, w.bias, y, w.out, rows, k, begin, end});
    } else if (rounds) {
      kernels_.bf16_gemm({narrow_.bf16, w.weight, w.bias, y, w.out, rows, k, begin, end});
    } else {
      kernels_.gemm({x, k, w.weight, w.bias, y, w.out, rows, k, begin, end});
    }
  });
}

void Ops::Embed(const Linear& table, const int32_t* ids, const Linear& positions,
                const int64_t* position, int64_t rows, float* out) {
  threads_.For(rows, GrainRows(table.in), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.embed({table.weight, ids, positions.weight, position, out, table.in, begin, end});
  });
}

void Ops::Normalize(const float* x, int64_t rows, int64_t width, const Norm& norm, float eps,
                    float* y) {
  if (norm.bias == nullptr) return RmsNorm(x, rows, width, norm.weight, eps, y);
  threads_.For(rows, GrainRows(width), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.layer_norm({x, norm.weight, norm.bias, y, width, eps, begin, end});
  });
}

void Ops::RmsNorm(const float* x, int64_t rows, int64_t width, const float* weight, float eps,
                  float* y) {
  threads_.For(rows, GrainRows(width), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.rms_norm({x, width, weight, y, width, width, eps, begin, end});
  });
}

void Ops::InverseRms(const float* x, int64_t rows, int64_t width, float eps, float* inverse) {
  threads_.For(rows, GrainRows(width), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.inverse_rms({x, width, inverse, width, eps, begin, end});
  });
}

void Ops::Add(const float* x, int64_t rows, int64_t width, float* y) {
  threads_.For(rows, GrainRows(width), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.add({x, y, width, begin, end});
  });
}

void Ops::RopeTable(const int64_t* position, int64_t rows, std::span<const float> frequency,
                    float* cosine, float* sine) {
  const auto half = static_cast<int64_t>(frequency.size());
  threads_.For(rows, GrainRows(half), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.rope_table({position, frequency.data(), cosine, sine, half, begin, end});
  });
}

void Ops::Rope(float* x, int64_t rows, int64_t heads, int64_t head_dim, const float* cosine,
               const float* sine) {
  const int64_t width = heads * head_dim;
  threads_.For(rows, GrainRows(width), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.rope({x, width, cosine, sine, heads, head_dim / 2, begin, end});
  });
}

void Ops::Swiglu(const float* gate, float* up, int64_t rows, int64_t width) {
  threads_.For(rows, GrainRows(width), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.swiglu({gate, up, up, width, begin, end});
  });
}

void Ops::Gelu(float* x, int64_t rows, int64_t width) {
  threads_.For(rows, GrainRows(width), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.gelu({x, width, begin, end});
  });
}

void Ops::Combine(const float* sources, int64_t stride, std::span<const float> weights,
                  int64_t rows, int64_t width, float* out) {
  threads_.For(rows, GrainRows(width), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.combine({sources, stride, weights.data(), static_cast<int64_t>(weights.size()), out,
                      width, begin, end});
  });
}

void Ops::GateRead(const float* state, const float* logits, float alpha, int64_t rows,
                   int64_t width, float* read) {
  threads_.For(rows, GrainRows(width), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.gate({state, logits, alpha, read, width, begin, end});
  });
}

void Ops::KvWrite(const kernels::KvPool& pool, const StepRows& step, int64_t list_offset,
                  const float* k, const float* v, int64_t kv_heads) {
  const int64_t width = kv_heads * pool.head_dim;
  kernels::RowMap map = step.map;
  map.list_offset = list_offset;
  threads_.For(step.rows, GrainRows(width), [&](int64_t begin, int64_t end, int64_t) {
    kernels_.kv_write({pool, map, k, v, width, kv_heads, begin, end});
  });
}

void Ops::Attention(const kernels::KvPool& pool, const StepRows& step, int64_t list_offset,
                    const float* q, std::span<const kernels::HeadReach> reach, int64_t kv_heads,
                    float scale, float* out) {
  const auto heads = static_cast<int64_t>(reach.size());
  kernels::RowMap map = step.map;
  map.list_offset = list_offset;
  const int64_t grain = GrainOfHeads(step.rows, kv_heads);
  threads_.For(step.rows * kv_heads, grain, [&](int64_t begin, int64_t end, int64_t thread) {
    kernels_.attention({.pool = pool,
                        .map = map,
                        .q = q,
                        .out = out,
                        .stride = heads * pool.head_dim,
                        .reach = reach.data(),
                        .kv_heads = kv_heads,
                        .group = heads / kv_heads,
                        .scale = scale,
                        .item_begin = begin,
                        .item_end = end,
                        .count = &counts_[static_cast<size_t>(thread)].count});
  });
  for (PaddedCount& padded : counts_) {
    counters_.attention_products += padded.count.products;
    counters_.keys_read += padded.count.keys_read;
    padded.count = {};
  }
}

void Ops::DepthMix(const DepthSources& sources, std::span<const DepthQuery> queries, int64_t heads,
                   int64_t rows, int64_t width, float* shares) {
  LOOKBACK_CHECK(sources.count <= max_sources_ && (shares == nullptr || queries.size() == 1));
  while (!queries.empty()) {
    kernels::DepthMixArgs args = {.sources = sources.sources,
                                  .source_stride = sources.stride,
                                  .inverse_rms = sources.inverse_rms,
                                  .inverse_rms_stride = sources.inverse_rms_stride,
                                  .num_sources = sources.count,
                                  .null_source = sources.null_source,
                                  .null_inverse_rms = sources.null_inverse_rms,
                                  .mean = sources.mean,
                                  .mean_logit = sources.mean_logit,
                                  .heads = heads,
                                  .width = width,
                                  .shares = shares};
    const auto part =
        queries.first(std::min(queries.size(), static_cast<size_t>(kernels::kMaxDepthQueries)));
    for (const DepthQuery& query : part) {
      args.queries[args.num_queries] = query.query;
      args.out[args.num_queries] = query.out;
      args.logit[args.num_queries++] = query.logit;
    }
    const int64_t grain = GrainOfHeads(rows, heads);
    threads_.For(rows * heads, grain, [&](int64_t begin, int64_t end, int64_t thread) {
      kernels::DepthMixArgs range = args;
      range.scratch = scratch_.data() + thread * ScratchStride(max_sources_);
      range.item_begin = begin;
      range.item_end = end;
      kernels_.depth_mix(range);
    });
    queries = queries.subspan(part.size());
  }
}

}  // namespace lookback
