#include "tools/convert/hf_rope.h"

#include <limits>
#include <optional>
#include <string>

namespace lookback::tools {

namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr double kLargest = 1e30;
constexpr double kDefaultTheta = 10000.0;

/// The type under `rope_type` or, as old files have it, `type`.
Result<std::string> ReadType(const JsonObject& scaling) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string old_type, scaling.String("type", ""));
  LOOKBACK_ASSIGN_OR_RETURN(const std::string type, scaling.String("rope_type", old_type));
  if (!old_type.empty() && old_type != type) {
    return Mismatch(StrCat("rope_type in ", scaling.where()),
                    StrCat(Quoted(type), " and type ", Quoted(old_type)), "the same in both");
  }
  return type.empty() ? "default" : type;
}

Status RefusePartialRotation(const JsonObject& object) {
  LOOKBACK_ASSIGN_OR_RETURN(const double rotated,
                            object.Number("partial_rotary_factor", 0.0, kLargest, 1.0));
  if (rotated == 1.0) return {};
  return Mismatch(StrCat("partial_rotary_factor in ", object.where()), rotated,
                  "1 (whole heads are rotated)");
}

/// Everything but theta, from the object that carries it.
Result<RopeConfig> ReadScaling(const JsonObject& scaling) {
  RopeConfig rope;
  LOOKBACK_ASSIGN_OR_RETURN(const std::string type, ReadType(scaling));
  LOOKBACK_RETURN_IF_ERROR(RefusePartialRotation(scaling));
  if (type == "default") return rope;
  if (type != "linear" && type != "llama3") {
    return Mismatch(StrCat("rope_type in ", scaling.where()), Quoted(type),
                    "default, linear or llama3");
  }
  LOOKBACK_ASSIGN_OR_RETURN(rope.factor, scaling.Number("factor", 1.0, kLargest));
  rope.scaling = RopeConfig::Scaling::kLinear;
  if (type == "linear") return rope;
  rope.scaling = RopeConfig::Scaling::kLlama3;
  LOOKBACK_ASSIGN_OR_RETURN(rope.low_freq_factor,
                            scaling.Number("low_freq_factor", 1e-6, kLargest));
  LOOKBACK_ASSIGN_OR_RETURN(rope.high_freq_factor,
                            scaling.Number("high_freq_factor", 1e-6, kLargest));
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    return Mismatch(StrCat("high_freq_factor in ", scaling.where()), rope.high_freq_factor,
                    StrCat("more than low_freq_factor ", rope.low_freq_factor));
  }
  LOOKBACK_ASSIGN_OR_RETURN(rope.original_max_position,
                            scaling.Int("original_max_position_embeddings", 1, kMaxInt32));
  return rope;
}

Result<std::optional<double>> ReadTheta(const JsonObject& object) {
  if (object.Find("rope_theta") == nullptr) return std::optional<double>();
  LOOKBACK_ASSIGN_OR_RETURN(const double theta, object.Number("rope_theta", 1e-6, kLargest));
  return std::optional<double>(theta);
}

/// One of the two forms: what it says of the scaling and of theta, where it does.
struct Form {
  std::optional<RopeConfig> scaling;
  std::optional<double> theta;
};

Result<Form> ReadForm(const JsonObject& config, std::string_view key) {
  Form form;
  const Json* json = config.Find(key);
  if (json == nullptr) return form;
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object,
                            JsonObject::From(*json, StrCat(key, " in ", config.where())));
  for (const auto& [name, value] : json->items()) {
    if (!value.is_object()) continue;
    return Mismatch(StrCat(name, " in ", object.where()), DescribeJson(value),
                    "one RoPE for all layers");
  }
  LOOKBACK_ASSIGN_OR_RETURN(form.scaling, ReadScaling(object));
  LOOKBACK_ASSIGN_OR_RETURN(form.theta, ReadTheta(object));
  return form;
}

bool SameScaling(const RopeConfig& a, const RopeConfig& b) {
  return a.scaling == b.scaling && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor &&
         a.original_max_position == b.original_max_position;
}

}  // namespace

Result<RopeConfig> ReadHfRope(const JsonObject& config) {
  LOOKBACK_RETURN_IF_ERROR(RefusePartialRotation(config));
  LOOKBACK_ASSIGN_OR_RETURN(const Form now, ReadForm(config, "rope_parameters"));
  LOOKBACK_ASSIGN_OR_RETURN(const Form before, ReadForm(config, "rope_scaling"));
  LOOKBACK_ASSIGN_OR_RETURN(const std::optional<double> top_theta, ReadTheta(config));
  if (now.scaling && before.scaling && !SameScaling(*now.scaling, *before.scaling)) {
    return Mismatch(StrCat("rope_scaling in ", config.where()), "other values than rope_parameters",
                    "the same in both");
  }
  std::optional<double> theta;
  for (const std::optional<double>& candidate : {now.theta, before.theta, top_theta}) {
    if (!candidate) continue;
    if (theta && *theta != *candidate) {
      return Mismatch(StrCat("rope_theta in ", config.where()), StrCat(*theta, " and ", *candidate),
                      "one value");
    }
    theta = candidate;
  }
  RopeConfig rope = now.scaling ? *now.scaling : before.scaling.value_or(RopeConfig{});
  rope.theta = theta.value_or(kDefaultTheta);
  return rope;
}

}  // namespace lookback::tools
