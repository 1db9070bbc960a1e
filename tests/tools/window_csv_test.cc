#include "tools/convert/window_csv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/support.h"
#include "tools/convert/csv.h"
#include "tools/windows_view.h"

namespace lookback::tools {
namespace {

namespace fs = std::filesystem;

const std::string kAdapterHeader =
    "regime,layer_id,head_id,final_window_idx,final_window_size,ACR\n";
const std::string kNativeHeader =
    "regime,context_length,checkpoint_step,layer_id,head_id,final_window_idx,final_window_size,"
    "group_counts_per_level\n";

WindowCsvModel Model(int64_t layers, int64_t heads) {
  return {.layers = layers,
          .heads = heads,
          .choices = {64, 128, 256, 96},
          .w_min_gpu = 70,
          .seq_len = 96};
}

std::string Adapter(const std::string& rows) { return kAdapterHeader + rows; }

WindowTable Must(const std::string& text, const WindowCsvModel& model) {
  Result<WindowTable> table = ParseWindowCsv(text, "a/w.csv", model);
  EXPECT_TRUE(table.ok()) << table.status().message();
  return table.ok() ? *std::move(table) : WindowTable::Full(model.layers, model.heads);
}

void ExpectRefused(const std::string& text, const WindowCsvModel& model, const std::string& says) {
  const Result<WindowTable> table = ParseWindowCsv(text, "w.csv", model);
  ASSERT_FALSE(table.ok()) << says;
  EXPECT_NE(table.status().message().find(says), std::string::npos)
      << table.status().message() << "\nshould say: " << says;
  EXPECT_NE(table.status().message().find("w.csv"), std::string::npos);
}

TEST(WindowCsv, ReadsTheAdaptersForm) {
  const WindowTable table =
      Must(Adapter("r,0,0,0,512,0.5\nr,0,1,1,1024.0,0.5\nr,1,1,1,7,1\nr,1,0,1,8,1"), Model(2, 2));
  EXPECT_EQ(table.at(0, 0).window, 512);
  EXPECT_EQ(table.at(0, 1).window, 1024);
  EXPECT_EQ(table.at(1, 0).window, 8);
  EXPECT_EQ(table.at(1, 1).window, 7);
  EXPECT_EQ(table.source(), "w.csv: r");
}

TEST(WindowCsv, ReadsTheNativeFormsLastStepWithoutTheFloor) {
  const WindowTable table = Must(kNativeHeader +
                                     "\"r\",96,70,0,0,1,96,\"[2, 2]\"\r\n"
                                     "r,96,70,0,1,1,96,x\r\n"
                                     "r,96,110,0,0,0,70,\"a \"\"b\"\"\"\r\n"
                                     "r,96,110,0,1,2,96,\"two\nlines\"\r\n\r\n",
                                 Model(1, 2));
  EXPECT_EQ(table.at(0, 0).window, 64);  // the attention does not heed W_min_gpu 70
  EXPECT_EQ(table.at(0, 1).window, 256);
  EXPECT_EQ(table.source(), "w.csv: r, step 110");
  EXPECT_EQ(table.train_context(), 96);
}

TEST(WindowCsv, TakesBlanksAsFullInAFullAttentionRunAlone) {
  WindowCsvModel model = Model(1, 1);
  const std::string blank = kNativeHeader + "r,96,1,0,0,,,x\n";
  ExpectRefused(blank, model, "line 2 of w.csv: got a blank final_window_idx");
  model.full_attention = true;
  EXPECT_TRUE(Must(blank, model).at(0, 0).full());
  ExpectRefused(kNativeHeader + "r,96,1,0,0,1,96,x\n", model, "expected a blank");
}

TEST(WindowCsv, NeedsTheRunForTheNativeForm) {
  WindowCsvModel model = Model(1, 1);
  model.choices.clear();
  ExpectRefused(kNativeHeader, model, "expected the run's config beside it");
}

TEST(WindowCsv, RefusesRowsByLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"r,0,0,0,NaN,1\n", "line 2 of w.csv: got final_window_size \"NaN\""},
      {"r,0,0,0,0,1\n", "got final_window_size \"0\", expected a whole number from 1"},
      {"r,0,0,0,-5,1\n", "got final_window_size \"-5\""},
      {"r,0,0,0,5.5,1\n", "got final_window_size \"5.5\""},
      {"r,0,0,0,,1\n", "got final_window_size \"\""},
      {"r,0,0,0,1e3,1\n", "got final_window_size \"1e3\""},
      {"r,0,0,0,99999999999,1\n", "got final_window_size \"99999999999\""},
      {"r,0,0,0,5,1\nr,0,2,0,5,1\n", "line 3 of w.csv: got head_id \"2\", expected a whole number"},
      {"r,1,0,0,5,1\n", "got layer_id \"1\""},
      {"r,0,-1,0,5,1\n", "got head_id \"-1\""},
      {"r,0,0,0,5\n", "got 5 fields, expected 6"},
      {"r,0,0,0,5,1,1\n", "got 7 fields"},
      {"r,0,0,0,5,1\n\nr,0,0,0,5,1\n", "line 4 of w.csv: got layer 0 head 0 again after line 2"},
      {"r,0,0,0,5,1\ns,0,1,0,5,1\n", "got regime \"s\", expected \"r\" as in the rows before"},
      {"r,0,0,0,5,1\n", "layer 0 head 1 in w.csv: got no row, expected one for each of 1 layers"},
      {"", "got no rows"},
      {"r,0,0,0,\"5,1\n", "got an end inside quotes"},
      {"r,0,0,0,\"5\"x,1\n", "got text behind a closing quote"},
      {"r,0,0,0,5\"x,1\n", "got a quote inside a plain field"},
      {"r,0,0,0," + std::string(70000, '5') + ",1\n", "a longer field than the limit"},
      {std::string(300, ','), "more columns than the limit"}};
  for (const auto& [rows, says] : cases) ExpectRefused(Adapter(rows), Model(1, 2), says);
}

TEST(WindowCsv, RefusesNativeRowsOfAnotherRunOrStep) {
  const WindowCsvModel model = Model(1, 2);
  const auto refused = [&](const std::string& rows, const std::string& says) {
    ExpectRefused(kNativeHeader + rows, model, says);
  };
  refused("r,96,1,0,0,4,96,x\n", "got final_window_idx \"4\", expected a whole number from 0 to 3");
  refused("r,96,1,0,0,0,64,x\n", "got final_window_size 64, expected 70, which the run's config");
  refused("r,96,5,0,0,0,70,x\nr,96,5,0,0,0,70,x\n", "again after line 2, and no later step");
  refused("r,96,5,0,0,0,70,x\nr,96,4,0,0,0,70,x\n", "again after line 2, and no later step");
  refused("r,96,5,0,0,0,70,x\nr,96,4,0,1,0,70,x\n", "got a last step 4, expected 5");
  refused("r,96,x,0,0,0,70,x\n", "got checkpoint_step \"x\"");
}

TEST(WindowCsv, RefusesOtherColumns) {
  ExpectRefused("", Model(1, 1), "got an empty file");
  ExpectRefused("a,b\n1,2\n", Model(1, 1), "columns of w.csv: got 2, the first of them \"a\"");
  ExpectRefused("layer_id,head_id,final_window_size\n0,0,5\n", Model(1, 1), "and either");
  ExpectRefused("layer_id,head_id,head_id,final_window_size,ACR\n", Model(1, 1),
                "got head_id twice");
  ExpectRefused(kAdapterHeader, Model(0, 1), "got 0 layers of 1 heads");
  ExpectRefused(kAdapterHeader, Model(1, 1025), "expected 1 to 1024 of each");
}

TEST(WindowCsv, ReadsThePublishedTables) {
  const auto fixtures = testing::FixturesDir();
  if (!fixtures) GTEST_SKIP() << "LOOKBACK_FIXTURES is not set";
  int files = 0;
  for (const auto& entry : fs::directory_iterator(*fixtures + "/windows")) {
    const auto table = ReadWindowCsv(entry.path().string(), {.layers = 36, .heads = 32});
    ASSERT_TRUE(table.ok()) << table.status().message();
    ++files;
    for (int64_t layer = 0; layer < 36; ++layer) {
      for (int64_t head = 0; head < 32; ++head) {
        const int32_t window = table->at(layer, head).window;
        ASSERT_TRUE(window == 512 || window == 1024 || window == 2048 || window == 4096);
      }
    }
    EXPECT_FALSE(ReadWindowCsv(entry.path().string(), {.layers = 36, .heads = 31}).ok());
    EXPECT_FALSE(ReadWindowCsv(entry.path().string(), {.layers = 37, .heads = 32}).ok());
  }
  EXPECT_EQ(files, 4);
}

void ExpectTable(const WindowTable& table, const std::string& folder) {
  const auto expected = testing::ReadInts(folder + "/expected.safetensors", "window_table");
  ASSERT_EQ(static_cast<int64_t>(expected.size()), table.layers() * table.heads()) << folder;
  for (int64_t i = 0; i < table.layers() * table.heads(); ++i) {
    EXPECT_EQ(table.at(i / table.heads(), i % table.heads()).window,
              expected[static_cast<size_t>(i)])
        << folder << " layer " << i / table.heads() << " head " << i % table.heads();
  }
}

TEST(WindowCsv, GivesTheTablesThatTheReleaseUsed) {
  const auto fixtures = testing::FixturesDir();
  if (!fixtures) GTEST_SKIP() << "LOOKBACK_FIXTURES is not set";
  int native = 0;
  int adapters = 0;
  for (const auto& entry : fs::recursive_directory_iterator(*fixtures + "/aah")) {
    const std::string name = entry.path().filename().string();
    const std::string folder = entry.path().parent_path().string();
    if (!name.ends_with("_heatmap.csv")) continue;
    if (fs::exists(folder + "/config.yaml")) {
      const auto run = ReadAahRun(folder + "/config.yaml");
      ASSERT_TRUE(run.ok()) << run.status().message();
      const auto table = ReadWindowCsv(entry.path().string(), WindowCsvModel::Of(*run));
      ASSERT_TRUE(table.ok()) << table.status().message();
      if (name.find("_step110_") == std::string::npos) continue;
      ExpectTable(*table, folder);
      ++native;
    } else {
      const auto table = ReadWindowCsv(entry.path().string(), {.layers = 3, .heads = 8});
      ASSERT_TRUE(table.ok()) << table.status().message();
      ExpectTable(*table, folder);
      ++adapters;
    }
  }
  EXPECT_EQ(native, 2);
  EXPECT_EQ(adapters, 4);
}

TEST(WindowCsv, ThePublishedTablesGiveTheNumbersOfTheReadme) {
  const auto fixtures = testing::FixturesDir();
  if (!fixtures) GTEST_SKIP() << "LOOKBACK_FIXTURES is not set";
  struct Row {
    const char* regime;
    double acr;
    int64_t kv_bytes;
  };
  ModelConfig qwen;
  qwen.layers = 36;
  qwen.heads = 32;
  qwen.kv_heads = 8;
  qwen.head_dim = 128;
  for (const Row& row : {Row{"grouping_off", 0.289, 174587904},
                         {"full_adaptive", 0.311, 188219392},
                         {"shallow_freeze", 0.303, 184287232},
                         {"deep_practical_reuse", 0.321, 193986560}}) {
    SCOPED_TRACE(row.regime);
    const std::string path = StrCat(*fixtures, "/windows/qwen3_4b_", row.regime, ".csv");
    auto table = ReadWindowCsv(path, {.layers = qwen.layers, .heads = qwen.heads});
    ASSERT_TRUE(table.ok()) << table.status().message();
    qwen.windows = *std::move(table);
    EXPECT_NEAR(qwen.windows.Acr(4096), row.acr, 5e-4);
    EXPECT_NEAR(qwen.windows.Acr(32768), row.acr / 8, 1e-4);
    for (const int64_t context : {4096, 32768}) {
      const KvBytes kv = SequenceKvBytes(qwen, context, 2);
      EXPECT_EQ(kv.windowed, row.kv_bytes);
      EXPECT_EQ(kv.full, 603979776 * (context / 4096));
    }
    double least = 1.0, most = 0.0;
    for (int64_t layer = 0; layer < qwen.layers; ++layer) {
      least = std::min(least, qwen.windows.AcrOfLayer(layer, 4096));
      most = std::max(most, qwen.windows.AcrOfLayer(layer, 4096));
    }
    EXPECT_EQ(least, 0.125);
    EXPECT_EQ(most, 1.0);
  }
}

}  // namespace
}  // namespace lookback::tools
