#include "engine/random_model.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "engine/quantize.h"
#include "engine/safetensors.h"
#include "engine/tensor.h"
#include "engine/tensor_table.h"

namespace lookback {
namespace {

using kernels::Element;

/// xorshift64* (Vigna 2016): good enough for weights, and fast enough for gigabytes of them.
class Random {
 public:
  /// Of one tensor: what it gets does not depend on which others there are.
  Random(uint64_t seed, std::string_view name) : state_(seed * 0x9E3779B97F4A7C15U + 1) {
    for (const char c : name) {
      state_ ^= static_cast<unsigned char>(c);
      Bits();
    }
  }
  uint64_t Bits() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1DU;
  }
  /// Evenly spread, mean 0, variance 1.
  float Value() {
    constexpr float kSpread = 3.46410162F;  // sqrt(12)
    return (static_cast<float>(Bits() >> 40) * 0x1p-24F - 0.5F) * kSpread;
  }

 private:
  uint64_t state_;
};

/// Norms stay near 1, matrices keep the size of what they read; routing queries are larger.
float ScaleOf(const TensorSpec& spec) {
  const auto has = [&](const char* part) { return spec.name.find(part) != std::string::npos; };
  if (has("norm") || has("ln")) return 0.1F;
  if (has("res_proj")) return 0.4F;
  if (has("embed") || has("wte")) return 1.0F;
  if (spec.role == TensorSpec::kVector) return 0.1F;
  return 1.0F / std::sqrt(static_cast<float>(spec.shape.back()));
}

/// Appends `count` values that `next` makes, a slice at a time.
template <typename T, typename Next>
Status AppendValues(SafetensorsWriter& writer, int64_t count, const Next& next) {
  constexpr int64_t kSlice = int64_t{1} << 18;
  std::vector<T> slice(static_cast<size_t>(std::min(count, kSlice)));
  while (count > 0) {
    const std::span<T> part(slice.data(), static_cast<size_t>(std::min(count, kSlice)));
    for (T& value : part) value = next();
    LOOKBACK_RETURN_IF_ERROR(writer.Append(std::as_bytes(part)));
    count -= std::ssize(part);
  }
  return {};
}

Status AppendTensor(SafetensorsWriter& writer, const TensorSpec& spec, Element type,
                    Random& random) {
  const int64_t count = *CheckedElements(spec.shape);
  const float scale = ScaleOf(spec);
  const bool norm_weight =
      spec.shape.size() == 1 && spec.name.ends_with(".weight") && scale == 0.1F;
  const auto value = [&] { return random.Value() * scale + (norm_weight ? 1.0F : 0.0F); };
  switch (type) {
    case Element::kF32:
      return AppendValues<float>(writer, count, value);
    case Element::kBF16:
      return AppendValues<uint16_t>(writer, count, [&] { return F32ToBF16(value()); });
    case Element::kQ8:
    case Element::kQ4: {
      const int64_t bytes = type == Element::kQ8 ? count : count / 2;
      LOOKBACK_RETURN_IF_ERROR(AppendValues<uint8_t>(
          writer, bytes, [&] { return static_cast<uint8_t>(random.Bits() >> 56); }));
      // Integers that are evenly spread over the 256 or 16 there are have this deviation.
      const float deviation = type == Element::kQ8 ? 73.9F : 4.61F;
      return AppendValues<uint16_t>(writer, count / kernels::kQuantGroup,
                                    [&] { return F32ToF16(scale / deviation); });
    }
  }
  return {};
}

}  // namespace

Status WriteRandomModel(const std::string& path, const ModelConfig& config, Element matrices,
                        uint64_t seed) {
  LOOKBACK_RETURN_IF_ERROR(config.Validate());
  SafetensorsWriter writer(path);
  writer.SetMetadata("format", "lookback");
  writer.SetMetadata("format_version", "1");
  writer.SetMetadata("config", config.ToJson().dump());
  writer.SetMetadata("windows", config.windows.ToJson().dump());
  const std::vector<TensorSpec> tensors = ModelTensors(config);
  for (const TensorSpec& spec : tensors) {
    const Element type = StoredType(spec, matrices);
    if (kernels::IsQuantized(type) && spec.shape.back() % kernels::kQuantGroup != 0) {
      return Mismatch(StrCat("columns of ", spec.name), spec.shape.back(), "a multiple of 32");
    }
    DeclareWeights(spec.name, spec.shape, type, writer);
  }
  LOOKBACK_RETURN_IF_ERROR(writer.Begin());
  for (const TensorSpec& spec : tensors) {
    Random random(seed, spec.name);
    LOOKBACK_RETURN_IF_ERROR(AppendTensor(writer, spec, StoredType(spec, matrices), random));
  }
  return writer.Finish();
}

}  // namespace lookback
