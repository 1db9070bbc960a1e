#include "tools/convert/hf_config.h"

#include <algorithm>
#include <limits>

#include "tools/convert/hf_rope.h"

namespace lookback::tools {

namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxIds = 1024;

struct ModelType {
  std::string_view name;
  Family family;
  bool routed;  ///< has attnres_* keys
};

constexpr ModelType kModelTypes[] = {
    {"qwen3", Family::kQwen3, false},
    {"qwen3_attnres", Family::kQwen3, true},
    {"llama", Family::kLlama, false},
    {"llama_attnres", Family::kLlama, true},
};

/// What Transformers assumes where a key is absent.
struct FamilyDefaults {
  int64_t train_context;
  int64_t kv_heads;  ///< 0: as many as query heads
  int64_t head_dim;  ///< 0: hidden / heads
  bool qk_norm;
  bool mlp_bias_key;  ///< the class reads `mlp_bias`
};

FamilyDefaults DefaultsOf(Family family) {
  if (family == Family::kQwen3) return {32768, 32, 128, true, false};
  return {2048, 0, 0, false, true};
}

/// A mode of the release. What it makes of the keys that only some modes read.
struct ModeRow {
  std::string_view name;
  std::string_view only_model_type;  ///< "" = both families
  ResidualMode mode;
  bool heads;   ///< attnres_num_heads
  bool blocks;  ///< attnres_num_blocks
};

constexpr ModeRow kModes[] = {
    {"full", "", ResidualMode::kFull, false, false},
    {"full_mh", "", ResidualMode::kFullMh, true, false},
    {"full_hw", "qwen3_attnres", ResidualMode::kFullHw, true, false},
    {"block", "", ResidualMode::kBlock, false, true},
    {"block_mh", "", ResidualMode::kBlockMh, true, true},
    {"delta", "", ResidualMode::kDelta, false, false},
    {"delta_block", "", ResidualMode::kDeltaBlock, false, true},
    {"delta_mh", "llama_attnres", ResidualMode::kDeltaMh, true, true},
    {"hyper_connection", "", ResidualMode::kHyperConnection, false, false},
};

constexpr Gate kGates[] = {Gate::kNone, Gate::kAlpha, Gate::kSigmoidScalar, Gate::kSigmoidVector};

/// Keys that change the network in a way that nothing else in the config tells.
constexpr std::string_view kRefusedKeys[] = {"experiment6_qkv_groups", "experiment7_local_q_groups",
                                             "quantization_config"};

Status RefuseFeatures(const JsonObject& config) {
  for (const std::string_view key : kRefusedKeys) {
    const Json* value = config.Find(key);
    if (value == nullptr) continue;
    return Mismatch(StrCat(key, " in ", config.where()), DescribeJson(*value),
                    "no such key (this version cannot convert it)");
  }
  LOOKBACK_ASSIGN_OR_RETURN(const std::string activation, config.String("hidden_act", "silu"));
  if (activation != "silu") {
    return Mismatch(StrCat("hidden_act in ", config.where()), Quoted(activation), "\"silu\"");
  }
  return {};
}

Result<ModelType> ReadModelType(const JsonObject& config) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string name, config.String("model_type"));
  std::string known;
  for (const ModelType& row : kModelTypes) {
    if (row.name == name) return row;
    known += StrCat(known.empty() ? "" : ", ", row.name);
  }
  return Mismatch(StrCat("model_type in ", config.where()), Quoted(name), StrCat("one of ", known));
}

Result<const ModeRow*> FindMode(const JsonObject& config, const ModelType& type) {
  const std::string what = StrCat("attnres_mode in ", config.where());
  LOOKBACK_ASSIGN_OR_RETURN(const std::string name, config.String("attnres_mode"));
  std::string known;
  for (const ModeRow& row : kModes) {
    known += StrCat(known.empty() ? "" : ", ", row.name);
    if (row.name != name) continue;
    if (row.only_model_type.empty() || row.only_model_type == type.name) return &row;
    return Mismatch(what, StrCat(Quoted(name), " with model_type ", Quoted(type.name)),
                    StrCat("model_type ", Quoted(row.only_model_type), " for this mode"));
  }
  return Mismatch(what, Quoted(name), StrCat("one of ", known));
}

Result<Gate> ReadGate(const JsonObject& config) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string name, config.String("attnres_gate_type", "bias"));
  std::string known;
  for (const Gate gate : kGates) {
    if (GateName(gate) == name) return gate;
    known += StrCat(known.empty() ? "" : ", ", GateName(gate));
  }
  return Mismatch(StrCat("attnres_gate_type in ", config.where()), Quoted(name),
                  StrCat("one of ", known));
}

/// The attnres_* keys. Every one is checked for its type, also where the mode does not read it.
Status ReadRouting(const JsonObject& config, const ModelType& type, ModelConfig& model) {
  LOOKBACK_ASSIGN_OR_RETURN(const ModeRow* row, FindMode(config, type));
  model.residual = row->mode;
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t heads, config.Int("attnres_num_heads", 1, kMaxInt32, 8));
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t blocks,
                            config.Int("attnres_num_blocks", 1, kMaxInt32, 8));
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t streams, config.Int("attnres_hyper_n", 1, 1024, 4));
  LOOKBACK_ASSIGN_OR_RETURN(const bool null, config.Bool("attnres_use_null_source", false));
  LOOKBACK_ASSIGN_OR_RETURN(const Gate gate, ReadGate(config));
  if (row->heads) model.routing_heads = heads;
  if (row->blocks) model.routing_blocks = blocks;
  if (row->mode == ResidualMode::kHyperConnection) model.hyper_streams = streams;
  if (model.is_delta()) model.null_source = null || row->mode == ResidualMode::kDeltaMh;
  if (model.routes() && row->mode != ResidualMode::kFullHw) model.gate = gate;
  if (model.hidden_size % model.routing_heads != 0) {
    return Mismatch(StrCat("attnres_num_heads in ", config.where()), model.routing_heads,
                    StrCat("a divisor of hidden_size ", model.hidden_size));
  }
  return {};
}

Status RefuseRouting(const JsonObject& config, const ModelType& type) {
  const Json* mode = config.Find("attnres_mode");
  if (mode == nullptr) return {};
  return Mismatch(StrCat("attnres_mode in ", config.where()),
                  StrCat(DescribeJson(*mode), " with model_type ", Quoted(type.name)),
                  StrCat("model_type ", Quoted(StrCat(type.name, "_attnres"))));
}

Status ReadSizes(const JsonObject& config, const FamilyDefaults& defaults, ModelConfig& model) {
  LOOKBACK_ASSIGN_OR_RETURN(model.vocab_size, config.Int("vocab_size", 1, kMaxInt32));
  LOOKBACK_ASSIGN_OR_RETURN(model.hidden_size, config.Int("hidden_size", 1, kMaxInt32));
  LOOKBACK_ASSIGN_OR_RETURN(model.ffn_size, config.Int("intermediate_size", 1, kMaxInt32));
  LOOKBACK_ASSIGN_OR_RETURN(model.layers, config.Int("num_hidden_layers", 1, kMaxInt32));
  LOOKBACK_ASSIGN_OR_RETURN(model.heads, config.Int("num_attention_heads", 1, kMaxInt32));
  const int64_t kv_default = defaults.kv_heads == 0 ? model.heads : defaults.kv_heads;
  LOOKBACK_ASSIGN_OR_RETURN(model.kv_heads,
                            config.Int("num_key_value_heads", 1, kMaxInt32, kv_default));
  if (model.heads % model.kv_heads != 0) {
    return Mismatch(StrCat("num_key_value_heads in ", config.where()), model.kv_heads,
                    StrCat("a divisor of num_attention_heads ", model.heads));
  }
  std::optional<int64_t> head_dim = defaults.head_dim;
  if (defaults.head_dim == 0) {
    head_dim = model.hidden_size / model.heads;
    if (config.Find("head_dim") == nullptr && model.hidden_size % model.heads != 0) {
      return Mismatch(
          StrCat("num_attention_heads in ", config.where()), model.heads,
          StrCat("a divisor of hidden_size ", model.hidden_size, ", as there is no head_dim"));
    }
  }
  LOOKBACK_ASSIGN_OR_RETURN(model.head_dim, config.Int("head_dim", 1, kMaxInt32, head_dim));
  LOOKBACK_ASSIGN_OR_RETURN(model.train_context, config.Int("max_position_embeddings", 1, kMaxInt32,
                                                            defaults.train_context));
  return {};
}

/// Which layers slide, by Transformers' rule for Qwen3: `layer_types` where there is one, else the
/// layers from max_window_layers on. Llama's class has no sliding window.
Result<std::vector<bool>> ReadSlidingLayers(const JsonObject& config, const ModelConfig& model) {
  std::vector<bool> slides(static_cast<size_t>(model.layers), false);
  const Json* types = config.Find("layer_types");
  if (types == nullptr) {
    LOOKBACK_ASSIGN_OR_RETURN(const int64_t first,
                              config.Int("max_window_layers", 0, kMaxInt32, 28));
    for (int64_t layer = first; layer < model.layers && model.family == Family::kQwen3; ++layer) {
      slides[static_cast<size_t>(layer)] = true;
    }
    return slides;
  }
  if (!types->is_array() || types->size() != slides.size()) {
    return Mismatch(StrCat("layer_types in ", config.where()), DescribeJson(*types),
                    StrCat("an array of ", model.layers, " names"));
  }
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    const auto* name = (*types)[layer].get_ptr<const std::string*>();
    const bool sliding = name != nullptr && *name == "sliding_attention";
    if (!(name != nullptr && *name == "full_attention") &&
        !(sliding && model.family == Family::kQwen3)) {
      return Mismatch(StrCat("layer_types[", layer, "] in ", config.where()),
                      DescribeJson((*types)[layer]),
                      model.family == Family::kQwen3 ? "full_attention or sliding_attention"
                                                     : "full_attention");
    }
    slides[layer] = sliding;
  }
  return slides;
}

Status ReadSlidingWindow(const JsonObject& config, HfModel& out) {
  ModelConfig& model = out.config;
  model.windows = WindowTable::Full(model.layers, model.heads);
  LOOKBACK_ASSIGN_OR_RETURN(const std::vector<bool> slides, ReadSlidingLayers(config, model));
  LOOKBACK_ASSIGN_OR_RETURN(const bool used, config.Bool("use_sliding_window", false));
  if (!used || config.Find("sliding_window") == nullptr || model.family != Family::kQwen3)
    return {};
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t window, config.Int("sliding_window", 1, kMaxInt32));
  out.sliding = std::find(slides.begin(), slides.end(), true) != slides.end();
  if (!out.sliding) return {};
  Json rows = Json::array();
  for (const bool sliding : slides) {
    Json row = Json::array();
    for (int64_t head = 0; head < model.heads; ++head)
      row.push_back(sliding ? Json(window) : Json());
    rows.push_back(std::move(row));
  }
  const Json table = {{"windows", std::move(rows)},
                      {"source", StrCat("sliding_window ", window, " of config.json")}};
  LOOKBACK_ASSIGN_OR_RETURN(
      model.windows, WindowTable::FromJson(table, model.layers, model.heads, config.where()));
  return {};
}

}  // namespace

Result<std::vector<int32_t>> ReadIds(const JsonObject& object, std::string_view key,
                                     int64_t vocab_size, bool many) {
  std::vector<int32_t> ids;
  const Json* value = object.Find(key);
  if (value == nullptr) return ids;
  const auto refuse = [&](const Json& got) {
    return Mismatch(StrCat(key, " in ", object.where()), DescribeJson(got),
                    StrCat("an id from 0 to ", vocab_size - 1,
                           many ? StrCat(", or a list of at most ", kMaxIds) : ""));
  };
  const auto add = [&](const Json& element) -> Status {
    const std::optional<int64_t> id = JsonInt(element);
    if (!id || *id < 0 || *id >= vocab_size) return refuse(element);
    ids.push_back(static_cast<int32_t>(*id));
    return {};
  };
  if (!value->is_array()) {
    LOOKBACK_RETURN_IF_ERROR(add(*value));
    return ids;
  }
  if (!many || value->size() > kMaxIds) return refuse(*value);
  for (const Json& element : *value) LOOKBACK_RETURN_IF_ERROR(add(element));
  return ids;
}

Result<HfModel> ReadHfConfig(const Json& json, const std::string& where) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject config, JsonObject::From(json, where));
  HfModel out;
  ModelConfig& model = out.config;
  LOOKBACK_ASSIGN_OR_RETURN(const ModelType type, ReadModelType(config));
  LOOKBACK_RETURN_IF_ERROR(RefuseFeatures(config));
  out.model_type = std::string(type.name);
  model.family = type.family;
  const FamilyDefaults defaults = DefaultsOf(type.family);
  model.qk_norm = defaults.qk_norm;
  LOOKBACK_RETURN_IF_ERROR(ReadSizes(config, defaults, model));
  LOOKBACK_RETURN_IF_ERROR(type.routed ? ReadRouting(config, type, model)
                                       : RefuseRouting(config, type));
  LOOKBACK_ASSIGN_OR_RETURN(const double eps, config.Number("rms_norm_eps", 0.0, 1.0, 1e-6));
  model.norm_eps = static_cast<float>(eps);
  LOOKBACK_ASSIGN_OR_RETURN(model.rope, ReadHfRope(config));
  LOOKBACK_ASSIGN_OR_RETURN(model.attention_bias, config.Bool("attention_bias", false));
  if (defaults.mlp_bias_key) {
    LOOKBACK_ASSIGN_OR_RETURN(model.mlp_bias, config.Bool("mlp_bias", false));
  }
  LOOKBACK_ASSIGN_OR_RETURN(model.tied_embeddings, config.Bool("tie_word_embeddings", false));
  Status valid = model.Validate();
  if (!valid.ok()) return std::move(valid).WithPrefix(where);
  LOOKBACK_RETURN_IF_ERROR(ReadSlidingWindow(config, out));
  LOOKBACK_ASSIGN_OR_RETURN(const std::vector<int32_t> bos,
                            ReadIds(config, "bos_token_id", model.vocab_size, false));
  if (!bos.empty()) out.bos_id = bos.front();
  LOOKBACK_ASSIGN_OR_RETURN(out.eos_ids, ReadIds(config, "eos_token_id", model.vocab_size, true));
  return out;
}

}  // namespace lookback::tools
