// Norms and the gated activation: one row at a time.
#include <math.h>

#include "kernels/cpu/vector/set.h"
#include "kernels/cpu/vector/simd.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

float InverseRmsOf(const float* x, int64_t width, float eps) {
  return 1.0F / sqrtf(Dot(x, x, width) / static_cast<float>(width) + eps);
}

/// silu(gate) · up
Floats Gated(Floats gate, Floats up) { return gate / (All(1.0F) + Exp(Zero() - gate)) * up; }

}  // namespace

void RmsNorm(const RmsNormArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const float* x = args.x + r * args.x_stride;
    float* y = args.y + r * args.y_stride;
    const float inverse = InverseRmsOf(x, args.width, args.eps);
    const Floats factor = All(inverse);
    int64_t i = 0;
    for (; i + kLanes <= args.width; i += kLanes) {
      Store(y + i, Load(x + i) * factor * Load(args.weight + i));
    }
    for (; i < args.width; ++i) y[i] = x[i] * inverse * args.weight[i];
  }
}

void InverseRms(const InverseRmsArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    args.inverse[r] = InverseRmsOf(args.x + r * args.x_stride, args.width, args.eps);
  }
}

void Swiglu(const SwigluArgs& args) {
  int64_t i = args.row_begin * args.width;
  const int64_t end = args.row_end * args.width;
  for (; i + kLanes <= end; i += kLanes) {
    Store(args.out + i, Gated(Load(args.gate + i), Load(args.up + i)));
  }
  if (i == end) return;
  StoreTail(args.out + i, end - i,
            Gated(LoadTail(args.gate + i, end - i), LoadTail(args.up + i, end - i)));
}

}  // namespace lookback::kernels::LOOKBACK_SET
