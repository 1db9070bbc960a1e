#include "engine/tensor_table.h"

#include <span>

namespace lookback {

namespace {

/// A size of a tensor, named after what it is in the config.
enum class Dim : uint8_t {
  kNone,
  kOne,
  kVocab,
  kContext,
  kHidden,
  kThreeHidden,
  kQuery,
  kKv,
  kHeadDim,
  kFfn,
  kSites,  ///< queries of an attention site: one a KV head in full_hw, else one
  kStreams,
};

/// When a tensor is there at all.
enum class When : uint8_t {
  kAlways,
  kQkNorm,
  kInputBias,  ///< of q, k and v: full_hw has them in the file but does not use them
  kAttentionBias,
  kMlpBias,
  kRouted,
  kFinalSite,
  kNullSource,
  kAlphaGate,
  kSigmoidScalarGate,
  kSigmoidVectorGate,
  kHyper,
  kUntied,
};

constexpr TensorSpec::Role kMatrix = TensorSpec::kMatrix;
constexpr TensorSpec::Role kSensitive = TensorSpec::kSensitive;
constexpr TensorSpec::Role kVector = TensorSpec::kVector;

struct TensorRow {
  std::string_view name;  ///< without prefix in the layers' table
  Dim rows;
  Dim columns;  ///< kNone: rank 1
  TensorSpec::Role role;
  When when;
};

/// The tables of one family: before the layers, in each layer, after them.
struct FamilyTable {
  std::span<const TensorRow> before;
  std::string_view layer_prefix;  ///< followed by the layer's number and a dot
  std::span<const TensorRow> layer;
  std::span<const TensorRow> after;
};

// The rows of Transformers' Qwen3 and Llama and of their attention-residual classes (mhar.md
// section 1).
constexpr TensorRow kDecoderBefore[] = {
    {"model.embed_tokens.weight", Dim::kVocab, Dim::kHidden, kSensitive, When::kAlways},
};
constexpr TensorRow kDecoderLayer[] = {
    {"attn_res_proj.weight", Dim::kSites, Dim::kHidden, kVector, When::kRouted},
    {"attn_res_norm.weight", Dim::kHidden, Dim::kNone, kVector, When::kRouted},
    {"attn_null_source", Dim::kHidden, Dim::kNone, kVector, When::kNullSource},
    {"attn_res_alpha", Dim::kOne, Dim::kNone, kVector, When::kAlphaGate},
    {"attn_res_gate_logit", Dim::kOne, Dim::kNone, kVector, When::kSigmoidScalarGate},
    {"attn_res_gate_proj.weight", Dim::kHidden, Dim::kHidden, kVector, When::kSigmoidVectorGate},
    {"attn_res_gate_proj.bias", Dim::kHidden, Dim::kNone, kVector, When::kSigmoidVectorGate},
    {"hc_alpha_attn", Dim::kStreams, Dim::kNone, kVector, When::kHyper},
    {"hc_A_attn", Dim::kStreams, Dim::kStreams, kVector, When::kHyper},
    {"hc_beta_attn", Dim::kStreams, Dim::kNone, kVector, When::kHyper},
    {"input_layernorm.weight", Dim::kHidden, Dim::kNone, kVector, When::kAlways},
    {"self_attn.q_proj.weight", Dim::kQuery, Dim::kHidden, kMatrix, When::kAlways},
    {"self_attn.q_proj.bias", Dim::kQuery, Dim::kNone, kVector, When::kInputBias},
    {"self_attn.k_proj.weight", Dim::kKv, Dim::kHidden, kMatrix, When::kAlways},
    {"self_attn.k_proj.bias", Dim::kKv, Dim::kNone, kVector, When::kInputBias},
    {"self_attn.v_proj.weight", Dim::kKv, Dim::kHidden, kSensitive, When::kAlways},
    {"self_attn.v_proj.bias", Dim::kKv, Dim::kNone, kVector, When::kInputBias},
    {"self_attn.q_norm.weight", Dim::kHeadDim, Dim::kNone, kVector, When::kQkNorm},
    {"self_attn.k_norm.weight", Dim::kHeadDim, Dim::kNone, kVector, When::kQkNorm},
    {"self_attn.o_proj.weight", Dim::kHidden, Dim::kQuery, kMatrix, When::kAlways},
    {"self_attn.o_proj.bias", Dim::kHidden, Dim::kNone, kVector, When::kAttentionBias},
    {"mlp_res_proj.weight", Dim::kOne, Dim::kHidden, kVector, When::kRouted},
    {"mlp_res_norm.weight", Dim::kHidden, Dim::kNone, kVector, When::kRouted},
    {"mlp_null_source", Dim::kHidden, Dim::kNone, kVector, When::kNullSource},
    {"mlp_res_alpha", Dim::kOne, Dim::kNone, kVector, When::kAlphaGate},
    {"mlp_res_gate_logit", Dim::kOne, Dim::kNone, kVector, When::kSigmoidScalarGate},
    {"mlp_res_gate_proj.weight", Dim::kHidden, Dim::kHidden, kVector, When::kSigmoidVectorGate},
    {"mlp_res_gate_proj.bias", Dim::kHidden, Dim::kNone, kVector, When::kSigmoidVectorGate},
    {"hc_alpha_mlp", Dim::kStreams, Dim::kNone, kVector, When::kHyper},
    {"hc_A_mlp", Dim::kStreams, Dim::kStreams, kVector, When::kHyper},
    {"hc_beta_mlp", Dim::kStreams, Dim::kNone, kVector, When::kHyper},
    {"post_attention_layernorm.weight", Dim::kHidden, Dim::kNone, kVector, When::kAlways},
    {"mlp.gate_proj.weight", Dim::kFfn, Dim::kHidden, kMatrix, When::kAlways},
    {"mlp.gate_proj.bias", Dim::kFfn, Dim::kNone, kVector, When::kMlpBias},
    {"mlp.up_proj.weight", Dim::kFfn, Dim::kHidden, kMatrix, When::kAlways},
    {"mlp.up_proj.bias", Dim::kFfn, Dim::kNone, kVector, When::kMlpBias},
    {"mlp.down_proj.weight", Dim::kHidden, Dim::kFfn, kMatrix, When::kAlways},
    {"mlp.down_proj.bias", Dim::kHidden, Dim::kNone, kVector, When::kMlpBias},
};
constexpr TensorRow kDecoderAfter[] = {
    {"model.final_res_proj.weight", Dim::kOne, Dim::kHidden, kVector, When::kFinalSite},
    {"model.final_res_norm.weight", Dim::kHidden, Dim::kNone, kVector, When::kFinalSite},
    {"model.norm.weight", Dim::kHidden, Dim::kNone, kVector, When::kAlways},
    {"lm_head.weight", Dim::kVocab, Dim::kHidden, kSensitive, When::kUntied},
};
constexpr FamilyTable kDecoder = {kDecoderBefore, "model.layers.", kDecoderLayer, kDecoderAfter};

// AAH's own network (aah.md section 1).
constexpr TensorRow kGptBefore[] = {
    {"wte.weight", Dim::kVocab, Dim::kHidden, kSensitive, When::kAlways},
    {"wpe.weight", Dim::kContext, Dim::kHidden, kSensitive, When::kAlways},
};
constexpr TensorRow kGptLayer[] = {
    {"ln1.weight", Dim::kHidden, Dim::kNone, kVector, When::kAlways},
    {"ln1.bias", Dim::kHidden, Dim::kNone, kVector, When::kAlways},
    {"attn.qkv.weight", Dim::kThreeHidden, Dim::kHidden, kMatrix, When::kAlways},
    {"attn.proj.weight", Dim::kHidden, Dim::kHidden, kMatrix, When::kAlways},
    {"ln2.weight", Dim::kHidden, Dim::kNone, kVector, When::kAlways},
    {"ln2.bias", Dim::kHidden, Dim::kNone, kVector, When::kAlways},
    {"mlp.fc1.weight", Dim::kFfn, Dim::kHidden, kMatrix, When::kAlways},
    {"mlp.fc1.bias", Dim::kFfn, Dim::kNone, kVector, When::kAlways},
    {"mlp.fc2.weight", Dim::kHidden, Dim::kFfn, kMatrix, When::kAlways},
    {"mlp.fc2.bias", Dim::kHidden, Dim::kNone, kVector, When::kAlways},
};
constexpr TensorRow kGptAfter[] = {
    {"ln_f.weight", Dim::kHidden, Dim::kNone, kVector, When::kAlways},
    {"ln_f.bias", Dim::kHidden, Dim::kNone, kVector, When::kAlways},
};
constexpr FamilyTable kGpt = {kGptBefore, "blocks.", kGptLayer, kGptAfter};

const FamilyTable& TableOf(Family family) { return family == Family::kAahGpt ? kGpt : kDecoder; }

/// What releases carry beyond the tables, and when it means nothing to the forward pass.
struct IgnoredRow {
  std::string_view name;  ///< without the layer prefix where in_layer; ends in '*' for a prefix
  bool in_layer;
  bool (*when)(const ModelConfig&);
};

bool IsAttnRes(const ModelConfig& config) { return config.residual != ResidualMode::kAdditive; }
bool IsUngated(const ModelConfig& config) {
  return config.residual == ResidualMode::kHyperConnection ||
         config.residual == ResidualMode::kFullHw;
}
bool IsHeadWise(const ModelConfig& config) { return config.residual == ResidualMode::kFullHw; }
bool IsTied(const ModelConfig& config) { return config.tied_embeddings; }
bool IsGpt(const ModelConfig& config) { return config.gpt_style(); }
bool IsDecoder(const ModelConfig& config) { return !config.gpt_style(); }

constexpr IgnoredRow kIgnored[] = {
    // Files of the attention-residual classes may have these whether their mode reads them or not.
    {"attn_null_source", true, IsAttnRes},
    {"mlp_null_source", true, IsAttnRes},
    {"attn_res_*", true, IsUngated},
    {"mlp_res_*", true, IsUngated},
    {"self_attn.q_proj.bias", true, IsHeadWise},
    {"self_attn.k_proj.bias", true, IsHeadWise},
    {"self_attn.v_proj.bias", true, IsHeadWise},
    // A buffer that old versions of Transformers saved; RoPE is computed from the config.
    {"self_attn.rotary_emb.inv_freq", true, IsDecoder},
    // A copy of the embedding, or stale: Transformers overwrites it with the embedding, too.
    {"lm_head.weight", false, IsTied},
    // Buffers of 4·T² bytes a layer.
    {"attn.full_mask", true, IsGpt},
    {"attn.mask", true, IsGpt},
};

bool IsThere(When when, const ModelConfig& config) {
  switch (when) {
    case When::kAlways:
      return true;
    case When::kQkNorm:
      return config.qk_norm;
    case When::kInputBias:
      return config.attention_bias && config.residual != ResidualMode::kFullHw;
    case When::kAttentionBias:
      return config.attention_bias;
    case When::kMlpBias:
      return config.mlp_bias;
    case When::kRouted:
      return config.routes();
    case When::kFinalSite:
      return config.has_final_site();
    case When::kNullSource:
      return config.null_source;
    case When::kAlphaGate:
      return config.gate == Gate::kAlpha;
    case When::kSigmoidScalarGate:
      return config.gate == Gate::kSigmoidScalar;
    case When::kSigmoidVectorGate:
      return config.gate == Gate::kSigmoidVector;
    case When::kHyper:
      return config.residual == ResidualMode::kHyperConnection;
    case When::kUntied:
      return !config.tied_embeddings;
  }
  return false;
}

int64_t Size(Dim dim, const ModelConfig& config) {
  switch (dim) {
    case Dim::kNone:
    case Dim::kOne:
      return 1;
    case Dim::kVocab:
      return config.vocab_size;
    case Dim::kContext:
      return config.train_context;
    case Dim::kHidden:
      return config.hidden_size;
    case Dim::kThreeHidden:
      return 3 * config.hidden_size;
    case Dim::kQuery:
      return config.heads * config.head_dim;
    case Dim::kKv:
      return config.kv_heads * config.head_dim;
    case Dim::kHeadDim:
      return config.head_dim;
    case Dim::kFfn:
      return config.ffn_size;
    case Dim::kSites:
      return config.residual == ResidualMode::kFullHw ? config.kv_heads : 1;
    case Dim::kStreams:
      return config.hyper_streams;
  }
  return 0;
}

void AddRows(std::span<const TensorRow> rows, const std::string& prefix, const ModelConfig& config,
             std::vector<TensorSpec>& out) {
  for (const TensorRow& row : rows) {
    if (!IsThere(row.when, config)) continue;
    std::vector<int64_t> shape = {Size(row.rows, config)};
    if (row.columns != Dim::kNone) shape.push_back(Size(row.columns, config));
    out.push_back({prefix + std::string(row.name), std::move(shape), row.role});
  }
}

/// The part of `name` behind "PREFIXl." for a layer l of the model; empty if it is no such name.
std::string_view NameInLayer(std::string_view name, std::string_view prefix, int64_t layers) {
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || layer < 0 || layer >= layers) return {};
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  if (!name.starts_with('.')) return {};
  return name.substr(1);
}

}  // namespace

kernels::Element StoredType(const TensorSpec& spec, kernels::Element matrices) {
  using kernels::Element;
  if (spec.role == TensorSpec::kVector) return Element::kF32;
  if (spec.role == TensorSpec::kSensitive && matrices == Element::kQ4) return Element::kQ8;
  return matrices;
}

std::vector<TensorSpec> ModelTensors(const ModelConfig& config) {
  const FamilyTable& table = TableOf(config.family);
  std::vector<TensorSpec> out;
  AddRows(table.before, "", config, out);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    AddRows(table.layer, StrCat(table.layer_prefix, layer, "."), config, out);
  }
  AddRows(table.after, "", config, out);
  return out;
}

bool IsIgnoredTensor(const ModelConfig& config, std::string_view name) {
  const std::string_view in_layer =
      NameInLayer(name, TableOf(config.family).layer_prefix, config.layers);
  for (const IgnoredRow& row : kIgnored) {
    const std::string_view whole = row.in_layer ? in_layer : name;
    const bool same = row.name.ends_with('*')
                          ? whole.starts_with(row.name.substr(0, row.name.size() - 1))
                          : whole == row.name;
    if (same && row.when(config)) return true;
  }
  return false;
}

}  // namespace lookback
