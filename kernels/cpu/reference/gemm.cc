#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {
namespace {

/// dot(x, o) = <x, row o of w>
template <typename DotRow>
void GemmBy(const GemmArgs& args, const DotRow& dot) {
  for (int64_t o = args.out_begin; o < args.out_end; ++o) {
    const float bias = args.bias != nullptr ? args.bias[o] : 0.0F;
    // The weight row stays in the first-level cache over all rows. Tiles of several rows were
    // tried: GCC 12 spills their partial sums, at a quarter of the speed.
    for (int64_t row = 0; row < args.rows; ++row) {
      args.y[row * args.y_stride + o] = dot(args.x + row * args.x_stride, o) + bias;
    }
  }
}

}  // namespace

void Gemm(const GemmArgs& args) {
  const auto by_type = [&](const auto* w) {
    GemmBy(args, [&](const float* x, int64_t o) { return Dot(x, w + o * args.k, args.k); });
  };
  switch (args.w.type) {
    case Element::kF32:
      return by_type(static_cast<const float*>(args.w.data));
    case Element::kBF16:
      return by_type(static_cast<const uint16_t*>(args.w.data));
    case Element::kQ8:
    case Element::kQ4:
      return GemmBy(args,
                    [&](const float* x, int64_t o) { return DotQuantized(x, args.w, o, args.k); });
  }
}

}  // namespace lookback::kernels::reference
