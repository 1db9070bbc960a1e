// config.json of a Hugging Face folder.
#include "tests/fuzz/memory_file.h"
#include "tools/convert/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = lookback::ParseJson(text, "config.json");
  if (!json.ok()) {
    lookback::testing::CheckMessage(json.status().message());
    return 0;
  }
  const auto model = lookback::tools::ReadHfConfig(*json, "config.json");
  if (!model.ok()) lookback::testing::CheckMessage(model.status().message());
  return 0;
}
