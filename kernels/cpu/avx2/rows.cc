// Norms, the gated activation and the routing read: one row at a time.
#include <math.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/simd.h"
#include "kernels/cpu/depth_sources.h"

namespace lookback::kernels::avx2 {
namespace {

float InverseRmsOf(const float* x, int64_t width, float eps) {
  return 1.0F / sqrtf(Dot(x, x, width) / static_cast<float>(width) + eps);
}

/// silu(gate) · up
__m256 Gated(__m256 gate, __m256 up) {
  const __m256 one = _mm256_set1_ps(1.0F);
  const __m256 below = _mm256_add_ps(one, Exp(_mm256_sub_ps(_mm256_setzero_ps(), gate)));
  return _mm256_mul_ps(_mm256_div_ps(gate, below), up);
}

/// y = share · x, or y += share · x
template <bool kAdd>
void AddScaled(const float* x, float share, int64_t width, float* y) {
  const __m256 factor = _mm256_set1_ps(share);
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    const __m256 part = Load(x + c);
    _mm256_storeu_ps(
        y + c, kAdd ? _mm256_fmadd_ps(factor, part, Load(y + c)) : _mm256_mul_ps(factor, part));
  }
  if (c == width) return;
  const __m256 part = LoadTail(x + c, width - c);
  const __m256 before = kAdd ? LoadTail(y + c, width - c) : _mm256_setzero_ps();
  StoreTail(y + c, width - c, _mm256_fmadd_ps(factor, part, before));
}

/// z = exp(z − largest); returns their sum.
float ExpAndSum(float* z, int64_t count, float largest) {
  const __m256 top = _mm256_set1_ps(largest);
  __m256 sum = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256 share = Exp(_mm256_sub_ps(Load(z + i), top));
    _mm256_storeu_ps(z + i, share);
    sum = _mm256_add_ps(sum, share);
  }
  if (i < count) {
    const __m256 mask = _mm256_castsi256_ps(LaneMask(count - i));
    const __m256 share = _mm256_and_ps(mask, Exp(_mm256_sub_ps(LoadTail(z + i, count - i), top)));
    StoreTail(z + i, count - i, share);
    sum = _mm256_add_ps(sum, share);
  }
  return SumLanes(sum);
}

}  // namespace

void RmsNorm(const RmsNormArgs& args) {
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const float* x = args.x + r * args.x_stride;
    float* y = args.y + r * args.y_stride;
    const float inverse = InverseRmsOf(x, args.width, args.eps);
    const __m256 factor = _mm256_set1_ps(inverse);
    int64_t i = 0;
    for (; i + kLanes <= args.width; i += kLanes) {
      _mm256_storeu_ps(y + i,
                       _mm256_mul_ps(_mm256_mul_ps(Load(x + i), factor), Load(args.weight + i)));
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
    _mm256_storeu_ps(args.out + i, Gated(Load(args.gate + i), Load(args.up + i)));
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

}  // namespace lookback::kernels::avx2
