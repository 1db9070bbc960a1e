#include "engine/model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lookback {

Model::Model(const ModelConfig& config, const Weights& weights, Ops& ops, Workspace& workspace)
    : config_(config),
      weights_(weights),
      ops_(ops),
      workspace_(workspace),
      residual_(MakeResidualStream(config, weights, ops, workspace.max_rows)) {
  // With a table of positions nothing is rotated.
  if (!weights.positions.is_there()) {
    rope_frequency_ = config.rope.InverseFrequencies(config.head_dim);
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (int64_t head = 0; head < config.heads; ++head) {
      const HeadWindow window = config.windows.at(layer, head);
      reach_.push_back({window.full() ? std::numeric_limits<int64_t>::max() / 2 : window.window,
                        window.full() ? 0 : window.sinks});
    }
  }
}

void Model::Forward(const StepRows& step, const kernels::KvPool& pool) {
  Workspace& ws = workspace_;
  if (!rope_frequency_.empty()) {
    ops_.RopeTable(ws.position, step.rows, rope_frequency_, ws.cosine, ws.sine);
  }
  ops_.Embed(weights_.embedding, step.ids, weights_.positions, ws.position, step.rows,
             residual_->Begin(step.rows));
  residual_->BeginDone();
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    Attention(layer, step, pool);
    Mlp(layer, step.rows);
  }
  const SublayerInput last = residual_->Read({Site::kFinal, 0}, weights_.final_norm);
  std::copy_n(last.data, step.rows * config_.hidden_size, ws.hidden);
}

void Model::Attention(int64_t layer, const StepRows& step, const kernels::KvPool& pool) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const Site site{Site::kAttention, layer};
  const int64_t rows = step.rows, dim = config_.head_dim;
  const int64_t list_offset = layer * config_.kv_heads;
  Workspace& ws = workspace_;

  const SublayerInput input = residual_->Read(site, w.input_norm);
  Project(input, rows, w.q, ws.q);
  Project(input, rows, w.k, ws.k);
  Project(input, rows, w.v, ws.v);
  if (config_.qk_norm) {
    ops_.RmsNorm(ws.q, rows * config_.heads, dim, w.q_norm, config_.norm_eps, ws.q);
    ops_.RmsNorm(ws.k, rows * config_.kv_heads, dim, w.k_norm, config_.norm_eps, ws.k);
  }
  if (!rope_frequency_.empty()) {
    ops_.Rope(ws.q, rows, config_.heads, dim, ws.cosine, ws.sine);
    ops_.Rope(ws.k, rows, config_.kv_heads, dim, ws.cosine, ws.sine);
  }
  // Keys go to the cache first and are read back from it, in its type: a token is seen the same way
  // by its own chunk as by every later one.
  ops_.KvWrite(pool, step, list_offset, ws.k, ws.v, config_.kv_heads);
  const std::span<kernels::HeadReach> reach(reach_.data() + layer * config_.heads,
                                            static_cast<size_t>(config_.heads));
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const AttentionView view{rows, ws.q, ws.k, ws.v, scale};
  if (attention_probe_ != nullptr) attention_probe_->BeforeAttention(layer, view, reach);
  ops_.Attention(pool, step, list_offset, ws.q, reach, config_.kv_heads, scale, ws.attention);
  if (attention_probe_ != nullptr) {
    attention_probe_->AfterAttention(layer, view, reach, ws.attention);
  }
  ops_.MatMul(ws.attention, rows, w.o, residual_->Output(site));
  residual_->Write(site);
}

void Model::Mlp(int64_t layer, int64_t rows) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const Site site{Site::kMlp, layer};
  Workspace& ws = workspace_;
  const SublayerInput input = residual_->Read(site, w.post_attention_norm);
  ops_.MatMul(input.data, rows, w.up, ws.up);
  if (w.gate.is_there()) {
    ops_.MatMul(input.data, rows, w.gate, ws.gate);
    ops_.Swiglu(ws.gate, ws.up, rows, config_.ffn_size);
  } else {
    ops_.Gelu(ws.up, rows, config_.ffn_size);
  }
  ops_.MatMul(ws.up, rows, w.down, residual_->Output(site));
  residual_->Write(site);
}

void Model::Project(const SublayerInput& input, int64_t rows, const Linear& w, float* out) {
  // Group g's rows of the weight read input g; with one group that is all of them.
  const int64_t columns = w.out / input.groups;
  for (int64_t g = 0; g < input.groups; ++g) {
    ops_.MatMulColumns(input.data + g * rows * config_.hidden_size, rows, w, g * columns,
                       (g + 1) * columns, out);
  }
}

std::span<const float> Model::Logits(std::span<const int64_t> rows) {
  const int64_t width = config_.hidden_size;
  const auto count = static_cast<int64_t>(rows.size());
  LOOKBACK_CHECK(count <= workspace_.max_logit_rows);
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(workspace_.hidden + rows[static_cast<size_t>(i)] * width, width,
                workspace_.logit_rows + i * width);
  }
  ops_.MatMul(workspace_.logit_rows, count, weights_.head, workspace_.logits);
  return {workspace_.logits, static_cast<size_t>(count * config_.vocab_size)};
}

}  // namespace lookback
