#include "engine/weights.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/tensor_table.h"

namespace lookback {
namespace {

/// Reads tensors of one file by name; the first error sticks.
class Binder {
 public:
  explicit Binder(const SafetensorsFile& file) : file_(file) {}

  /// [out, in] matrix: F32 or BF16 as it is, I8 [out, in] (q8) or U8 [out, 16 · groups] (q4) with
  /// NAME.scale, F16 [out, groups].
  Linear Matrix(const std::string& name, int64_t out, int64_t in) {
    Linear linear;
    linear.out = out;
    linear.in = in;
    const TensorView view = Get(name);
    if (!status_.ok()) return linear;
    const int64_t groups = kernels::QuantGroups(in);
    kernels::WeightView& weight = linear.weight;
    if (const std::optional<kernels::Element> type = ElementOf(view.dtype)) {
      weight.type = *type;
      const bool packed = weight.type == kernels::Element::kQ4;
      CheckShape(name, view, {out, packed ? groups * kernels::kQ4GroupBytes : in});
    } else {
      status_ = Mismatch(StrCat("dtype of ", name, " in ", file_.path()), DTypeName(view.dtype),
                         "F32, BF16, I8 (q8) or U8 (q4)");
    }
    if (IsQuantized(weight.type)) {
      const std::string scale_name = name + ".scale";
      const TensorView scale = Get(scale_name);
      CheckShape(scale_name, scale, {out, groups});
      CheckDType(scale_name, scale, DType::kF16);
      weight.scale = reinterpret_cast<const uint16_t*>(scale.data.data());
      quantized_ = true;
    }
    bf16_ = bf16_ || weight.type == kernels::Element::kBF16;
    weight.data = view.data.data();
    return linear;
  }

  const float* Vector(const std::string& name, const std::vector<int64_t>& shape) {
    const TensorView view = Get(name);
    CheckShape(name, view, shape);
    CheckDType(name, view, DType::kF32);
    if (!status_.ok()) return nullptr;
    return reinterpret_cast<const float*>(view.data.data());
  }

  Linear Projection(const std::string& prefix, int64_t out, int64_t in, bool bias) {
    Linear linear = Matrix(prefix + ".weight", out, in);
    if (bias) linear.bias = Vector(prefix + ".bias", {out});
    return linear;
  }

  Norm LayerNorm(const std::string& prefix, int64_t width) {
    return {Vector(prefix + ".weight", {width}), Vector(prefix + ".bias", {width})};
  }

  /// `inputs` queries over sources of `width`; no gate, no null source.
  RoutingSite Queries(const std::string& prefix, int64_t inputs, int64_t width) {
    const float* query = Vector(prefix + "_proj.weight", {inputs, width});
    const float* norm = Vector(prefix + "_norm.weight", {width});
    RoutingSite site;
    if (!status_.ok()) return site;
    const auto size = static_cast<size_t>(width);
    site.query.resize(static_cast<size_t>(inputs) * size);
    for (size_t i = 0; i < site.query.size(); ++i) site.query[i] = query[i] * norm[i % size];
    folded_bytes_ += static_cast<int64_t>(site.query.size() * sizeof(float));
    return site;
  }

  void AddNullSource(const std::string& name, int64_t width, float eps, RoutingSite& site) {
    site.null_source = Vector(name, {width});
    if (!status_.ok()) return;
    kernels::ReferenceKernels().inverse_rms(
        {site.null_source, width, &site.null_inverse_rms, width, eps, 0, 1});
  }

  void AddGate(const std::string& prefix, Gate gate, int64_t width, RoutingSite& site) {
    if (gate == Gate::kSigmoidVector) {
      site.gate = Projection(prefix + "_gate_proj", width, width, /*bias=*/true);
    } else if (gate != Gate::kNone) {
      const bool raw = gate == Gate::kAlpha;
      const float* value = Vector(prefix + (raw ? "_alpha" : "_gate_logit"), {1});
      if (status_.ok()) site.alpha = raw ? *value : 1.0F / (1.0F + std::exp(-*value));
    }
  }

  HyperSite Hyper(const std::string& layer, const std::string& sublayer, int64_t streams) {
    const float* alpha = Vector(StrCat(layer, "hc_alpha_", sublayer), {streams});
    const float* matrix = Vector(StrCat(layer, "hc_A_", sublayer), {streams, streams});
    const float* beta = Vector(StrCat(layer, "hc_beta_", sublayer), {streams});
    HyperSite site;
    if (!status_.ok()) return site;
    const float highest = *std::max_element(alpha, alpha + streams);
    float sum = 0.0F;
    for (int64_t i = 0; i < streams; ++i) {
      site.read.push_back(std::exp(alpha[i] - highest));
      sum += site.read.back();
    }
    for (float& share : site.read) share /= sum;
    for (int64_t j = 0; j < streams; ++j) {
      site.update.insert(site.update.end(), matrix + j * streams, matrix + (j + 1) * streams);
      site.update.push_back(beta[j]);
    }
    folded_bytes_ += static_cast<int64_t>((site.read.size() + site.update.size()) * sizeof(float));
    return site;
  }

  bool quantized() const { return quantized_; }
  bool bf16() const { return bf16_; }
  int64_t folded_bytes() const { return folded_bytes_; }
  int64_t bytes() const { return bytes_; }
  Status status() { return std::move(status_); }

 private:
  static std::optional<kernels::Element> ElementOf(DType dtype) {
    switch (dtype) {
      case DType::kF32:
        return kernels::Element::kF32;
      case DType::kBF16:
        return kernels::Element::kBF16;
      case DType::kI8:
        return kernels::Element::kQ8;
      case DType::kU8:
        return kernels::Element::kQ4;
      default:
        return std::nullopt;
    }
  }

  TensorView Get(const std::string& name) {
    if (!status_.ok()) return {};
    Result<TensorView> view = file_.Tensor(name);
    if (!view.ok()) {
      status_ = std::move(view).status();
      return {};
    }
    bytes_ += view->bytes();
    return *std::move(view);
  }

  void CheckShape(const std::string& name, const TensorView& view,
                  const std::vector<int64_t>& shape) {
    if (!status_.ok() || view.shape == shape) return;
    status_ = Mismatch(StrCat("shape of ", name, " in ", file_.path()), ShapeString(view.shape),
                       ShapeString(shape));
  }
  void CheckDType(const std::string& name, const TensorView& view, DType dtype) {
    if (!status_.ok() || view.dtype == dtype) return;
    status_ = Mismatch(StrCat("dtype of ", name, " in ", file_.path()), DTypeName(view.dtype),
                       DTypeName(dtype));
  }

  const SafetensorsFile& file_;
  Status status_;
  int64_t bytes_ = 0;
  int64_t folded_bytes_ = 0;
  bool quantized_ = false;
  bool bf16_ = false;
};

/// The sites of the sublayer `name` ("attn" or "mlp"), whose attention site has `inputs` queries.
StreamSite BindSite(Binder& binder, const ModelConfig& config, const std::string& layer,
                    const std::string& name, int64_t inputs) {
  StreamSite site;
  if (config.residual == ResidualMode::kHyperConnection) {
    site.hyper = binder.Hyper(layer, name, config.hyper_streams);
  }
  if (!config.routes()) return site;
  const int64_t width = config.hidden_size;
  const std::string prefix = StrCat(layer, name, "_res");
  site.routing = binder.Queries(prefix, inputs, width);
  binder.AddGate(prefix, config.gate, width, site.routing);
  if (config.null_source) {
    binder.AddNullSource(StrCat(layer, name, "_null_source"), width, config.norm_eps, site.routing);
  }
  return site;
}

/// Rows [begin, begin + rows) of a matrix without bias.
Linear RowsOf(const Linear& whole, int64_t begin, int64_t rows) {
  Linear part = whole;
  if (!whole.is_there()) return part;
  part.weight.data = static_cast<const std::byte*>(whole.weight.data) +
                     begin * kernels::RowBytes(whole.weight.type, whole.in);
  if (IsQuantized(whole.weight.type)) {
    part.weight.scale = whole.weight.scale + begin * kernels::QuantGroups(whole.in);
  }
  part.out = rows;
  return part;
}

LayerWeights BindGptLayer(Binder& binder, const ModelConfig& config, int64_t index) {
  const std::string prefix = StrCat("blocks.", index, ".");
  const int64_t width = config.hidden_size;
  LayerWeights layer;
  layer.input_norm = binder.LayerNorm(prefix + "ln1", width);
  const Linear qkv = binder.Matrix(prefix + "attn.qkv.weight", 3 * width, width);
  layer.q = RowsOf(qkv, 0, width);
  layer.k = RowsOf(qkv, width, width);
  layer.v = RowsOf(qkv, 2 * width, width);
  layer.o = binder.Matrix(prefix + "attn.proj.weight", width, width);
  layer.post_attention_norm = binder.LayerNorm(prefix + "ln2", width);
  layer.up = binder.Projection(prefix + "mlp.fc1", config.ffn_size, width, /*bias=*/true);
  layer.down = binder.Projection(prefix + "mlp.fc2", width, config.ffn_size, /*bias=*/true);
  return layer;
}

LayerWeights BindDecoderLayer(Binder& binder, const ModelConfig& config, int64_t index) {
  const std::string prefix = StrCat("model.layers.", index, ".");
  const std::string attention = prefix + "self_attn.";
  const int64_t width = config.hidden_size, dim = config.head_dim;
  const bool head_wise = config.residual == ResidualMode::kFullHw;
  LayerWeights layer;
  layer.input_norm.weight = binder.Vector(prefix + "input_layernorm.weight", {width});
  // Head-wise routing leaves the biases of q, k and v out (mhar.md section 1).
  const bool bias = config.attention_bias, input_bias = bias && !head_wise;
  layer.q = binder.Projection(attention + "q_proj", config.heads * dim, width, input_bias);
  layer.k = binder.Projection(attention + "k_proj", config.kv_heads * dim, width, input_bias);
  layer.v = binder.Projection(attention + "v_proj", config.kv_heads * dim, width, input_bias);
  layer.o = binder.Projection(attention + "o_proj", width, config.heads * dim, bias);
  if (config.qk_norm) {
    layer.q_norm = binder.Vector(attention + "q_norm.weight", {dim});
    layer.k_norm = binder.Vector(attention + "k_norm.weight", {dim});
  }
  layer.post_attention_norm.weight =
      binder.Vector(prefix + "post_attention_layernorm.weight", {width});
  layer.gate = binder.Projection(prefix + "mlp.gate_proj", config.ffn_size, width, config.mlp_bias);
  layer.up = binder.Projection(prefix + "mlp.up_proj", config.ffn_size, width, config.mlp_bias);
  layer.down = binder.Projection(prefix + "mlp.down_proj", width, config.ffn_size, config.mlp_bias);
  layer.attention_site = BindSite(binder, config, prefix, "attn", head_wise ? config.kv_heads : 1);
  layer.mlp_site = BindSite(binder, config, prefix, "mlp", 1);
  return layer;
}

/// Everything outside the layers.
void BindEnds(Binder& binder, const ModelConfig& config, Weights& weights) {
  const int64_t vocab = config.vocab_size, width = config.hidden_size;
  if (config.gpt_style()) {
    weights.embedding = binder.Matrix("wte.weight", vocab, width);
    weights.positions = binder.Matrix("wpe.weight", config.train_context, width);
    weights.final_norm = binder.LayerNorm("ln_f", width);
  } else {
    weights.embedding = binder.Matrix("model.embed_tokens.weight", vocab, width);
    weights.final_norm.weight = binder.Vector("model.norm.weight", {width});
  }
  if (config.has_final_site()) weights.final_site = binder.Queries("model.final_res", 1, width);
  weights.head =
      config.tied_embeddings ? weights.embedding : binder.Matrix("lm_head.weight", vocab, width);
}

}  // namespace

Result<Weights> Weights::Load(const Checkpoint& checkpoint, const ModelConfig& config) {
  Binder binder(checkpoint.file());
  Weights weights;
  BindEnds(binder, config, weights);
  weights.step_bytes = weights.head.bytes();
  for (int64_t i = 0; i < config.layers; ++i) {
    weights.layers.push_back(config.gpt_style() ? BindGptLayer(binder, config, i)
                                                : BindDecoderLayer(binder, config, i));
    const LayerWeights& layer = weights.layers.back();
    for (const Linear* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down,
          &layer.attention_site.routing.gate, &layer.mlp_site.routing.gate}) {
      weights.step_bytes += matrix->bytes();
    }
  }
  weights.quantized = binder.quantized();
  weights.bf16 = binder.bf16();
  weights.file_bytes = binder.bytes();
  weights.folded_bytes = binder.folded_bytes();
  LOOKBACK_RETURN_IF_ERROR(binder.status());
  return weights;
}

}  // namespace lookback
