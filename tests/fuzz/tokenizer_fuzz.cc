// tokenizer.json, and a text through each tokenizer that it makes.
#include "engine/tokenizer/tokenizer.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = lookback::MakeBpeTokenizer(bytes, lookback::TokenizerInfo());
  if (!tokenizer.ok()) {
    lookback::testing::CheckMessage(tokenizer.status().message());
    return 0;
  }
  const auto ids = (*tokenizer)->Encode("Héllo, wörld!  1234\n\n\tabc '\xE2\x80\x99s", false);
  if (!ids.ok()) {
    lookback::testing::CheckMessage(ids.status().message());
    return 0;
  }
  for (const int32_t id : *ids) LOOKBACK_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
  (*tokenizer)->Decode(*ids, false);
  return 0;
}
