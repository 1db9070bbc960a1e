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
  const void* data = nullptr;
  kernels::Element type = kernels::Element::kF32;
  const float* bias = nullptr;
  int64_t out = 0;
  int64_t in = 0;

  int64_t bytes() const { return out * in * (type == kernels::Element::kF32 ? 4 : 2); }
};

/// One routing read: the query with the norm weight folded in, [hidden_size].
struct RoutingSite {
  std::vector<float> query;
};

struct LayerWeights {
  const float* input_norm = nullptr;  ///< [hidden_size]
  Linear q, k, v, o;  ///< [heads·head_dim | kv_heads·head_dim, hidden_size], o transposed
  const float* q_norm = nullptr;  ///< [head_dim], null without qk_norm
  const float* k_norm = nullptr;
  const float* post_attention_norm = nullptr;  ///< [hidden_size]
  Linear gate, up, down;                       ///< [ffn_size, hidden_size], down transposed
  RoutingSite attention_site, mlp_site;        ///< empty in additive mode
};

struct Weights {
  Linear embedding;  ///< [vocab_size, hidden_size]
  std::vector<LayerWeights> layers;
  RoutingSite final_site;             ///< empty where the mode has none
  const float* final_norm = nullptr;  ///< [hidden_size]
  Linear head;                        ///< the embedding's bytes where tied

  int64_t file_bytes = 0;    ///< of all tensors above, tied ones once
  int64_t folded_bytes = 0;  ///< of the folded vectors
  /// Bytes of all matrices that one token of a decode step reads, the embedding row apart.
  int64_t step_bytes = 0;

  /// Binds every tensor of ModelTensors(config); checks presence, shape and dtype once.
  /// `checkpoint` must outlive the result.
  static Result<Weights> Load(const Checkpoint& checkpoint);
};

}  // namespace lookback
