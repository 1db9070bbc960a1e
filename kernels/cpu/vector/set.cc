// The set's part of its table: pointers, put there by code that has the set's instructions, so the
// CPU must have them too.
#include "kernels/cpu/vector/set.h"

namespace lookback::kernels::LOOKBACK_SET {

void Fill(KernelTable& table) {
#ifdef __AVX512BF16__
  table.multiplies_bf16 = true;
  table.round_rows = RoundRows;
  table.bf16_gemm = BF16Gemm;
#else
  table.multiplies_bf16 = false;
#endif
  table.gemm = Gemm;
  table.quantize_rows = QuantizeRows;
  table.integer_gemm = IntegerGemm;
  table.rms_norm = RmsNorm;
  table.inverse_rms = InverseRms;
  table.swiglu = Swiglu;
  table.attention = Attention;
  table.masked_attention = MaskedAttention;
  table.depth_mix = DepthMix;
  table.peak = Peak;
}

}  // namespace lookback::kernels::LOOKBACK_SET
