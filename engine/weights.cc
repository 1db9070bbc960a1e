#include "engine/weights.h"

#include "engine/tensor_table.h"

namespace lookback {
namespace {

/// Reads tensors of one file by name; the first error sticks.
class Binder {
 public:
  explicit Binder(const SafetensorsFile& file) : file_(file) {}

  /// [out, in] matrix.
  Linear Matrix(const std::string& name, int64_t out, int64_t in) {
    Linear linear;
    linear.out = out;
    linear.in = in;
    const TensorView view = Get(name, {out, in});
    if (!status_.ok()) return linear;
    if (view.dtype != DType::kF32 && view.dtype != DType::kBF16) {
      status_ = Mismatch(StrCat("dtype of ", name, " in ", file_.path()), DTypeName(view.dtype),
                         "F32 or BF16");
      return linear;
    }
    linear.data = view.data.data();
    linear.type = view.dtype == DType::kF32 ? kernels::Element::kF32 : kernels::Element::kBF16;
    return linear;
  }

  const float* Vector(const std::string& name, std::vector<int64_t> shape) {
    const TensorView view = Get(name, std::move(shape));
    if (!status_.ok()) return nullptr;
    if (view.dtype != DType::kF32) {
      status_ =
          Mismatch(StrCat("dtype of ", name, " in ", file_.path()), DTypeName(view.dtype), "F32");
      return nullptr;
    }
    return reinterpret_cast<const float*>(view.data.data());
  }

  Linear Projection(const std::string& prefix, int64_t out, int64_t in, bool bias) {
    Linear linear = Matrix(prefix + ".weight", out, in);
    if (bias) linear.bias = Vector(prefix + ".bias", {out});
    return linear;
  }

  RoutingSite Site(const std::string& prefix, int64_t width) {
    const float* query = Vector(prefix + "_proj.weight", {1, width});
    const float* norm = Vector(prefix + "_norm.weight", {width});
    RoutingSite site;
    if (!status_.ok()) return site;
    site.query.resize(static_cast<size_t>(width));
    for (size_t i = 0; i < site.query.size(); ++i) site.query[i] = query[i] * norm[i];
    return site;
  }

  int64_t bytes() const { return bytes_; }
  Status status() { return std::move(status_); }

 private:
  TensorView Get(const std::string& name, std::vector<int64_t> shape) {
    if (!status_.ok()) return {};
    Result<TensorView> view = file_.Tensor(name);
    if (!view.ok()) {
      status_ = std::move(view).status();
      return {};
    }
    if (view->shape != shape) {
      status_ = Mismatch(StrCat("shape of ", name, " in ", file_.path()), ShapeString(view->shape),
                         ShapeString(shape));
      return {};
    }
    bytes_ += view->bytes();
    return *view;
  }

  const SafetensorsFile& file_;
  Status status_;
  int64_t bytes_ = 0;
};

LayerWeights BindLayer(Binder& binder, const ModelConfig& config, int64_t index) {
  const std::string prefix = StrCat("model.layers.", index, ".");
  const std::string attention = prefix + "self_attn.";
  const int64_t width = config.hidden_size, dim = config.head_dim;
  LayerWeights layer;
  layer.input_norm = binder.Vector(prefix + "input_layernorm.weight", {width});
  const bool bias = config.attention_bias;
  layer.q = binder.Projection(attention + "q_proj", config.heads * dim, width, bias);
  layer.k = binder.Projection(attention + "k_proj", config.kv_heads * dim, width, bias);
  layer.v = binder.Projection(attention + "v_proj", config.kv_heads * dim, width, bias);
  layer.o = binder.Projection(attention + "o_proj", width, config.heads * dim, bias);
  if (config.qk_norm) {
    layer.q_norm = binder.Vector(attention + "q_norm.weight", {dim});
    layer.k_norm = binder.Vector(attention + "k_norm.weight", {dim});
  }
  layer.post_attention_norm = binder.Vector(prefix + "post_attention_layernorm.weight", {width});
  layer.gate = binder.Projection(prefix + "mlp.gate_proj", config.ffn_size, width, config.mlp_bias);
  layer.up = binder.Projection(prefix + "mlp.up_proj", config.ffn_size, width, config.mlp_bias);
  layer.down = binder.Projection(prefix + "mlp.down_proj", width, config.ffn_size, config.mlp_bias);
  if (config.residual == ResidualMode::kFullMh) {
    layer.attention_site = binder.Site(prefix + "attn_res", width);
    layer.mlp_site = binder.Site(prefix + "mlp_res", width);
  }
  return layer;
}

}  // namespace

Result<Weights> Weights::Load(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  Binder binder(checkpoint.file());
  Weights weights;
  weights.embedding =
      binder.Matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
  for (int64_t i = 0; i < config.layers; ++i) {
    weights.layers.push_back(BindLayer(binder, config, i));
    const LayerWeights& layer = weights.layers.back();
    for (const Linear* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      weights.step_bytes += matrix->bytes();
    }
  }
  if (config.residual == ResidualMode::kFullMh) {
    weights.final_site = binder.Site("model.final_res", config.hidden_size);
  }
  weights.final_norm = binder.Vector("model.norm.weight", {config.hidden_size});
  weights.head = config.tied_embeddings
                     ? weights.embedding
                     : binder.Matrix("lm_head.weight", config.vocab_size, config.hidden_size);
  weights.step_bytes += weights.head.bytes();
  weights.file_bytes = binder.bytes();
  weights.folded_bytes =
      config.routing_sites() * config.hidden_size * static_cast<int64_t>(sizeof(float));
  LOOKBACK_RETURN_IF_ERROR(binder.status());
  return weights;
}

}  // namespace lookback
