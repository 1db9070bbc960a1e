#include "engine/controller/networks.h"

#include <cmath>

#include "engine/controller/features.h"
#include "engine/controller/inputs.h"

namespace lookback::controller {
namespace {

constexpr std::string_view kPrefix = "lookback.controller.";

float Gelu(float x) {
  const double wide = x;
  return static_cast<float>(0.5 * wide * (1.0 + std::erf(wide * std::sqrt(0.5))));
}

Result<std::vector<float>> ReadValues(const SafetensorsFile& file, const std::string& name,
                                      std::vector<int64_t> shape) {
  LOOKBACK_ASSIGN_OR_RETURN(const TensorView view, file.Tensor(name, DType::kF32, shape));
  std::vector<float> values(static_cast<size_t>(view.elements()));
  LOOKBACK_RETURN_IF_ERROR(CopyAsF32(view, values));
  return values;
}

/// The Dense layer PREFIX.{weight,bias}: [out, in]. An `out` of 0 is what the file says.
Result<Dense> LoadDense(const SafetensorsFile& file, const std::string& prefix, int64_t out,
                        int64_t in) {
  if (out == 0) {
    LOOKBACK_ASSIGN_OR_RETURN(const TensorView view, file.Tensor(prefix + ".weight"));
    if (view.shape.size() != 2 || view.shape[0] < 1) {
      return Mismatch(StrCat("shape of ", prefix, ".weight in ", file.path()),
                      ShapeString(view.shape), StrCat("[hidden,", in, "]"));
    }
    out = view.shape[0];
  }
  Dense dense;
  dense.out = out;
  dense.in = in;
  LOOKBACK_ASSIGN_OR_RETURN(dense.weight, ReadValues(file, prefix + ".weight", {out, in}));
  LOOKBACK_ASSIGN_OR_RETURN(dense.bias, ReadValues(file, prefix + ".bias", {out}));
  return dense;
}

/// The Linears PREFIX0, PREFIX2, … of a Sequential with activations between them.
Result<Mlp> LoadMlp(const SafetensorsFile& file, const std::string& prefix, int64_t linears,
                    int64_t in, int64_t out) {
  Mlp mlp;
  for (int64_t i = 0; i < linears; ++i) {
    LOOKBACK_ASSIGN_OR_RETURN(
        Dense dense, LoadDense(file, StrCat(prefix, 2 * i), i + 1 == linears ? out : 0, in));
    in = dense.out;
    mlp.layers.push_back(std::move(dense));
  }
  return mlp;
}

}  // namespace

std::vector<float> Mlp::operator()(std::span<const float> x) const {
  std::vector<float> values(x.begin(), x.end());
  for (size_t l = 0; l < layers.size(); ++l) {
    const Dense& dense = layers[l];
    LOOKBACK_CHECK(std::ssize(values) == dense.in);
    std::vector<float> next;
    for (int64_t o = 0; o < dense.out; ++o) {
      double sum = dense.bias[static_cast<size_t>(o)];
      const float* row = dense.weight.data() + o * dense.in;
      for (int64_t i = 0; i < dense.in; ++i) {
        sum += static_cast<double>(row[i]) * static_cast<double>(values[static_cast<size_t>(i)]);
      }
      const auto value = static_cast<float>(sum);
      next.push_back(l + 1 < layers.size() ? Gelu(value) : value);
    }
    values = std::move(next);
  }
  return values;
}

Result<Networks> LoadNetworks(const SafetensorsFile& file, const NativeConfig& config,
                              int64_t layer) {
  const std::string prefix = StrCat(kPrefix, "blocks.", layer, ".attn.");
  const int64_t width = InputWidth(config.controller_input_mode);
  const auto choices = std::ssize(config.windows);
  Networks networks;
  const int64_t linears = config.controller_arch == Arch::kDeepMlp ? 3 : 2;
  LOOKBACK_ASSIGN_OR_RETURN(networks.controller,
                            LoadMlp(file, prefix + "controller.mlp.", linears, width, choices));
  // Grouping off ignores the pairwise mode.
  if (!config.build_hierarchy) return networks;
  if (config.controller_pairwise_mode == PairwiseMode::kJointSibling) {
    LOOKBACK_ASSIGN_OR_RETURN(networks.joint, LoadMlp(file, prefix + "joint_sibling_scorer.mlp.", 2,
                                                      4 * width, 2 * choices));
  }
  if (config.controller_pairwise_mode == PairwiseMode::kSiblingBias) {
    LOOKBACK_ASSIGN_OR_RETURN(networks.sibling_bias,
                              LoadMlp(file, prefix + "pairwise_bias.mlp.", 2, width, choices));
  }
  return networks;
}

Result<Mlp> LoadAdapterNetwork(const SafetensorsFile& file, const AdapterConfig& config,
                               int64_t layer) {
  return LoadMlp(file, StrCat(kPrefix, "layers.", layer, ".net."), 2,
                 static_cast<int64_t>(kAdapterFeatures), std::ssize(config.windows));
}

}  // namespace lookback::controller
