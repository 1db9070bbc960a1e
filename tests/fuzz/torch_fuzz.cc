// A whole .pt: ZIP directory, pickle, tensors and their ranges in the file.
#include <vector>

#include "tests/fuzz/memory_file.h"
#include "tools/convert/torch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const lookback::testing::MemoryFile file(data, size);
  const auto torch = lookback::tools::TorchFile::Open(file.path());
  if (!torch.ok()) {
    lookback::testing::CheckMessage(torch.status().message());
    return 0;
  }
  for (const auto& [name, tensor] : torch->tensors()) {
    // No more than the file: what Open() let through can be read.
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
    LOOKBACK_CHECK(torch->Read(tensor, 0, bytes).ok());
  }
  const auto metadata = torch->Metadata("metadata");
  if (!metadata.ok()) lookback::testing::CheckMessage(metadata.status().message());
  return 0;
}
