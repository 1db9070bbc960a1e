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
  int64_t count() const { return nulls() + args.num_sources; }
  /// [width]
  const float* source(int64_t i) const {
    return i < nulls() ? args.null_source
                       : args.sources + (i - nulls()) * args.source_stride + row * args.width;
  }
  float inverse_rms(int64_t i) const {
    return i < nulls() ? args.null_inverse_rms
                       : args.inverse_rms[(i - nulls()) * args.inverse_rms_stride + row];
  }
};

}  // namespace
}  // namespace lookback::kernels
