// The sources of a routing read, the null source first, the same for every set of kernels. In an
// unnamed namespace, as block_walk.h is.
#pragma once

#include "kernels/kernels.h"

namespace lookback::kernels {
namespace {

/// What DepthMix reads for one row.
struct DepthSources {
  const DepthMixArgs& args;
  int64_t row;

  int64_t nulls() const { return args.null_source != nullptr ? 1 : 0; }
  /// Those that are not in args.sources.
  int64_t others() const { return nulls() + (args.mean != nullptr ? 1 : 0); }
  int64_t count() const { return others() + args.num_sources; }
  /// [width]
  const float* source(int64_t i) const {
    if (i < nulls()) return args.null_source;
    if (i < others()) return args.mean + row * args.width;
    return args.sources + (i - others()) * args.source_stride + row * args.width;
  }
  /// z of source i, whose product with the head's query is `dot`.
  float logit(int64_t i, int64_t head, float dot) const {
    if (i < nulls()) return args.null_inverse_rms * dot;
    if (i < others()) return args.mean_logit[row * args.heads + head];
    return args.inverse_rms[(i - others()) * args.inverse_rms_stride + row] * dot;
  }
};

}  // namespace
}  // namespace lookback::kernels
