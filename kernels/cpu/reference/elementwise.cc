#include <cmath>

#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {
namespace {

template <typename T>
void EmbedOf(const EmbedArgs& args) {
  const auto* table = static_cast<const T*>(args.table);
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const T* source = table + int64_t{args.ids[r]} * args.width;
    float* out = args.out + r * args.width;
    for (int64_t i = 0; i < args.width; ++i) out[i] = Widen(source[i]);
  }
}

}  // namespace

void Embed(const EmbedArgs& args) {
  if (args.type == Element::kF32) {
    EmbedOf<float>(args);
  } else {
    EmbedOf<uint16_t>(args);
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

}  // namespace lookback::kernels::reference
