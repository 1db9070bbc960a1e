// THE forward pass: one for every family, mode, device and batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/config.h"
#include "engine/kv_cache.h"
#include "engine/ops.h"
#include "engine/residual.h"
#include "engine/step.h"
#include "engine/weights.h"
#include "engine/workspace.h"

namespace lookback {

/// What one layer's attention is about to read, or has read.
struct AttentionView {
  int64_t rows;
  const float* q;  ///< [rows][heads · head_dim], normed and rotated
  const float* k;  ///< [rows][kv_heads · head_dim], normed and rotated
  const float* v;  ///< [rows][kv_heads · head_dim]
  float scale;     ///< on every product of q and k
};

/// Sits at the attention of every layer: for calibration, never in serving.
class AttentionProbe {
 public:
  virtual ~AttentionProbe() = default;
  /// May change `reach` [heads], how far each query head looks from this step on.
  virtual void BeforeAttention(int64_t layer, const AttentionView& view,
                               std::span<kernels::HeadReach> reach) = 0;
  /// `out`: [rows][heads · head_dim].
  virtual void AfterAttention(int64_t layer, const AttentionView& view,
                              std::span<const kernels::HeadReach> reach, const float* out) = 0;
};

/// Keeps references to all of its arguments.
class Model {
 public:
  Model(const ModelConfig& config, const Weights& weights, Ops& ops, Workspace& workspace);

  /// Feeds the rows of `step`: writes their keys and values to the cache behind step.map and leaves
  /// the normed last state of every row in workspace.hidden.
  void Forward(const StepRows& step, const kernels::KvPool& pool);

  /// Logits of up to workspace.max_logit_rows rows of the last Forward: [rows.size()][vocab_size]
  /// in workspace.logits.
  std::span<const float> Logits(std::span<const int64_t> rows);

  void SetProbe(ResidualProbe* probe) { residual_->SetProbe(probe); }
  /// Tells `probe` of every layer's attention from now on; null for nobody.
  void SetAttentionProbe(AttentionProbe* probe) { attention_probe_ = probe; }
  int64_t residual_bytes() const { return residual_->bytes(); }

 private:
  void Attention(int64_t layer, const StepRows& step, const kernels::KvPool& pool);
  void Mlp(int64_t layer, int64_t rows);
  void Project(const SublayerInput& input, int64_t rows, const Linear& w, float* out);

  const ModelConfig& config_;
  const Weights& weights_;
  Ops& ops_;
  Workspace& workspace_;
  std::unique_ptr<ResidualStream> residual_;
  AttentionProbe* attention_probe_ = nullptr;
  std::vector<float> rope_frequency_;      ///< [head_dim/2]
  std::vector<kernels::HeadReach> reach_;  ///< [layers][heads]
};

}  // namespace lookback
