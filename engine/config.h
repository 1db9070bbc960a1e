// What a model is: plain values, immutable once validated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/json.h"
#include "engine/status.h"
#include "engine/windows.h"

namespace lookback {

enum class Family : uint8_t {
  kQwen3,
  kLlama,
  kAahGpt,  ///< GPT-2 style: LayerNorm, learned positions, GELU, one fused projection (aah.md 1)
};
std::string_view FamilyName(Family family);

/// How the residual stream is formed (mhar.md section 3).
enum class ResidualMode : uint8_t {
  kAdditive,    ///< plain: x += sublayer(norm(x))
  kFull,        ///< depth routing over every earlier sublayer output
  kFullMh,      ///< the same, per subspace
  kFullHw,      ///< the same, with one routed input a KV head at the attention sites
  kBlock,       ///< depth routing over sums of blocks of layers
  kBlockMh,     ///< the same, per subspace
  kDelta,       ///< plain sum plus a routed mix of earlier outputs
  kDeltaBlock,  ///< plain sum plus a routed mix of what blocks added
  kDeltaMh,     ///< the same, per subspace
  kHyperConnection,
};
/// "additive", "full_mh", …
std::string_view ResidualModeName(ResidualMode mode);

/// What stands between the state before a routing read and the read (mhar.md section 3, "Gates").
enum class Gate : uint8_t {
  kNone,           ///< `bias` in the release
  kAlpha,          ///< `learnable_alpha`: a raw number a site
  kSigmoidScalar,  ///< `sigmoid_scalar`: the sigmoid of a number a site
  kSigmoidVector,  ///< `sigmoid_vector`: the sigmoid of a projection of the state
};

/// "bias", "learnable_alpha", …, as the release names them.
std::string_view GateName(Gate gate);

/// Rotary position embedding, half-rotation layout.
struct RopeConfig {
  enum class Scaling : uint8_t { kDefault, kLinear, kLlama3 };
  double theta = 10000.0;
  Scaling scaling = Scaling::kDefault;
  double factor = 1.0;                ///< linear, llama3
  double low_freq_factor = 1.0;       ///< llama3
  double high_freq_factor = 4.0;      ///< llama3
  int64_t original_max_position = 0;  ///< llama3, tokens

  /// head_dim/2 inverse frequencies, f32 as the reference computes them.
  std::vector<float> InverseFrequencies(int64_t head_dim) const;
};

/// Sizes and switches of one model. Shapes below use the field names.
struct ModelConfig {
  Family family = Family::kQwen3;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;     ///< query heads
  int64_t kv_heads = 0;  ///< heads % kv_heads == 0
  int64_t head_dim = 0;  ///< even
  int64_t ffn_size = 0;
  int64_t train_context = 0;  ///< max_position_embeddings, tokens
  float norm_eps = 1e-6F;
  RopeConfig rope;
  bool qk_norm = false;         ///< RMSNorm per head on q and k before RoPE (Qwen3)
  bool attention_bias = false;  ///< biases on q, k, v and o
  bool mlp_bias = false;        ///< biases on gate, up and down
  bool tied_embeddings = false;
  ResidualMode residual = ResidualMode::kAdditive;
  int64_t routing_heads = 1;   ///< divides hidden_size; 1 unless the mode routes per head
  int64_t routing_blocks = 1;  ///< blocks the layers are cut into; 1 unless the mode has blocks
  bool null_source = false;    ///< delta modes: every read has a learned source of its own
  int64_t hyper_streams = 1;   ///< 1 unless the mode is kHyperConnection
  Gate gate = Gate::kNone;
  WindowTable windows;  ///< layers × heads

  /// Query heads that share a KV head.
  int64_t group() const { return heads / kv_heads; }
  /// LayerNorm, a table of positions and GELU, instead of RMSNorm, RoPE and SwiGLU.
  bool gpt_style() const { return family == Family::kAahGpt; }

  /// The mode reads every site through depth routing (full*, block*, delta*).
  bool routes() const;
  /// Sums of blocks of layers are kept, not every output (block*, delta_block, delta_mh).
  bool has_blocks() const;
  /// The state is the plain sum and the routed mix is added to it (delta*).
  bool is_delta() const;
  /// The last norm reads through a routing site of its own.
  bool has_final_site() const;
  /// A block begins at `layer` (has_blocks() only).
  bool block_starts(int64_t layer) const;
  /// Routing sites: reads that have something to route.
  int64_t routing_sites() const;

  /// Another residual mode's layers with plain sums between them.
  void MakeAdditive();

  /// The canonical form that a converted file carries as metadata `config` (windows apart).
  Json ToJson() const;
  /// Reads that form and validates it. Every error names the key.
  static Result<ModelConfig> FromJson(const Json& json);
  /// Ranges, divisibility and the sizes that the engine's products rely on.
  Status Validate() const;

 private:
  Status ValidateMode() const;
};

}  // namespace lookback
