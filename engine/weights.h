// A model's weights as views into the mapped file: nothing is copied but small folded vectors.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/checkpoint.h"
#include "engine/status.h"
#include "kernels/kernels.h"

namespace lookback {

/// [out, in] row-major, with an optional bias [out].
struct Linear {
  kernels::WeightView weight;
  const float* bias = nullptr;
  int64_t out = 0;
  int64_t in = 0;

  bool is_there() const { return weight.data != nullptr; }
  /// Of the weights with their scales.
  int64_t bytes() const {
    if (!is_there()) return 0;
    const int64_t scales = IsQuantized(weight.type) ? kernels::QuantGroups(in) * 2 : 0;
    return out * (kernels::RowBytes(weight.type, in) + scales);
  }
};

/// RMSNorm with `weight`; LayerNorm where there is a bias. Both [width].
struct Norm {
  const float* weight = nullptr;
  const float* bias = nullptr;
};

/// One routing read and its gate (mhar.md sections 2 and 3).
struct RoutingSite {
  std::vector<float> query;            ///< [inputs][hidden_size], the norm weight folded in
  const float* null_source = nullptr;  ///< [hidden_size], or null
  float null_inverse_rms = 0.0F;       ///< its own, constant
  float alpha = 1.0F;                  ///< of the gate; 1 = none
  Linear gate;  ///< [hidden_size, hidden_size]: logits of the gate, or no data
};

/// How the streams of hyper-connections mix at a sublayer, n = hyper_streams.
struct HyperSite {
  std::vector<float> read;    ///< [n]: softmax of the source's alpha
  std::vector<float> update;  ///< [n][n + 1]: row j = A[j, :], then beta[j]
};

/// What the residual stream of a mode needs at one sublayer.
struct StreamSite {
  RoutingSite routing;  ///< where the mode routes
  HyperSite hyper;      ///< in hyper-connections
};

struct LayerWeights {
  Norm input_norm;
  Linear q, k, v, o;  ///< [heads·head_dim | kv_heads·head_dim, hidden_size], o transposed
  const float* q_norm = nullptr;  ///< [head_dim], null without qk_norm
  const float* k_norm = nullptr;
  Norm post_attention_norm;
  Linear gate, up, down;  ///< [ffn_size, hidden_size], down transposed; no gate in a GELU MLP
  StreamSite attention_site, mlp_site;
};

struct Weights {
  Linear embedding;  ///< [vocab_size, hidden_size]
  Linear positions;  ///< [train_context, hidden_size]; no data with RoPE
  std::vector<LayerWeights> layers;
  RoutingSite final_site;  ///< empty where the mode has none
  Norm final_norm;
  Linear head;  ///< the embedding's bytes where tied

  bool quantized = false;    ///< some matrix is
  bool bf16 = false;         ///< some matrix is
  int64_t file_bytes = 0;    ///< of all tensors above, tied ones once
  int64_t folded_bytes = 0;  ///< of the folded vectors
  /// Bytes of all matrices that one token of a decode step reads, the embedding row apart.
  int64_t step_bytes = 0;

  /// Binds every tensor of ModelTensors(config); checks presence, shape and dtype once. `config`:
  /// the checkpoint's, or one that needs fewer tensors. `checkpoint` must outlive the result.
  static Result<Weights> Load(const Checkpoint& checkpoint, const ModelConfig& config);
  static Result<Weights> Load(const Checkpoint& checkpoint) {
    return Load(checkpoint, checkpoint.config());
  }
};

}  // namespace lookback
