#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {
namespace {

template <typename T>
void GemmOf(const GemmArgs& args) {
  const auto* w = static_cast<const T*>(args.w);
  for (int64_t o = args.out_begin; o < args.out_end; ++o) {
    const float bias = args.bias != nullptr ? args.bias[o] : 0.0F;
    // The weight row stays in the first-level cache over all rows. Tiles of several rows were
    // tried: GCC 12 spills their partial sums, at a quarter of the speed.
    for (int64_t row = 0; row < args.rows; ++row) {
      args.y[row * args.y_stride + o] =
          Dot(args.x + row * args.x_stride, w + o * args.k, args.k) + bias;
    }
  }
}

}  // namespace

void Gemm(const GemmArgs& args) {
  if (args.w_type == Element::kF32) {
    GemmOf<float>(args);
  } else {
    GemmOf<uint16_t>(args);
  }
}

}  // namespace lookback::kernels::reference
