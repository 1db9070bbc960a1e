#include <cmath>
#include <numbers>

#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {
namespace {

/// Row `index` of a table of any type, to out; added to it with `add`.
void TakeRow(const WeightView& table, int64_t index, int64_t width, bool add, float* out) {
  const auto take = [&](const auto* row, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out[i] = add ? out[i] + Widen(row[i - begin]) : Widen(row[i - begin]);
    }
  };
  if (table.type == Element::kF32) {
    return take(static_cast<const float*>(table.data) + index * width, 0, width);
  }
  if (table.type == Element::kBF16) {
    return take(static_cast<const uint16_t*>(table.data) + index * width, 0, width);
  }
  for (int64_t begin = 0; begin < width; begin += kQuantGroup) {
    float values[kQuantGroup];
    Dequantize(table, index, width, begin / kQuantGroup, values);
    take(values, begin, begin + kQuantGroup < width ? begin + kQuantGroup : width);
  }
}

}  // namespace

void Embed(const EmbedArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    float* out = args.out + r * args.width;
    TakeRow(args.table, args.ids[r], args.width, false, out);
    if (args.positions.data == nullptr) continue;
    TakeRow(args.positions, args.position[r], args.width, true, out);
  }
}

void Add(const AddArgs& args) {
  for (int64_t i = args.row_begin * args.width; i < args.row_end * args.width; ++i) {
    args.y[i] += args.x[i];
  }
}

void RopeTable(const RopeTableArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const auto position = static_cast<float>(args.position[r]);
    for (int64_t i = 0; i < args.half; ++i) {
      const float angle = position * args.frequency[i];
      args.cosine[r * args.half + i] = std::cos(angle);
      args.sine[r * args.half + i] = std::sin(angle);
    }
  }
}

void Rope(const RopeArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const float* cosine = args.cosine + r * args.half;
    const float* sine = args.sine + r * args.half;
    for (int64_t head = 0; head < args.heads; ++head) {
      float* low = args.x + r * args.stride + head * 2 * args.half;
      float* high = low + args.half;
      for (int64_t i = 0; i < args.half; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a * cosine[i] - b * sine[i];
        high[i] = b * cosine[i] + a * sine[i];
      }
    }
  }
}

void Swiglu(const SwigluArgs& args) {
  for (int64_t i = args.row_begin * args.width; i < args.row_end * args.width; ++i) {
    const float gate = args.gate[i];
    args.out[i] = gate / (1.0F + std::exp(-gate)) * args.up[i];
  }
}

void Gelu(const GeluArgs& args) {
  for (int64_t i = args.row_begin * args.width; i < args.row_end * args.width; ++i) {
    const float x = args.x[i];
    args.x[i] = 0.5F * x * (1.0F + std::erf(x * std::numbers::sqrt2_v<float> * 0.5F));
  }
}

void Combine(const CombineArgs& args) {
  const int64_t begin = args.row_begin * args.width, end = args.row_end * args.width;
  for (int64_t i = begin; i < end; ++i) args.out[i] = args.weights[0] * args.sources[i];
  for (int64_t n = 1; n < args.num_sources; ++n) {
    const float* source = args.sources + n * args.source_stride;
    const float weight = args.weights[n];
    for (int64_t i = begin; i < end; ++i) args.out[i] += weight * source[i];
  }
}

void Gate(const GateArgs& args) {
  for (int64_t i = args.row_begin * args.width; i < args.row_end * args.width; ++i) {
    const float a = args.logits == nullptr ? args.alpha : 1.0F / (1.0F + std::exp(-args.logits[i]));
    args.read[i] = (1.0F - a) * args.state[i] + a * args.read[i];
  }
}

}  // namespace lookback::kernels::reference
