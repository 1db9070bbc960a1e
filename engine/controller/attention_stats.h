// What the AAH controller takes from attention itself (arXiv 2608.19203): statistics of the whole
// rows of weights, which the serving kernels never form.
#pragma once

#include <cstdint>
#include <span>

#include "engine/controller/features.h"

namespace lookback::controller {

/// One query head in one sequence. Row i of an array starts at i · its stride.
struct HeadView {
  const float* q = nullptr;  ///< [tokens][head_dim], as attention takes it
  int64_t q_stride = 0;
  const float* k = nullptr;  ///< [tokens][head_dim], of the head's KV head
  int64_t k_stride = 0;
  const float* out = nullptr;  ///< [tokens][head_dim], the head's output
  int64_t out_stride = 0;
  int64_t tokens = 0;
  int64_t head_dim = 0;
  int64_t window = 0;  ///< tokens, the query's own included
  float scale = 1.0F;  ///< on every product
};

/// Statistics of one row: entropy before it is divided, norm, and the weight of the last key.
struct RowStats {
  double entropy = 0.0;
  double norm = 0.0;
  double usage = 0.0;
};

/// The row of query `row`. `scratch`: at least head.tokens floats.
RowStats StatsOfRow(const HeadView& head, int64_t row, std::span<float> scratch);

/// The mean over all rows of all sequences of `tokens` tokens.
AttentionStats MeanStats(std::span<const RowStats> rows, int64_t tokens);

}  // namespace lookback::controller
