#include <cmath>

#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {

void DepthMix(const DepthMixArgs& args) {
  const int64_t slice = args.width / args.heads;
  float* weights = args.scratch;
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const float* row = args.sources + r * args.width;
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t begin = head * slice;
      float highest = -INFINITY;
      for (int64_t i = 0; i < args.num_sources; ++i) {
        const float* source = row + i * args.source_stride + begin;
        weights[i] = args.inverse_rms[i * args.inverse_rms_stride + r] *
                     Dot(args.query + begin, source, slice);
        highest = std::fmax(highest, weights[i]);
      }
      float sum = 0.0F;
      for (int64_t i = 0; i < args.num_sources; ++i) {
        weights[i] = std::exp(weights[i] - highest);
        sum += weights[i];
      }
      float* out = args.out + r * args.width + begin;
      for (int64_t c = 0; c < slice; ++c) out[c] = 0.0F;
      for (int64_t i = 0; i < args.num_sources; ++i) {
        const float* source = row + i * args.source_stride + begin;
        const float share = weights[i] / sum;
        for (int64_t c = 0; c < slice; ++c) out[c] += share * source[c];
      }
    }
  }
}

}  // namespace lookback::kernels::reference
