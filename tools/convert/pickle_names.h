// Names of the pickle format: opcodes for errors, and the globals that are let through.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/tensor.h"

namespace lookback::tools {

/// "REDUCE" for 'R'; "0xFF" for a byte that is no opcode.
std::string PickleOpcodeName(unsigned char opcode);

/// A global of the allow-list.
struct PickleGlobal {
  enum Kind { kOrderedDict, kRebuildTensor, kRebuildParameter, kSize, kStorageType, kDType } kind;
  std::string_view name;      ///< "torch.FloatStorage"
  DType dtype = DType::kF32;  ///< of a storage type
};

/// Nothing for a global that is not on the list.
std::optional<PickleGlobal> FindPickleGlobal(std::string_view module, std::string_view name);

}  // namespace lookback::tools
