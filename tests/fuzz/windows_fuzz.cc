// Window tables: JSON (a text that begins with a brace) and both forms of CSV.
#include "engine/windows.h"
#include "tests/fuzz/memory_file.h"
#include "tools/convert/window_csv.h"

namespace {

void Check(const lookback::Result<lookback::WindowTable>& table) {
  if (!table.ok()) {
    lookback::testing::CheckMessage(table.status().message());
    return;
  }
  for (int64_t layer = 0; layer < table->layers(); ++layer) {
    for (int64_t head = 0; head < table->heads(); ++head) {
      const lookback::HeadWindow window = table->at(layer, head);
      LOOKBACK_CHECK((window.full() || window.window >= 1) && window.sinks >= 0);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with('{')) {
    const auto json = lookback::ParseJson(text, "windows.json");
    if (json.ok()) Check(lookback::WindowTable::FromJson(*json, 2, 2, "windows.json"));
    return 0;
  }
  lookback::tools::WindowCsvModel model{.layers = 2, .heads = 2};
  Check(lookback::tools::ParseWindowCsv(text, "windows.csv", model));
  model.choices = {64, 128, 96};
  model.seq_len = 96;
  Check(lookback::tools::ParseWindowCsv(text, "windows.csv", model));
  return 0;
}
