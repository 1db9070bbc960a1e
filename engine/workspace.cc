#include "engine/workspace.h"

#include <algorithm>

namespace lookback {

Workspace::Workspace(const ModelConfig& config, int64_t max_rows, int64_t max_logit_rows,
                     InputTypes inputs)
    : max_rows(max_rows), max_logit_rows(max_logit_rows) {
  int64_t bytes = 0;
  Carve(config, inputs, Arena(nullptr), &bytes);
  memory = Buffer(bytes);
  Carve(config, inputs, Arena(memory.data()), &bytes);
}

void Workspace::Carve(const ModelConfig& config, InputTypes inputs, Arena arena, int64_t* used) {
  const int64_t rows = max_rows;
  ids = arena.Take<int32_t>(rows);
  row_sequence = arena.Take<int32_t>(rows);
  position = arena.Take<int64_t>(rows);
  cosine = arena.Take<float>(rows * config.head_dim / 2);
  sine = arena.Take<float>(rows * config.head_dim / 2);
  q = arena.Take<float>(rows * config.heads * config.head_dim);
  k = arena.Take<float>(rows * config.kv_heads * config.head_dim);
  v = arena.Take<float>(rows * config.kv_heads * config.head_dim);
  attention = arena.Take<float>(rows * config.heads * config.head_dim);
  gate = arena.Take<float>(rows * config.ffn_size);
  up = arena.Take<float>(rows * config.ffn_size);
  hidden = arena.Take<float>(rows * config.hidden_size);
  logit_rows = arena.Take<float>(max_logit_rows * config.hidden_size);
  logits = arena.Take<float>(max_logit_rows * config.vocab_size);
  narrow = {};
  const int64_t widest =
      std::max({config.hidden_size, config.heads * config.head_dim, config.ffn_size});
  if (inputs.quantized) {
    const int64_t groups = rows * kernels::QuantGroups(widest);
    narrow.quantized.q = arena.Take<int8_t>(groups * kernels::kQuantGroup);
    narrow.quantized.scale = arena.Take<float>(groups);
    narrow.quantized.sum = arena.Take<int32_t>(groups);
  }
  if (inputs.bf16) narrow.bf16 = arena.Take<uint16_t>(kernels::RoundedValues(rows, widest));
  *used = arena.used();
}

}  // namespace lookback
