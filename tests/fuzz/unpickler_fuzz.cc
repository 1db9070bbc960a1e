// The restricted unpickler.
#include "tests/fuzz/memory_file.h"
#include "tools/convert/unpickler.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tree = lookback::tools::Unpickle(bytes, "data.pkl");
  if (tree.ok()) {
    LOOKBACK_CHECK(!lookback::tools::DescribePickle(tree->root()).empty());
  } else {
    lookback::testing::CheckMessage(tree.status().message());
  }
  return 0;
}
