#include "tools/bench_shapes.h"

#include <array>
#include <filesystem>

#include "engine/random_model.h"

namespace lookback::tools {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kWindows[] = {512, 1024, 2048, 4096};

/// The table that the authors of AAH published for Qwen3-4B, regime `full_adaptive`: a row a layer,
/// a digit a head, each an index into kWindows.
constexpr std::string_view kQwen3Windows[] = {
    "00000000000000000000000000000000", "00000000000000000000000000000000",
    "22222222222222222222222222222222", "00000000000000000000000000000000",
    "33333333333333333333333333333333", "00000000000000000000000000000000",
    "22222222222222222222222222222222", "00000000000000000000000000000000",
    "00000000000000000000000000000000", "00000000000000000000000000000000",
    "33333333333333333333333333333333", "00000000000000000000000000000000",
    "11111111111111111111111111111111", "00000000000000000000000000000000",
    "00000000000000000000000000000000", "00000000000000000000000000000000",
    "00000000000000000000000000000000", "11111111111111111111111111111111",
    "00000000000000000000000000000000", "33333333333333333333333333333333",
    "00000000000000000000000000000000", "33333333333333333333333333333333",
    "00000000000000000000000000000000", "00000000000000000000000000000000",
    "00000000000000000000000000000000", "00000000000000000000000000000000",
    "22222222111122222222221122222222", "33333333333333333333333333333333",
    "00000000000000000000000000000000", "11111111111111111111111111111111",
    "00000000000000000000000000000000", "00000000000000000000000000000000",
    "00000000000000000000000000000000", "33333333333333333333333333333333",
    "00000000000000000000000000000000", "00000000000000000000000000000000",
};

/// A dozen heads whose mean window is a third of 4,096 tokens (the paper's regimes keep 0.26 to
/// 0.34).
constexpr std::string_view kNativeWindows[] = {"000000111233"};

/// Layers beyond the rows begin again.
WindowTable Table(const ModelConfig& config, std::span<const std::string_view> rows,
                  std::string source) {
  Json windows = Json::array();
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    Json row = Json::array();
    for (const char digit : rows[static_cast<size_t>(layer) % rows.size()]) {
      row.push_back(kWindows[digit - '0']);
    }
    windows.push_back(std::move(row));
  }
  const Json json = {{"windows", std::move(windows)}, {"source", std::move(source)}};
  return WindowTable::FromJson(json, config.layers, config.heads, "bench").value();
}

struct Sizes {
  int64_t vocab, hidden, layers, heads, kv_heads, head_dim, ffn, context;
};

ModelConfig Config(Family family, const Sizes& sizes) {
  ModelConfig config;
  config.family = family;
  config.vocab_size = sizes.vocab;
  config.hidden_size = sizes.hidden;
  config.layers = sizes.layers;
  config.heads = sizes.heads;
  config.kv_heads = sizes.kv_heads;
  config.head_dim = sizes.head_dim;
  config.ffn_size = sizes.ffn;
  config.train_context = sizes.context;
  config.windows = WindowTable::Full(sizes.layers, sizes.heads);
  return config;
}

/// The models of the paper of MHAR (mhar.md section 4): tied, a routing head a KV head.
ModelConfig Mhar(const Sizes& sizes) {
  ModelConfig config = Config(Family::kQwen3, sizes);
  config.qk_norm = config.tied_embeddings = true;
  config.residual = ResidualMode::kFullMh;
  config.routing_heads = sizes.kv_heads;
  return config;
}

struct Shape {
  std::string_view name;
  ModelConfig (*config)();
};

constexpr int64_t kQwenVocab = 151936;
constexpr Shape kShapes[] = {
    {"mhar-100m",
     [] {
       return Mhar({kQwenVocab, 512, 12, 8, 4, 64, 1536, 32768});
     }},
    {"mhar-350m",
     [] {
       return Mhar({kQwenVocab, 1024, 24, 16, 8, 64, 4096, 32768});
     }},
    {"mhar-1b",
     [] {
       return Mhar({kQwenVocab, 1280, 36, 16, 8, 80, 5120, 32768});
     }},
    {"llama-8b-delta",
     [] {
       ModelConfig config = Config(Family::kLlama, {128256, 4096, 32, 32, 8, 128, 14336, 131072});
       config.rope.theta = 500000.0;
       config.residual = ResidualMode::kDeltaMh;
       config.routing_heads = config.routing_blocks = 8;
       config.null_source = true;
       return config;
     }},
    {"aah-1b",
     [] {
       ModelConfig config = Config(Family::kAahGpt, {50257, 1536, 16, 12, 12, 128, 6144, 4096});
       config.tied_embeddings = config.mlp_bias = true;
       config.windows = Table(config, kNativeWindows, "a third of 4,096 tokens on average");
       return config;
     }},
    {"qwen3-4b-aah",
     [] {
       ModelConfig config = Config(Family::kQwen3, {kQwenVocab, 2560, 36, 32, 8, 128, 9728, 40960});
       config.qk_norm = config.tied_embeddings = true;
       config.rope.theta = 1000000.0;
       config.windows = Table(config, kQwen3Windows, "published, full_adaptive");
       return config;
     }},
};

Result<kernels::Element> TypeOf(std::string_view weights) {
  using kernels::Element;
  if (weights == "f32") return Element::kF32;
  if (weights == "bf16") return Element::kBF16;
  if (weights == "q8") return Element::kQ8;
  if (weights == "q4") return Element::kQ4;
  return Mismatch("--weights", Quoted(weights), "f32, bf16, q8 or q4");
}

/// Unlinks a file when it goes.
struct Removal {
  fs::path path;
  ~Removal() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

}  // namespace

std::vector<std::string> ShapeNames() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

Result<ModelConfig> ShapeConfig(std::string_view name) {
  for (const Shape& shape : kShapes) {
    if (shape.name == name) return shape.config();
  }
  std::string known;
  for (const Shape& shape : kShapes) known += StrCat(known.empty() ? "" : ", ", shape.name);
  return Mismatch("--shape", Quoted(name), StrCat("one of ", known));
}

Result<std::shared_ptr<const LoadedModel>> OpenRandomModel(const ModelConfig& config,
                                                           std::string_view weights) {
  LOOKBACK_ASSIGN_OR_RETURN(const kernels::Element type, TypeOf(weights));
  std::error_code error;
  std::string folder = (fs::temp_directory_path(error) / "lookback-bench-XXXXXX").string();
  if (error || mkdtemp(folder.data()) == nullptr) return IoError("cannot create", folder, errno);
  // Mapped once it is open: the name may go, and must not stay when the bench is interrupted.
  const Removal remove_folder{folder}, remove_file{fs::path(folder) / "model.safetensors"};
  LOOKBACK_RETURN_IF_ERROR(WriteRandomModel(remove_file.path.string(), config, type, 1));
  return LoadedModel::Open(remove_file.path.string());
}

}  // namespace lookback::tools
