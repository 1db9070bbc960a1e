#include "tools/convert/weight_source.h"

namespace lookback::tools {

int64_t SourceTensor::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

Result<SourceTensor> WeightSource::Find(std::string_view name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  return Status(StatusCode::kNotFound,
                StrCat("tensor ", Quoted(name), " in ", where, ": got none, expected one"));
}

}  // namespace lookback::tools
