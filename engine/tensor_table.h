// Which tensors a model has, by family and mode: the one table that the converter and the loader
// read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config.h"
#include "kernels/kernels.h"

namespace lookback {

/// One tensor of a checkpoint, under its source name.
struct TensorSpec {
  enum Role : uint8_t {
    kMatrix,     ///< [out, in]: f32, bf16 or quantized in the file
    kSensitive,  ///< the same, but never q4: embeddings, output head, and the values' projection,
                 ///< which is small where heads share it and costs most of what q4 costs in quality
    kVector,     ///< norms, biases, routing vectors, gates: always f32 in the file
  };
  std::string name;
  std::vector<int64_t> shape;
  Role role;
};

/// The type in which a file with matrices of `matrices` has the tensor: f32 for vectors, q8 for
/// what is never q4.
kernels::Element StoredType(const TensorSpec& spec, kernels::Element matrices);

/// Every tensor that the forward pass of `config` reads, in file order (embedding, layers, head).
std::vector<TensorSpec> ModelTensors(const ModelConfig& config);

/// True for a tensor that releases carry but the forward pass never reads (mhar.md section 1):
/// allowed in a source, left out of the converted file.
bool IsIgnoredTensor(const ModelConfig& config, std::string_view name);

}  // namespace lookback
