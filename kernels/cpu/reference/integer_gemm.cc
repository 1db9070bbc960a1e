#include <cmath>

#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {

void QuantizeRows(const QuantizeRowsArgs& args) {
  const int64_t groups = QuantGroups(args.k);
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t begin = group * kQuantGroup;
      const int64_t count = args.k - begin < kQuantGroup ? args.k - begin : kQuantGroup;
      const float* x = args.x + row * args.x_stride + begin;
      float largest = 0.0F;
      bool finite = true;
      for (int64_t i = 0; i < count; ++i) {
        finite = finite && std::isfinite(x[i]);
        largest = std::fmax(largest, std::fabs(x[i]));
      }
      const bool zeros = !finite || largest < kLeastQuantized;
      const float inverse = zeros ? 0.0F : 127.0F / largest;
      const int64_t at = row * groups + group;
      int32_t sum = 0;
      for (int64_t i = 0; i < kQuantGroup; ++i) {
        const bool is_zero = zeros || i >= count;
        const auto q = is_zero ? int8_t{0} : static_cast<int8_t>(std::lrint(x[i] * inverse));
        args.out.q[at * kQuantGroup + i] = q;
        sum += q;
      }
      args.out.scale[at] = !finite ? NAN : zeros ? 0.0F : largest / 127.0F;
      args.out.sum[at] = sum;
    }
  }
}

void IntegerGemm(const IntegerGemmArgs& args) {
  const int64_t groups = QuantGroups(args.k);
  for (int64_t o = args.out_begin; o < args.out_end; ++o) {
    for (int64_t row = 0; row < args.rows; ++row) {
      float sum = 0.0F;
      for (int64_t group = 0; group < groups; ++group) {
        const Group w = LoadGroup(args.w, o, args.k, group);
        const int64_t at = row * groups + group;
        int32_t product = 0;
        const int8_t* x = args.x.q + at * kQuantGroup;
        for (int64_t i = 0; i < kQuantGroup; ++i) product += x[i] * w.q[i];
        sum += static_cast<float>(product) * (args.x.scale[at] * w.scale);
      }
      args.y[row * args.y_stride + o] = sum + (args.bias != nullptr ? args.bias[o] : 0.0F);
    }
  }
}

}  // namespace lookback::kernels::reference
