// The weights of a source checkpoint, whatever container they lie in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"
#include "tools/convert/input_file.h"

namespace lookback::tools {

/// Where the bytes of one tensor lie, row-major and contiguous.
struct SourceTensor {
  DType dtype;
  std::vector<int64_t> shape;
  const InputFile* file;
  int64_t offset;  ///< in the file

  int64_t elements() const;
};

/// Tensors by name, and the files that they are read from.
struct WeightSource {
  std::string where;  ///< the folder or file, for errors
  std::vector<std::unique_ptr<InputFile>> files;
  std::vector<std::string> inputs;  ///< paths of all files that were read, indices too
  std::map<std::string, SourceTensor, std::less<>> tensors;

  /// NotFound names tensor and source.
  Result<SourceTensor> Find(std::string_view name) const;
};

}  // namespace lookback::tools
