#include "tests/support/random_model.h"

#include <random>
#include <stdexcept>

#include "engine/random_model.h"
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

ModelConfig QuantizableConfig(ResidualMode mode) {
  ModelConfig config = TinyConfig(mode);
  config.hidden_size = 64;
  config.ffn_size = 96;
  if (config.routing_heads == 3) config.routing_heads = 4;
  return config;
}

std::shared_ptr<const LoadedModel> RandomModel(const ModelConfig& config, uint32_t seed,
                                               kernels::Element matrices) {
  // The file is mapped: it may go once it is open.
  const TempDir dir;
  const std::string path = dir / "model.safetensors";
  Must(WriteRandomModel(path, config, matrices, seed));
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
