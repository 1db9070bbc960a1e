// Rows as integers of 8 bits: a group is four registers of eight lanes, in every set.
#include <math.h>

#include "kernels/cpu/vector/set.h"
#include "kernels/cpu/vector/simd.h"

namespace lookback::kernels::LOOKBACK_SET {
namespace {

constexpr int64_t kParts = kQuantGroup / eight::kLanes;

/// The four registers of a group of x, zeros behind `count` values.
struct Values {
  eight::Floats part[kParts];
};

inline Values LoadValues(const float* x, int64_t count) {
  Values values;
  for (int64_t j = 0; j < kParts; ++j) {
    const int64_t left = count - j * eight::kLanes;
    values.part[j] = left >= eight::kLanes ? eight::Load(x + j * eight::kLanes)
                     : left <= 0           ? eight::Zero()
                                           : eight::LoadTail(x + j * eight::kLanes, left);
  }
  return values;
}

}  // namespace

void QuantizeRows(const QuantizeRowsArgs& args) {
  const int64_t groups = QuantGroups(args.k);
  const eight::Floats sign = eight::All(-0.0F);
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      const Values x = LoadValues(args.x + row * args.x_stride + group * kQuantGroup,
                                  args.k - group * kQuantGroup);
      eight::Floats top = eight::Zero(), difference = top;
      for (const eight::Floats part : x.part) {
        top = eight::Max(top, _mm256_andnot_ps(sign, part));
        difference += part - part;  // NaN if not finite
      }
      const float largest = eight::MaxLanes(top);
      const bool finite = eight::SumLanes(difference) == 0.0F;
      const bool zeros = !finite || largest < kLeastQuantized;
      const eight::Floats inverse = eight::All(zeros ? 0.0F : 127.0F / largest);
      eight::Ints q[kParts];
      for (int64_t j = 0; j < kParts; ++j) {
        q[j] = zeros ? _mm256_setzero_si256() : _mm256_cvtps_epi32(x.part[j] * inverse);
      }
      const int64_t at = row * groups + group;
      // Packing goes by halves of registers: bytes come as 0 4 1 5 … in words of four.
      const eight::Ints packed =
          _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
      const eight::Ints ordered =
          _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(args.out.q + at * kQuantGroup), ordered);
      const eight::Ints four =
          _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
      // Exact in f32: at most 32 · 127.
      args.out.sum[at] = static_cast<int32_t>(eight::SumLanes(eight::ToFloats(four)));
      args.out.scale[at] = !finite ? NAN : zeros ? 0.0F : largest / 127.0F;
    }
  }
}

}  // namespace lookback::kernels::LOOKBACK_SET
