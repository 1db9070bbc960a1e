#include "engine/windows.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/sha256.h"

namespace lookback {
namespace {

Result<WindowTable> Read(const std::string& text, int64_t layers = 2, int64_t heads = 2) {
  Result<Json> json = ParseJson(text, "w.json");
  if (!json.ok()) return json.status();
  return WindowTable::FromJson(*json, layers, heads, "w.json");
}

struct BadTable {
  std::string text;
  std::string says;
};

TEST(WindowTable, RefusesBadTablesByPlace) {
  const BadTable cases[] = {
      {"[[1,2],[3,4]]", "w.json: got an array of 2, expected a JSON object"},
      {"{}", "windows in w.json: got nothing"},
      {R"({"windows": 7})", "windows in w.json: got 7, expected an array of 2 layers"},
      {R"({"windows": [[1,2]]})", "windows in w.json: got an array of 1"},
      {R"({"windows": [[1,2],[3]]})",
       "windows[1] in w.json: got an array of 1, expected an array of 2 query heads"},
      {R"({"windows": [[1,2],[3,0]]})", "windows[1][1] in w.json: got 0"},
      {R"({"windows": [[1,2],[-3,4]]})", "windows[1][0] in w.json: got -3"},
      {R"({"windows": [[1,2.5],[3,4]]})", "windows[0][1] in w.json: got 2.5"},
      {R"({"windows": [[1,2],[2147483648,4]]})", "windows[1][0] in w.json: got 2147483648"},
      {R"({"windows": [[1,2],[1e300,4]]})", "windows[1][0] in w.json: got 1e+300"},
      {R"({"windows": [["8",2],[3,4]]})", "windows[0][0] in w.json: got \"8\""},
      {R"({"windows": [[NaN,2],[3,4]]})", "NaN"},
      {R"({"windows": [[1,2],[3,4]], "sinks": -1})", "sinks in w.json: got -1"},
      {R"({"windows": [[1,2],[3,4]], "sinks": [[0,0]]})", "sinks in w.json: got an array of 1"},
      {R"({"windows": [[1,2],[3,4]], "sinks": [[0,0],[0,null]]})",
       "sinks[1][1] in w.json: got null"},
      {R"({"windows": [[1,2],[3,4]], "train_context": "x"})", "train_context in w.json"},
      {R"({"windows": [[1,2],[3,4]], "source": 3})", "source in w.json"},
  };
  for (const BadTable& c : cases) {
    const Result<WindowTable> table = Read(c.text);
    ASSERT_FALSE(table.ok()) << c.text;
    EXPECT_NE(table.status().message().find(c.says), std::string::npos) << table.status().message();
  }
}

TEST(WindowTable, ReadsFullWindowsAndSinksPerHead) {
  const auto table = Read(R"({"windows": [[1, null], [32.0, 2147483647]],
      "sinks": [[0, 1], [2, 3]], "train_context": 512, "source": "s", "later": {}})");
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_EQ(table->at(0, 0), (HeadWindow{1, 0}));
  EXPECT_EQ(table->at(0, 1), (HeadWindow{kFullWindow, 1}));
  EXPECT_EQ(table->at(1, 0), (HeadWindow{32, 2}));
  EXPECT_EQ(table->at(1, 1), (HeadWindow{2147483647, 3}));
  EXPECT_EQ(table->train_context(), 512);
  const auto again = WindowTable::FromJson(table->ToJson(), 2, 2, "again");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->Hash(), table->Hash());
  EXPECT_EQ(again->source(), "s");
}

TEST(WindowTable, HashIsThatOfTheLittleEndianTable) {
  const auto table = Read(R"({"windows": [[1, null], [258, 4]], "sinks": 5})");
  ASSERT_TRUE(table.ok());
  const std::string bytes(
      "\1\0\0\0\xFF\xFF\xFF\xFF\2\1\0\0\4\0\0\0"
      "\5\0\0\0\5\0\0\0\5\0\0\0\5\0\0\0",
      32);
  EXPECT_EQ(table->Hash(), Sha256Hex(bytes));
}

TEST(WindowTable, AKvHeadKeepsTheLargestWindowAndSinksOfItsGroup) {
  const auto table = Read(R"({"windows": [[1, 7, 32, null]], "sinks": [[4, 0, 1, 2]]})", 1, 4);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->KvHead(0, 0, 2), (HeadWindow{7, 4}));
  EXPECT_EQ(table->KvHead(0, 1, 2), (HeadWindow{kFullWindow, 2}));
}

TEST(WindowTable, AcrIsTheMeanShareOfTheContext) {
  const auto table = Read(R"({"windows": [[16, null], [32, 128]], "sinks": 9})");
  ASSERT_TRUE(table.ok());
  EXPECT_DOUBLE_EQ(table->AcrOfLayer(0, 64), (0.25 + 1.0) / 2);
  EXPECT_DOUBLE_EQ(table->AcrOfLayer(1, 64), (0.5 + 1.0) / 2);
  EXPECT_DOUBLE_EQ(table->Acr(64), 0.6875);
  EXPECT_DOUBLE_EQ(table->Acr(8), 1.0);
}

TEST(WindowTable, UniformRefusesWindowsAndSinksOutOfRange) {
  EXPECT_FALSE(WindowTable::Uniform(1, 1, 0, 0, "").ok());
  EXPECT_FALSE(WindowTable::Uniform(1, 1, int64_t{1} << 31, 0, "").ok());
  EXPECT_FALSE(WindowTable::Uniform(1, 1, 1, -1, "").ok());
  EXPECT_FALSE(WindowTable::Uniform(1, 1, 1, int64_t{1} << 31, "").ok());
  EXPECT_EQ(WindowTable::Uniform(1, 1, 7, 2, "")->at(0, 0), (HeadWindow{7, 2}));
  EXPECT_EQ(WindowTable::Full(1, 1).WithSinks(3).at(0, 0), (HeadWindow{kFullWindow, 3}));
}

TEST(VisibleKeys, CountsTheKeysOfTheDefinition) {
  for (const int32_t window : {1, 3, 8, 100, kFullWindow}) {
    for (const int32_t sinks : {0, 1, 5, 40}) {
      for (int64_t context = 1; context <= 20; ++context) {
        const int64_t i = context - 1;
        int64_t seen = 0;
        for (int64_t j = 0; j <= i; ++j) {
          seen += window == kFullWindow || j < sinks || j >= i - window + 1 ? 1 : 0;
        }
        EXPECT_EQ(VisibleKeys({window, sinks}, context), seen)
            << window << " " << sinks << " " << context;
      }
    }
  }
}

TEST(Sha256, AgreesWithTheStandardsExample) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  pieces.Update("a");
  pieces.Update("");
  pieces.Update("bc");
  EXPECT_EQ(pieces.Finish(), Sha256Hex("abc"));
}

}  // namespace
}  // namespace lookback
