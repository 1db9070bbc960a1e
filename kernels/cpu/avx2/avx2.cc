// The table of the set. Compiled without the set's instructions: it runs on every CPU.
#include "kernels/cpu/avx2/avx2.h"

namespace lookback::kernels {

const KernelTable* Avx2Kernels() {
  static const KernelTable table = [] {
    KernelTable set = ReferenceKernels();
    set.name = "avx2";
    set.gemm = avx2::Gemm;
    set.quantize_rows = avx2::QuantizeRows;
    set.integer_gemm = avx2::IntegerGemm;
    set.rms_norm = avx2::RmsNorm;
    set.inverse_rms = avx2::InverseRms;
    set.swiglu = avx2::Swiglu;
    set.attention = avx2::Attention;
    set.masked_attention = avx2::MaskedAttention;
    set.depth_mix = avx2::DepthMix;
    return set;
  }();
  // Every CPU with these two has F16C as well, which not every compiler can be asked for.
  static const bool usable = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return usable ? &table : nullptr;
}

}  // namespace lookback::kernels
