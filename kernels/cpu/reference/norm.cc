#include <cmath>

#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {
namespace {

float InverseRmsOf(const float* x, int64_t width, float eps) {
  return 1.0F / std::sqrt(Dot(x, x, width) / static_cast<float>(width) + eps);
}

}  // namespace

void RmsNorm(const RmsNormArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const float* x = args.x + r * args.x_stride;
    float* y = args.y + r * args.y_stride;
    const float inverse = InverseRmsOf(x, args.width, args.eps);
    for (int64_t i = 0; i < args.width; ++i) y[i] = args.weight[i] * (x[i] * inverse);
  }
}

void LayerNorm(const LayerNormArgs& args) {
  const auto width = static_cast<float>(args.width);
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const float* x = args.x + r * args.width;
    float* y = args.y + r * args.width;
    const float mean = Sum(x, args.width) / width;
    for (int64_t i = 0; i < args.width; ++i) y[i] = x[i] - mean;
    const float inverse = 1.0F / std::sqrt(Dot(y, y, args.width) / width + args.eps);
    for (int64_t i = 0; i < args.width; ++i) y[i] = y[i] * inverse * args.weight[i] + args.bias[i];
  }
}

void InverseRms(const InverseRmsArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    args.inverse[r] = InverseRmsOf(args.x + r * args.x_stride, args.width, args.eps);
  }
}

}  // namespace lookback::kernels::reference
