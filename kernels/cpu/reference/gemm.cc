#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {
namespace {

template <typename Args>
float Bias(const Args& args, int64_t o) {
  return args.bias != nullptr ? args.bias[o] : 0.0F;
}

/// Weights of T; x, [rows][x_stride], of what it is in the arguments.
template <typename T, typename Args>
void GemmPlain(const Args& args, int64_t x_stride) {
  for (int64_t o = args.out_begin; o < args.out_end; ++o) {
    const T* w = static_cast<const T*>(args.w.data) + o * args.k;
    // The weight row stays in the first-level cache over all rows. Tiles of several rows were
    // tried: GCC 12 spills their partial sums, at a quarter of the speed.
    for (int64_t row = 0; row < args.rows; ++row) {
      args.y[row * args.y_stride + o] = Dot(args.x + row * x_stride, w, args.k) + Bias(args, o);
    }
  }
}

/// The same sums in the same order; a group is widened once for so many rows.
void GemmQuantized(const GemmArgs& args) {
  constexpr int64_t kRows = 64;
  static_assert(kQuantGroup % kLanes == 0);
  for (int64_t o = args.out_begin; o < args.out_end; ++o) {
    for (int64_t first = 0; first < args.rows; first += kRows) {
      const int64_t rows = args.rows - first < kRows ? args.rows - first : kRows;
      float lanes[kRows][kLanes] = {};
      for (int64_t begin = 0; begin < args.k; begin += kQuantGroup) {
        float values[kQuantGroup];
        Dequantize(args.w, o, args.k, begin / kQuantGroup, values);
        const int64_t count = args.k - begin < kQuantGroup ? args.k - begin : kQuantGroup;
        for (int64_t r = 0; r < rows; ++r) {
          const float* x = args.x + (first + r) * args.x_stride + begin;
          int64_t i = 0;
          for (; i + kLanes <= count; i += kLanes) {
            for (int64_t lane = 0; lane < kLanes; ++lane) {
              lanes[r][lane] += x[i + lane] * values[i + lane];
            }
          }
          for (int64_t lane = 0; i + lane < count; ++lane) {
            lanes[r][lane] += x[i + lane] * values[i + lane];
          }
        }
      }
      for (int64_t r = 0; r < rows; ++r) {
        args.y[(first + r) * args.y_stride + o] = SumLanes(lanes[r]) + Bias(args, o);
      }
    }
  }
}

}  // namespace

void Gemm(const GemmArgs& args) {
  switch (args.w.type) {
    case Element::kF32:
      return GemmPlain<float>(args, args.x_stride);
    case Element::kBF16:
      return GemmPlain<uint16_t>(args, args.x_stride);
    case Element::kQ8:
    case Element::kQ4:
      return GemmQuantized(args);
  }
}

void RoundRows(const RoundRowsArgs& args) {
  for (int64_t row = args.row_begin; row < args.row_end; ++row) {
    for (int64_t i = 0; i < args.k; ++i) {
      args.out[row * args.k + i] = NarrowToBF16(args.x[row * args.x_stride + i]);
    }
  }
}

void BF16Gemm(const BF16GemmArgs& args) { GemmPlain<uint16_t>(args, args.k); }

double Peak(Element /*type*/, int64_t rounds) {
  float lanes[kLanes] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    for (float& lane : lanes) lane = lane * 0.5F + 0.5F;
  }
  const volatile float sum = SumLanes(lanes);  // read, so that the loop stays
  static_cast<void>(sum);
  return 2.0 * kLanes * static_cast<double>(rounds);
}

}  // namespace lookback::kernels::reference
