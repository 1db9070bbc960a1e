#include "tools/convert/input_hash.h"

#include <algorithm>
#include <span>
#include <vector>

#include "engine/sha256.h"
#include "tools/convert/input_file.h"

namespace lookback::tools {

namespace {

constexpr size_t kSliceBytes = size_t{4} << 20;

}  // namespace

Result<std::string> HashFile(const std::string& path,
                             const std::function<Status(int64_t bytes)>& after_slice) {
  LOOKBACK_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  std::vector<std::byte> buffer(kSliceBytes);
  Sha256 hash;
  const int64_t bytes = file.bytes();
  for (int64_t begin = 0; begin < bytes; begin += std::ssize(buffer)) {
    const int64_t count = std::min(std::ssize(buffer), bytes - begin);
    const std::span<std::byte> slice = std::span(buffer).first(static_cast<size_t>(count));
    LOOKBACK_RETURN_IF_ERROR(file.Read(begin, slice));
    hash.Update({reinterpret_cast<const char*>(slice.data()), slice.size()});
    if (after_slice) LOOKBACK_RETURN_IF_ERROR(after_slice(count));
  }
  return hash.Finish();
}

}  // namespace lookback::tools
