// Expected results in a safetensors file, under the names of the published fixtures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/safetensors.h"
#include "engine/status.h"

namespace lookback::tools {

/// Logits that are known at some positions of one sequence.
struct ExpectedLogits {
  std::string name;  ///< of the tensor, with the sequence's index where there are several
  std::vector<int32_t> ids;
  std::vector<int64_t> positions;  ///< ascending
  std::vector<int32_t> columns;    ///< [positions][width] token ids; empty: 0, 1, … vocab − 1
  std::vector<float> logits;       ///< [positions][width]
};

/// The argmax continuation of a prompt.
struct ExpectedGreedy {
  std::string name;
  std::vector<int32_t> prompt;
  std::vector<int32_t> ids;
};

struct Expected {
  std::vector<ExpectedLogits> logits;
  std::vector<ExpectedGreedy> greedy;
};

/// Everything in `path` that can be checked against a model with `vocab_size` ids:
///   input_ids [B,T] with logits [B,T,V], or [P,V] at logit_positions [P];
///   prompt [T] with static_logits [T,V], or [P,V] at static_positions [P];
///   NAME.input_ids [T] with NAME.logits [V] or NAME.top_ids and NAME.top_logits, both of the last
///   position;
///   greedy_prompt with greedy, NAME.input_ids with NAME.greedy_ids, prompt_N_ids with
///   greedy_N_ids.
/// InvalidArgument if there is nothing, or if shapes or ids do not fit.
Result<Expected> ReadExpected(const std::string& path, int64_t vocab_size);

}  // namespace lookback::tools
