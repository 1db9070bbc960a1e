// Norms, the gated activation and the routing read: one row at a time.
#include <math.h>

#include "kernels/cpu/depth_sources.h"
#include "kernels/cpu/vector/set.h"
#include "kernels/cpu/vector/simd.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

float InverseRmsOf(const float* x, int64_t width, float eps) {
  return 1.0F / sqrtf(Dot(x, x, width) / static_cast<float>(width) + eps);
}

/// silu(gate) · up
Floats Gated(Floats gate, Floats up) { return gate / (All(1.0F) + Exp(Zero() - gate)) * up; }

/// y = share · x, or y += share · x
template <bool kAdd>
void AddScaled(const float* x, float share, int64_t width, float* y) {
  const Floats factor = All(share);
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    const Floats part = Load(x + c);
    Store(y + c, kAdd ? Fma(factor, part, Load(y + c)) : factor * part);
  }
  if (c == width) return;
  const Floats part = LoadTail(x + c, width - c);
  const Floats before = kAdd ? LoadTail(y + c, width - c) : Zero();
  StoreTail(y + c, width - c, Fma(factor, part, before));
}

/// z = exp(z − largest); returns their sum.
float ExpAndSum(float* z, int64_t count, float largest) {
  const Floats top = All(largest);
  Floats sum = Zero();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats share = Exp(Load(z + i) - top);
    Store(z + i, share);
    sum += share;
  }
  if (i < count) {
    const Floats share = Head(Exp(LoadTail(z + i, count - i) - top), count - i);
    StoreTail(z + i, count - i, share);
    sum += share;
  }
  return SumLanes(sum);
}

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

void DepthMix(const DepthMixArgs& args) {
  const int64_t slice = args.width / args.heads;
  float* weights = args.scratch;
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const DepthSources sources{args, r};
    const int64_t count = sources.count();
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t begin = head * slice;
      float largest = -INFINITY;
      for (int64_t i = 0; i < count; ++i) {
        weights[i] =
            sources.inverse_rms(i) * Dot(args.query + begin, sources.source(i) + begin, slice);
        largest = fmaxf(largest, weights[i]);
      }
      const float sum = ExpAndSum(weights, count, largest);
      float* out = args.out + r * args.width + begin;
      for (int64_t i = 0; i < count; ++i) {
        const float share = weights[i] / sum;
        if (i == 0) {
          AddScaled<false>(sources.source(i) + begin, share, slice, out);
        } else {
          AddScaled<true>(sources.source(i) + begin, share, slice, out);
        }
        if (args.shares != nullptr) args.shares[(r * args.heads + head) * count + i] = share;
      }
    }
  }
}

}  // namespace lookback::kernels::LOOKBACK_SET
