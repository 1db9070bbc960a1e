#include <cmath>

#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {

void DepthMix(const DepthMixArgs& args) {
  const int64_t slice = args.width / args.heads;
  const int64_t nulls = args.null_source != nullptr ? 1 : 0;
  const int64_t count = nulls + args.num_sources;
  float* weights = args.scratch;
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    // Source i of this row, and its inverse RMS.
    const auto source = [&](int64_t i) {
      return i < nulls ? args.null_source
                       : args.sources + (i - nulls) * args.source_stride + r * args.width;
    };
    const auto inverse_rms = [&](int64_t i) {
      return i < nulls ? args.null_inverse_rms
                       : args.inverse_rms[(i - nulls) * args.inverse_rms_stride + r];
    };
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t begin = head * slice;
      float highest = -INFINITY;
      for (int64_t i = 0; i < count; ++i) {
        weights[i] = inverse_rms(i) * Dot(args.query + begin, source(i) + begin, slice);
        highest = std::fmax(highest, weights[i]);
      }
      float sum = 0.0F;
      for (int64_t i = 0; i < count; ++i) {
        weights[i] = std::exp(weights[i] - highest);
        sum += weights[i];
      }
      float* out = args.out + r * args.width + begin;
      for (int64_t c = 0; c < slice; ++c) out[c] = 0.0F;
      for (int64_t i = 0; i < count; ++i) {
        const float* from = source(i) + begin;
        const float share = weights[i] / sum;
        for (int64_t c = 0; c < slice; ++c) out[c] += share * from[c];
        if (args.shares != nullptr) args.shares[(r * args.heads + head) * count + i] = share;
      }
    }
  }
}

}  // namespace lookback::kernels::reference
