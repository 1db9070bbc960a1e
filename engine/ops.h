// Operators: shape bookkeeping, split over threads, kernel call. The forward pass is written in
// these.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/step.h"
#include "engine/thread_pool.h"
#include "engine/weights.h"
#include "engine/workspace.h"
#include "kernels/kernels.h"

namespace lookback {

/// Totals of the work done by operators since construction.
struct OpCounters {
  int64_t attention_products = 0;
  int64_t keys_read = 0;
};

/// What a DepthMix reads: sources and what comes before them (kernels::DepthMixArgs).
struct DepthSources {
  const float* sources;  ///< [count], each [rows][width]
  int64_t count;
  int64_t stride;            ///< floats from one source to the next
  const float* inverse_rms;  ///< [count], each [rows]
  int64_t inverse_rms_stride;
  const float* null_source = nullptr;
  float null_inverse_rms = 0.0F;
  const float* mean = nullptr;  ///< [rows][width]
  const float* mean_logit = nullptr;
};

/// A query of a DepthMix and where its results go.
struct DepthQuery {
  const float* query;  ///< [width]
  float* out;          ///< [rows][width]
  float* logit;        ///< [rows][heads], or null
};

/// All row strides are the row widths; rows of x and y are contiguous.
class Ops {
 public:
  /// `max_sources`: most sources a DepthMix reads. `narrow`: for the input of any product.
  Ops(const kernels::KernelTable& kernels, ThreadPool& threads, int64_t max_sources,
      NarrowInput narrow);

  /// y [rows][w.out] = x [rows][w.in] · wᵀ + bias
  void MatMul(const float* x, int64_t rows, const Linear& w, float* y);
  /// Output columns [out_begin, out_end) of the same, y still [rows][w.out].
  void MatMulColumns(const float* x, int64_t rows, const Linear& w, int64_t out_begin,
                     int64_t out_end, float* y);
  /// out[r] = table[ids[r]], + positions[position[r]] where that table has data.
  void Embed(const Linear& table, const int32_t* ids, const Linear& positions,
             const int64_t* position, int64_t rows, float* out);
  /// RMSNorm, or LayerNorm where `norm` has a bias. y may be x.
  void Normalize(const float* x, int64_t rows, int64_t width, const Norm& norm, float eps,
                 float* y);
  /// y may be x.
  void RmsNorm(const float* x, int64_t rows, int64_t width, const float* weight, float eps,
               float* y);
  void InverseRms(const float* x, int64_t rows, int64_t width, float eps, float* inverse);
  /// y += x
  void Add(const float* x, int64_t rows, int64_t width, float* y);
  void RopeTable(const int64_t* position, int64_t rows, std::span<const float> frequency,
                 float* cosine, float* sine);
  /// x [rows][heads · head_dim], in place.
  void Rope(float* x, int64_t rows, int64_t heads, int64_t head_dim, const float* cosine,
            const float* sine);
  /// x = gelu(x), the exact form.
  void Gelu(float* x, int64_t rows, int64_t width);
  /// out = sum over n of weights[n] · source n, [rows][width], each `stride` floats after the last.
  void Combine(const float* sources, int64_t stride, std::span<const float> weights, int64_t rows,
               int64_t width, float* out);
  /// read = (1 − a) · state + a · read; a = sigmoid(logits) where there are some, else alpha.
  void GateRead(const float* state, const float* logits, float alpha, int64_t rows, int64_t width,
                float* read);
  /// up = silu(gate) · up
  void Swiglu(const float* gate, float* up, int64_t rows, int64_t width);
  /// Stores k and v [rows][kv_heads · head_dim] of `step` in the cache.
  void KvWrite(const kernels::KvPool& pool, const StepRows& step, int64_t list_offset,
               const float* k, const float* v, int64_t kv_heads);
  /// out [rows][heads · head_dim]; reach [heads].
  void Attention(const kernels::KvPool& pool, const StepRows& step, int64_t list_offset,
                 const float* q, std::span<const kernels::HeadReach> reach, int64_t kv_heads,
                 float scale, float* out);
  /// Mixes the sources by every query. `shares`: null, or where the softmax of the only query goes,
  /// [rows][heads][sources].
  void DepthMix(const DepthSources& sources, std::span<const DepthQuery> queries, int64_t heads,
                int64_t rows, int64_t width, float* shares);

  const OpCounters& counters() const { return counters_; }
  const kernels::KernelTable& kernels() const { return kernels_; }

 private:
  /// Of items (row, head). Whole rows where there are enough: what one head or row fetches, the
  /// next uses.
  int64_t GrainOfHeads(int64_t rows, int64_t heads) const;

  const kernels::KernelTable& kernels_;
  ThreadPool& threads_;
  int64_t max_sources_;
  NarrowInput narrow_;
  std::vector<float> scratch_;  ///< [threads][what a DepthMix needs, padded]
  struct alignas(64) PaddedCount {
    kernels::AttentionCount count;
  };
  std::vector<PaddedCount> counts_;  ///< [threads]
  OpCounters counters_;
};

}  // namespace lookback
