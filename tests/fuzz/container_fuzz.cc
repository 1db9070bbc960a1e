// The safetensors header, and what a lookback file says in its metadata.
#include "engine/checkpoint.h"
#include "engine/safetensors.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using lookback::Checkpoint;
  using lookback::SafetensorsFile;
  const lookback::testing::MemoryFile file(data, size);
  const auto opened = SafetensorsFile::Open(file.path());
  if (!opened.ok()) {
    lookback::testing::CheckMessage(opened.status().message());
    return 0;
  }
  unsigned sum = 0;
  for (const auto& [name, entry] : (*opened)->entries()) {
    const auto view = (*opened)->Tensor(name);
    LOOKBACK_CHECK(view.ok());
    for (const std::byte byte : view->data) sum += static_cast<unsigned>(byte);
  }
  const auto checkpoint = Checkpoint::Open(file.path());
  if (!checkpoint.ok()) lookback::testing::CheckMessage(checkpoint.status().message());
  return sum == ~0U ? 1 : 0;  // so that the reads are not left out
}
