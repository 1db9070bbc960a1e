#include "kernels/cpu/reference/reference.h"

namespace lookback::kernels {

const KernelTable& ReferenceKernels() {
  static constexpr KernelTable kTable = {
      .name = "reference",
      .multiplies_bf16 = true,
      .gemm = reference::Gemm,
      .round_rows = reference::RoundRows,
      .bf16_gemm = reference::BF16Gemm,
      .quantize_rows = reference::QuantizeRows,
      .integer_gemm = reference::IntegerGemm,
      .embed = reference::Embed,
      .rms_norm = reference::RmsNorm,
      .layer_norm = reference::LayerNorm,
      .inverse_rms = reference::InverseRms,
      .add = reference::Add,
      .rope_table = reference::RopeTable,
      .rope = reference::Rope,
      .swiglu = reference::Swiglu,
      .gelu = reference::Gelu,
      .combine = reference::Combine,
      .gate = reference::Gate,
      .kv_write = reference::KvWrite,
      .attention = reference::Attention,
      .masked_attention = reference::MaskedAttention,
      .depth_mix = reference::DepthMix,
      .peak = reference::Peak,
  };
  return kTable;
}

}  // namespace lookback::kernels
