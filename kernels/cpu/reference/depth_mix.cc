#include <cmath>

#include "kernels/cpu/depth_sources.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {

void DepthMix(const DepthMixArgs& args) {
  const int64_t slice = args.width / args.heads;
  float* weights = args.scratch;
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const DepthSources sources{args, r};
    const int64_t count = sources.count();
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t begin = head * slice;
      float highest = -INFINITY;
      for (int64_t i = 0; i < count; ++i) {
        weights[i] =
            sources.inverse_rms(i) * Dot(args.query + begin, sources.source(i) + begin, slice);
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
        const float* from = sources.source(i) + begin;
        const float share = weights[i] / sum;
        for (int64_t c = 0; c < slice; ++c) out[c] += share * from[c];
        if (args.shares != nullptr) args.shares[(r * args.heads + head) * count + i] = share;
      }
    }
  }
}

}  // namespace lookback::kernels::reference
