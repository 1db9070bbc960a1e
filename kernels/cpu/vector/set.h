// The vector sets: one source, compiled once a set with LOOKBACK_SET as its namespace and the set's
// instructions. What a set does not do itself is the reference's.
#pragma once

#include "kernels/kernels.h"

namespace lookback::kernels::LOOKBACK_SET {

void Gemm(const GemmArgs& args);
#ifdef __AVX512BF16__
void RoundRows(const RoundRowsArgs& args);
void BF16Gemm(const BF16GemmArgs& args);
#endif
void QuantizeRows(const QuantizeRowsArgs& args);
void IntegerGemm(const IntegerGemmArgs& args);
void RmsNorm(const RmsNormArgs& args);
void InverseRms(const InverseRmsArgs& args);
void Swiglu(const SwigluArgs& args);
void Attention(const AttentionArgs& args);
void MaskedAttention(const AttentionArgs& args);
void DepthMix(const DepthMixArgs& args);
double Peak(Element type, int64_t rounds);

}  // namespace lookback::kernels::LOOKBACK_SET
