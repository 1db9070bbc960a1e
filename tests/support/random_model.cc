#include "tests/support/random_model.h"

#include <cmath>
#include <random>
#include <stdexcept>

#include "engine/safetensors.h"
#include "engine/tensor_table.h"
#include "tests/support/support.h"

namespace lookback::testing {
namespace {

void Must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

}  // namespace

ModelConfig TinyConfig(ResidualMode mode) {
  ModelConfig config;
  config.family = Family::kQwen3;
  config.vocab_size = 97;
  config.hidden_size = 48;
  config.layers = 3;
  config.heads = 6;
  config.kv_heads = 3;
  config.head_dim = 16;
  config.ffn_size = 80;
  config.train_context = 512;
  config.qk_norm = true;
  config.residual = mode;
  const bool per_head = mode == ResidualMode::kFullMh || mode == ResidualMode::kFullHw ||
                        mode == ResidualMode::kBlockMh || mode == ResidualMode::kDeltaMh;
  if (per_head) config.routing_heads = 3;
  if (config.has_blocks()) config.routing_blocks = 2;
  config.null_source = config.is_delta() && mode != ResidualMode::kDelta;
  if (mode == ResidualMode::kHyperConnection) config.hyper_streams = 3;
  config.windows = WindowTable::Full(config.layers, config.heads);
  return config;
}

void WriteRandomModel(const std::string& path, const ModelConfig& config, uint32_t seed,
                      DType matrix_dtype) {
  Must(config.Validate());
  SafetensorsWriter writer(path);
  writer.SetMetadata("format", "lookback");
  writer.SetMetadata("format_version", "1");
  writer.SetMetadata("config", config.ToJson().dump());
  writer.SetMetadata("windows", config.windows.ToJson().dump());
  const std::vector<TensorSpec> tensors = ModelTensors(config);
  const auto dtype_of = [&](const TensorSpec& spec) {
    return spec.role == TensorSpec::kMatrix ? matrix_dtype : DType::kF32;
  };
  for (const TensorSpec& spec : tensors) writer.Declare(spec.name, dtype_of(spec), spec.shape);
  Must(writer.Begin());
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (const TensorSpec& spec : tensors) {
    const auto count = static_cast<size_t>(*CheckedElements(spec.shape));
    // Norms stay near 1 and matrices keep the size of what they read; routing queries are larger.
    const bool norm = spec.name.find("norm") != std::string::npos;
    const bool query = spec.name.find("res_proj") != std::string::npos;
    const bool embedding = spec.name.find("embed") != std::string::npos;
    const float scale = norm        ? 0.1F
                        : query     ? 0.4F
                        : embedding ? 1.0F
                        : spec.role == TensorSpec::kVector
                            ? 0.1F
                            : 1.0F / std::sqrt(static_cast<float>(spec.shape.back()));
    std::vector<float> values(count);
    for (float& value : values) value = normal(random) * scale + (norm ? 1.0F : 0.0F);
    if (dtype_of(spec) == DType::kF32) {
      Must(writer.Append(std::as_bytes(std::span(values))));
    } else {
      std::vector<uint16_t> narrow(count);
      for (size_t i = 0; i < count; ++i) narrow[i] = F32ToBF16(values[i]);
      Must(writer.Append(std::as_bytes(std::span(narrow))));
    }
  }
  Must(writer.Finish());
}

std::shared_ptr<const LoadedModel> RandomModel(const ModelConfig& config, uint32_t seed,
                                               DType matrix_dtype) {
  // The file is mapped: it may go once it is open.
  const TempDir dir;
  const std::string path = dir / "model.safetensors";
  WriteRandomModel(path, config, seed, matrix_dtype);
  auto model = LoadedModel::Open(path);
  Must(model.status());
  return *model;
}

std::vector<int32_t> RandomIds(int64_t count, int64_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
  return ids;
}

}  // namespace lookback::testing
