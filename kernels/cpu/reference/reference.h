// The reference kernel set; argument structs and contracts are in kernels.h.
#pragma once

#include "kernels/kernels.h"

namespace lookback::kernels::reference {

void Gemm(const GemmArgs& args);
void RoundRows(const RoundRowsArgs& args);
void BF16Gemm(const BF16GemmArgs& args);
void QuantizeRows(const QuantizeRowsArgs& args);
void IntegerGemm(const IntegerGemmArgs& args);
void Embed(const EmbedArgs& args);
void RmsNorm(const RmsNormArgs& args);
void LayerNorm(const LayerNormArgs& args);
void InverseRms(const InverseRmsArgs& args);
void Add(const AddArgs& args);
void RopeTable(const RopeTableArgs& args);
void Rope(const RopeArgs& args);
void Swiglu(const SwigluArgs& args);
void Gelu(const GeluArgs& args);
void Combine(const CombineArgs& args);
void Gate(const GateArgs& args);
void KvWrite(const KvWriteArgs& args);
void Attention(const AttentionArgs& args);
void MaskedAttention(const AttentionArgs& args);
void DepthMix(const DepthMixArgs& args);
double Peak(Element type, int64_t rounds);

}  // namespace lookback::kernels::reference
