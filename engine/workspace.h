// Every activation of the forward pass, allocated once for the largest step.
#pragma once

#include <cstdint>

#include "engine/config.h"
#include "engine/tensor.h"
#include "kernels/kernels.h"

namespace lookback {

/// Carves aligned arrays out of one allocation. First pass with no memory counts the bytes.
class Arena {
 public:
  explicit Arena(std::byte* memory) : memory_(memory) {}
  template <typename T>
  T* Take(int64_t count) {
    T* array = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return array;
  }
  int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

/// What --compute fast makes of a product's input before it multiplies.
struct InputTypes {
  bool quantized = false;  ///< 8-bit integers for quantized weights
  bool bf16 = false;       ///< bf16 for weights of bf16
};

/// Room for them; where there is none, such an input stays f32.
struct NarrowInput {
  kernels::QuantizedRows quantized;
  uint16_t* bf16 = nullptr;  ///< [rows][values]
};

/// Activation arrays, f32. R = max_rows, D = hidden_size. Contents live for one step.
struct Workspace {
  Workspace(const ModelConfig& config, int64_t max_rows, int64_t max_logit_rows, InputTypes inputs);

  int64_t max_rows;
  int64_t max_logit_rows;
  Buffer memory;

  int32_t* ids;           ///< [R]
  int32_t* row_sequence;  ///< [R] index into the step's items
  int64_t* position;      ///< [R]
  float* cosine;          ///< [R][head_dim/2]
  float* sine;            ///< [R][head_dim/2]
  float* q;               ///< [R][heads·head_dim]
  float* k;               ///< [R][kv_heads·head_dim]
  float* v;               ///< [R][kv_heads·head_dim]
  float* attention;       ///< [R][heads·head_dim]
  float* gate;            ///< [R][ffn_size]
  float* up;              ///< [R][ffn_size]
  float* hidden;          ///< [R][D], the last norm's output
  float* logit_rows;      ///< [max_logit_rows][D], gathered rows of hidden
  float* logits;          ///< [max_logit_rows][vocab_size]

  NarrowInput narrow;  ///< [R] rows, those of any product's input

  int64_t bytes() const { return memory.bytes(); }

 private:
  void Carve(const ModelConfig& config, InputTypes inputs, Arena arena, int64_t* used);
};

}  // namespace lookback
