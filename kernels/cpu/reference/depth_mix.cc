#include <cmath>

#include "kernels/cpu/depth_sources.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {
namespace {

/// One query and one head of a row.
void MixHead(const DepthMixArgs& args, const DepthSources& sources, int64_t query, int64_t head) {
  const int64_t slice = args.width / args.heads, begin = head * slice;
  const int64_t count = sources.count(), at = sources.row * args.heads + head;
  float* weights = args.scratch;
  float highest = -INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    weights[i] =
        sources.logit(i, head, Dot(args.queries[query] + begin, sources.source(i) + begin, slice));
    highest = std::fmax(highest, weights[i]);
  }
  float sum = 0.0F;
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = std::exp(weights[i] - highest);
    sum += weights[i];
  }
  float* out = args.out[query] + sources.row * args.width + begin;
  for (int64_t c = 0; c < slice; ++c) out[c] = 0.0F;
  for (int64_t i = 0; i < count; ++i) {
    const float* from = sources.source(i) + begin;
    const float share = weights[i] / sum;
    for (int64_t c = 0; c < slice; ++c) out[c] += share * from[c];
    if (args.shares != nullptr) args.shares[at * count + i] = share;
  }
  if (args.logit[query] != nullptr) args.logit[query][at] = highest + std::log(sum);
}

}  // namespace

void DepthMix(const DepthMixArgs& args) {
  for (int64_t item = args.item_begin; item < args.item_end; ++item) {
    for (int64_t query = 0; query < args.num_queries; ++query) {
      MixHead(args, {args, item / args.heads}, query, item % args.heads);
    }
  }
}

}  // namespace lookback::kernels::reference
