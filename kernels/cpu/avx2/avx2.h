// The AVX2 + FMA set: what it does itself. The rest of its table is the reference's.
#pragma once

#include "kernels/kernels.h"

namespace lookback::kernels::avx2 {

void Gemm(const GemmArgs& args);
void QuantizeRows(const QuantizeRowsArgs& args);
void IntegerGemm(const IntegerGemmArgs& args);
void RmsNorm(const RmsNormArgs& args);
void InverseRms(const InverseRmsArgs& args);
void Swiglu(const SwigluArgs& args);
void Attention(const AttentionArgs& args);
void MaskedAttention(const AttentionArgs& args);
void DepthMix(const DepthMixArgs& args);

}  // namespace lookback::kernels::avx2
