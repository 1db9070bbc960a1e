// The YAML of an AAH run.
#include "tests/fuzz/memory_file.h"
#include "tools/convert/aah_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto run = lookback::tools::ParseAahRun(text, "config.yaml");
  if (!run.ok()) {
    lookback::testing::CheckMessage(run.status().message());
    return 0;
  }
  const auto table = lookback::tools::FixedWindows(*run);
  LOOKBACK_CHECK(!table || (table->layers() == run->layers && table->heads() == run->heads));
  return 0;
}
