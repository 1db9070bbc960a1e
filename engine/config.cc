#include "engine/config.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

namespace lookback {

namespace {

/// A whole-number field of the config: its name in the file and its range. The ranges keep every
/// product of two sizes far inside int64.
struct SizeField {
  std::string_view key;
  int64_t ModelConfig::*field;
  int64_t high;
};

constexpr SizeField kSizes[] = {
    {"vocab_size", &ModelConfig::vocab_size, int64_t{1} << 24},
    {"hidden_size", &ModelConfig::hidden_size, int64_t{1} << 20},
    {"layers", &ModelConfig::layers, 4096},
    {"heads", &ModelConfig::heads, 4096},
    {"kv_heads", &ModelConfig::kv_heads, 4096},
    {"head_dim", &ModelConfig::head_dim, 4096},
    {"ffn_size", &ModelConfig::ffn_size, int64_t{1} << 24},
    {"train_context", &ModelConfig::train_context, kMaxInt32},
};

/// The same for fields that only some modes have: 1 where absent.
constexpr SizeField kModeSizes[] = {
    {"routing_heads", &ModelConfig::routing_heads, int64_t{1} << 20},
    {"routing_blocks", &ModelConfig::routing_blocks, kMaxInt32},
    {"hyper_streams", &ModelConfig::hyper_streams, 1024},
};

struct SwitchField {
  std::string_view key;
  bool ModelConfig::*field;
};

constexpr SwitchField kSwitches[] = {
    {"qk_norm", &ModelConfig::qk_norm},
    {"attention_bias", &ModelConfig::attention_bias},
    {"mlp_bias", &ModelConfig::mlp_bias},
    {"tied_embeddings", &ModelConfig::tied_embeddings},
};

template <typename Enum>
struct NamedValue {
  std::string_view name;
  Enum value;
};

constexpr NamedValue<Family> kFamilies[] = {
    {"qwen3", Family::kQwen3},
    {"llama", Family::kLlama},
    {"aah-gpt", Family::kAahGpt},
};
constexpr NamedValue<ResidualMode> kResidualModes[] = {
    {"additive", ResidualMode::kAdditive}, {"full", ResidualMode::kFull},
    {"full_mh", ResidualMode::kFullMh},    {"full_hw", ResidualMode::kFullHw},
    {"block", ResidualMode::kBlock},       {"block_mh", ResidualMode::kBlockMh},
    {"delta", ResidualMode::kDelta},       {"delta_block", ResidualMode::kDeltaBlock},
    {"delta_mh", ResidualMode::kDeltaMh},  {"hyper_connection", ResidualMode::kHyperConnection},
};
constexpr NamedValue<Gate> kGates[] = {
    {"bias", Gate::kNone},
    {"learnable_alpha", Gate::kAlpha},
    {"sigmoid_scalar", Gate::kSigmoidScalar},
    {"sigmoid_vector", Gate::kSigmoidVector},
};
constexpr NamedValue<RopeConfig::Scaling> kScalings[] = {
    {"default", RopeConfig::Scaling::kDefault},
    {"linear", RopeConfig::Scaling::kLinear},
    {"llama3", RopeConfig::Scaling::kLlama3},
};

template <typename Enum, size_t kCount>
std::string_view NameOf(const NamedValue<Enum> (&table)[kCount], Enum value) {
  for (const auto& row : table) {
    if (row.value == value) return row.name;
  }
  return "?";
}

template <typename Enum, size_t kCount>
Result<Enum> ReadEnum(const NamedValue<Enum> (&table)[kCount], const JsonObject& object,
                      std::string_view key) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string name, object.String(key));
  std::string expected;
  for (const auto& row : table) {
    if (row.name == name) return row.value;
    expected += StrCat(expected.empty() ? "" : " or ", row.name);
  }
  return Mismatch(StrCat(key, " in ", object.where()), Quoted(name), expected);
}

/// The double that prints as the float does: 1e-06 and not 9.999999974752427e-07. Converting it
/// back gives the same float.
double ShortDouble(float value) {
  const std::string text = StrCat(value);
  double out = 0.0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

Status Positive(std::string_view what, double value) {
  if (std::isfinite(value) && value > 0.0) return {};
  return Mismatch(what, value, "a finite number > 0");
}

Status ValidateRope(const RopeConfig& rope) {
  LOOKBACK_RETURN_IF_ERROR(Positive("rope theta", rope.theta));
  if (rope.scaling == RopeConfig::Scaling::kDefault) return {};
  LOOKBACK_RETURN_IF_ERROR(Positive("rope factor", rope.factor));
  if (rope.scaling == RopeConfig::Scaling::kLinear) return {};
  LOOKBACK_RETURN_IF_ERROR(Positive("rope low_freq_factor", rope.low_freq_factor));
  LOOKBACK_RETURN_IF_ERROR(Positive("rope high_freq_factor", rope.high_freq_factor));
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    return Mismatch("rope high_freq_factor", rope.high_freq_factor,
                    StrCat("more than low_freq_factor ", rope.low_freq_factor));
  }
  if (rope.original_max_position < 1 || rope.original_max_position > kMaxInt32) {
    return Mismatch("rope original_max_position", rope.original_max_position,
                    StrCat("an integer from 1 to ", kMaxInt32));
  }
  return {};
}

Json RopeToJson(const RopeConfig& rope) {
  Json out = {{"theta", rope.theta}, {"scaling", std::string(NameOf(kScalings, rope.scaling))}};
  if (rope.scaling != RopeConfig::Scaling::kDefault) out["factor"] = rope.factor;
  if (rope.scaling == RopeConfig::Scaling::kLlama3) {
    out["low_freq_factor"] = rope.low_freq_factor;
    out["high_freq_factor"] = rope.high_freq_factor;
    out["original_max_position"] = rope.original_max_position;
  }
  return out;
}

Result<RopeConfig> RopeFromJson(const Json* json, const std::string& where) {
  constexpr double kHuge = std::numeric_limits<double>::max();
  if (json == nullptr) return Mismatch(where, "nothing", "a JSON object");
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(*json, where));
  RopeConfig rope;
  LOOKBACK_ASSIGN_OR_RETURN(rope.theta, object.Number("theta", 0.0, kHuge));
  LOOKBACK_ASSIGN_OR_RETURN(rope.scaling, ReadEnum(kScalings, object, "scaling"));
  if (rope.scaling == RopeConfig::Scaling::kDefault) return rope;
  LOOKBACK_ASSIGN_OR_RETURN(rope.factor, object.Number("factor", 0.0, kHuge));
  if (rope.scaling == RopeConfig::Scaling::kLinear) return rope;
  LOOKBACK_ASSIGN_OR_RETURN(rope.low_freq_factor, object.Number("low_freq_factor", 0.0, kHuge));
  LOOKBACK_ASSIGN_OR_RETURN(rope.high_freq_factor, object.Number("high_freq_factor", 0.0, kHuge));
  LOOKBACK_ASSIGN_OR_RETURN(rope.original_max_position,
                            object.Int("original_max_position", 1, kMaxInt32));
  return rope;
}

/// Transformers' llama3 scaling of one frequency, every step in f32 as torch takes it.
float Llama3Frequency(const RopeConfig& rope, float frequency) {
  const auto context = static_cast<float>(rope.original_max_position);
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto low_wavelength =
      static_cast<float>(static_cast<double>(rope.original_max_position) / rope.low_freq_factor);
  const auto high_wavelength =
      static_cast<float>(static_cast<double>(rope.original_max_position) / rope.high_freq_factor);
  const float wavelength = (1.0F / frequency) * static_cast<float>(2.0 * std::numbers::pi);
  if (wavelength > low_wavelength) return frequency / factor;
  if (wavelength < high_wavelength) return frequency;
  const float smooth = ((1.0F / wavelength) * context - low) /
                       static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1.0F - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::string_view FamilyName(Family family) { return NameOf(kFamilies, family); }

std::string_view ResidualModeName(ResidualMode mode) { return NameOf(kResidualModes, mode); }

std::vector<float> RopeConfig::InverseFrequencies(int64_t head_dim) const {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(head_dim / 2));
  for (int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    const float frequency = 1.0F / std::pow(static_cast<float>(theta), exponent);
    switch (scaling) {
      case Scaling::kDefault:
        out.push_back(frequency);
        break;
      case Scaling::kLinear:
        out.push_back(frequency / static_cast<float>(factor));
        break;
      case Scaling::kLlama3:
        out.push_back(Llama3Frequency(*this, frequency));
        break;
    }
  }
  return out;
}

std::string_view GateName(Gate gate) { return NameOf(kGates, gate); }

bool ModelConfig::routes() const {
  return residual != ResidualMode::kAdditive && residual != ResidualMode::kHyperConnection;
}

bool ModelConfig::has_blocks() const {
  return residual == ResidualMode::kBlock || residual == ResidualMode::kBlockMh ||
         residual == ResidualMode::kDeltaBlock || residual == ResidualMode::kDeltaMh;
}

bool ModelConfig::is_delta() const {
  return residual == ResidualMode::kDelta || residual == ResidualMode::kDeltaBlock ||
         residual == ResidualMode::kDeltaMh;
}

bool ModelConfig::has_final_site() const {
  // The release's Qwen3 class has no final site in block_mh, its Llama class has.
  return routes() && !is_delta() &&
         !(residual == ResidualMode::kBlockMh && family == Family::kQwen3);
}

bool ModelConfig::block_starts(int64_t layer) const {
  return layer % ((layers + routing_blocks - 1) / routing_blocks) == 0;
}

int64_t ModelConfig::routing_sites() const {
  if (!routes()) return 0;
  // A delta read without any source is none.
  const int64_t empty = is_delta() && !null_source ? 1 : 0;
  return 2 * layers - empty + (has_final_site() ? 1 : 0);
}

void ModelConfig::MakeAdditive() {
  residual = ResidualMode::kAdditive;
  routing_heads = routing_blocks = hyper_streams = 1;
  null_source = false;
  gate = Gate::kNone;
}

Json ModelConfig::ToJson() const {
  Json out = Json::object();
  out["family"] = std::string(FamilyName(family));
  out["residual"] = std::string(ResidualModeName(residual));
  for (const SizeField& size : kSizes) out[std::string(size.key)] = this->*size.field;
  for (const SizeField& size : kModeSizes) {
    if (this->*size.field != 1) out[std::string(size.key)] = this->*size.field;
  }
  for (const SwitchField& flag : kSwitches) out[std::string(flag.key)] = this->*flag.field;
  if (null_source) out["null_source"] = true;
  if (gate != Gate::kNone) out["gate"] = std::string(GateName(gate));
  out["norm_eps"] = ShortDouble(norm_eps);
  out["rope"] = RopeToJson(rope);
  return out;
}

Result<ModelConfig> ModelConfig::FromJson(const Json& json) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(json, "config"));
  ModelConfig config;
  LOOKBACK_ASSIGN_OR_RETURN(config.family, ReadEnum(kFamilies, object, "family"));
  LOOKBACK_ASSIGN_OR_RETURN(config.residual, ReadEnum(kResidualModes, object, "residual"));
  for (const SizeField& size : kSizes) {
    LOOKBACK_ASSIGN_OR_RETURN(config.*size.field, object.Int(size.key, 1, size.high));
  }
  for (const SizeField& size : kModeSizes) {
    LOOKBACK_ASSIGN_OR_RETURN(config.*size.field, object.Int(size.key, 1, size.high, 1));
  }
  for (const SwitchField& flag : kSwitches) {
    LOOKBACK_ASSIGN_OR_RETURN(config.*flag.field, object.Bool(flag.key));
  }
  LOOKBACK_ASSIGN_OR_RETURN(config.null_source, object.Bool("null_source", false));
  if (object.Find("gate") != nullptr) {
    LOOKBACK_ASSIGN_OR_RETURN(config.gate, ReadEnum(kGates, object, "gate"));
  }
  LOOKBACK_ASSIGN_OR_RETURN(const double eps, object.Number("norm_eps", 0.0, 1.0));
  config.norm_eps = static_cast<float>(eps);
  LOOKBACK_ASSIGN_OR_RETURN(config.rope, RopeFromJson(object.Find("rope"), "rope in config"));
  LOOKBACK_RETURN_IF_ERROR(config.Validate());
  return config;
}

Status ModelConfig::ValidateMode() const {
  const auto only = [this](std::string_view what, auto value, auto otherwise, bool allowed) {
    if (allowed || value == otherwise) return Status();
    return Mismatch(StrCat(what, " in config"), value,
                    StrCat(otherwise, " in mode ", ResidualModeName(residual)));
  };
  const bool per_head = residual == ResidualMode::kFullMh || residual == ResidualMode::kFullHw ||
                        residual == ResidualMode::kBlockMh || residual == ResidualMode::kDeltaMh;
  LOOKBACK_RETURN_IF_ERROR(only("routing_heads", routing_heads, int64_t{1}, per_head));
  LOOKBACK_RETURN_IF_ERROR(only("routing_blocks", routing_blocks, int64_t{1}, has_blocks()));
  LOOKBACK_RETURN_IF_ERROR(
      only("hyper_streams", hyper_streams, int64_t{1}, residual == ResidualMode::kHyperConnection));
  LOOKBACK_RETURN_IF_ERROR(only("null_source", null_source, false, is_delta()));
  LOOKBACK_RETURN_IF_ERROR(only("gate", GateName(gate), GateName(Gate::kNone),
                                routes() && residual != ResidualMode::kFullHw));
  if (gpt_style() && (residual != ResidualMode::kAdditive || heads != kv_heads ||
                      heads * head_dim != hidden_size || qk_norm || attention_bias || !mlp_bias ||
                      !tied_embeddings)) {
    return Mismatch("family in config", "\"aah-gpt\" with switches of another family",
                    "residual additive, as many KV heads as heads, heads · head_dim = "
                    "hidden_size, mlp_bias and tied_embeddings alone");
  }
  return {};
}

Status ModelConfig::Validate() const {
  const auto check = [this](const SizeField& size) -> Status {
    const int64_t value = this->*size.field;
    if (value >= 1 && value <= size.high) return {};
    return Mismatch(StrCat(size.key, " in config"), value,
                    StrCat("an integer from 1 to ", size.high));
  };
  for (const SizeField& size : kSizes) LOOKBACK_RETURN_IF_ERROR(check(size));
  for (const SizeField& size : kModeSizes) LOOKBACK_RETURN_IF_ERROR(check(size));
  if (heads % kv_heads != 0) {
    return Mismatch("kv_heads in config", kv_heads, StrCat("a divisor of heads ", heads));
  }
  if (head_dim % 2 != 0) return Mismatch("head_dim in config", head_dim, "an even number");
  if (hidden_size % routing_heads != 0) {
    return Mismatch("routing_heads in config", routing_heads,
                    StrCat("a divisor of hidden_size ", hidden_size));
  }
  LOOKBACK_RETURN_IF_ERROR(ValidateMode());
  LOOKBACK_RETURN_IF_ERROR(Positive("norm_eps in config", static_cast<double>(norm_eps)));
  LOOKBACK_RETURN_IF_ERROR(ValidateRope(rope));
  if (windows.layers() != 0 && (windows.layers() != layers || windows.heads() != heads)) {
    return Mismatch("shape of the window table",
                    StrCat(windows.layers(), " layers of ", windows.heads(), " heads"),
                    StrCat(layers, " of ", heads));
  }
  return {};
}

}  // namespace lookback
