#include "engine/json.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "tests/support/support.h"

namespace lookback {
namespace {

struct BadText {
  std::string text;
  std::string says;  ///< a part of the message
};

TEST(ParseJson, RefusesWhatIsNotOneCleanDocument) {
  const BadText cases[] = {
      {"", "syntax error"},
      {"{", "syntax error"},
      {"{} {}", "syntax error"},
      {"[1,]", "syntax error"},
      {"{\"w\": NaN}", "NaN"},
      {"[Infinity]", "syntax error"},
      {"[1e999]", "syntax error"},
      {"\"\xFF\"", "syntax error"},
      {"{\"a\": 1, \"a\": 2}", "key \"a\" twice"},
      {"{\"x\": {\"b\": 1, \"b\": {}}}", "key \"b\" twice"},
      {std::string(65, '[') + std::string(65, ']'), "more than 64 levels"},
      {std::string(1 << 20, '['), "more than 64 levels"},
  };
  for (const BadText& c : cases) {
    const Result<Json> json = ParseJson(c.text, "x.json");
    ASSERT_FALSE(json.ok()) << c.text.substr(0, 40);
    EXPECT_NE(json.status().message().find(c.says), std::string::npos) << json.status().message();
    EXPECT_NE(json.status().message().find("x.json"), std::string::npos);
    EXPECT_EQ(json.status().message().find('\n'), std::string::npos);
  }
}

TEST(ParseJson, RefusesTooManyBytes) {
  EXPECT_TRUE(ParseJson("[1]", "x", 3).ok());
  EXPECT_FALSE(ParseJson("[1] ", "x", 3).ok());
}

TEST(ParseJson, BuildsNestedDocuments) {
  const std::string text = R"({"a":[1,-2,2.5,"é",null,true,{"b":[]}],"c":{}})";
  const Result<Json> json = ParseJson(text, "x");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(DumpJson(*json), text);
  EXPECT_TRUE(ParseJson(std::string(64, '[') + std::string(64, ']'), "x").ok());
}

TEST(ReadJsonFile, RefusesFoldersPipesAndMissingFiles) {
  const testing::TempDir dir;
  EXPECT_EQ(ReadJsonFile(dir / "none.json").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(ReadJsonFile(dir.path()).ok());
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(ReadJsonFile(dir / "pipe").ok());
  testing::WriteFile(dir / "big.json", "[1, 2, 3]");
  EXPECT_FALSE(ReadJsonFile(dir / "big.json", 4).ok());
  EXPECT_TRUE(ReadJsonFile(dir / "big.json", 9).ok());
}

TEST(JsonObject, EveryWrongTypeOrRangeNamesTheKeyAndThePlace) {
  const Json json = {{"int", 5},     {"huge", 18446744073709551615ULL},
                     {"real", 2.5},  {"text", "t"},
                     {"flag", true}, {"none", nullptr}};
  const Result<JsonObject> object = JsonObject::From(json, "c.json");
  ASSERT_TRUE(object.ok());
  const Status bad[] = {
      object->Int("int", 6, 9).status(),
      object->Int("huge", 0, INT64_MAX).status(),
      object->Int("real", 0, 9).status(),
      object->Int("text", 0, 9).status(),
      object->Int("absent", 0, 9).status(),
      object->Int("none", 0, 9).status(),
      object->Int("flag", 0, 9).status(),
      object->Number("real", 3.0, 4.0).status(),
      object->Number("text", 0.0, 9).status(),
      object->Number("absent", 0.0, 1.0).status(),
      object->Bool("int").status(),
      object->Bool("absent").status(),
      object->String("int").status(),
      object->String("none").status(),
  };
  for (const Status& status : bad) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(" in c.json: got "), std::string::npos) << status.message();
  }
  EXPECT_EQ(object->Int("int", 6, 9).status().message(),
            "int in c.json: got 5, expected an integer from 6 to 9");
  EXPECT_EQ(*object->Int("int", 0, 9), 5);
  EXPECT_EQ(*object->Int("absent", 0, 9, 7), 7);
  EXPECT_EQ(*object->Int("none", 0, 9, 7), 7);
  EXPECT_EQ(*object->Number("int", 0, 9), 5.0);
  EXPECT_EQ(*object->Bool("absent", true), true);
  EXPECT_EQ(*object->String("absent", "z"), "z");
  EXPECT_FALSE(JsonObject::From(Json::array(), "c.json").ok());
}

TEST(DescribeJson, IsShortForEveryType) {
  EXPECT_EQ(DescribeJson(Json()), "null");
  EXPECT_EQ(DescribeJson(Json(-3)), "-3");
  EXPECT_EQ(DescribeJson(Json(0.5)), "0.5");
  EXPECT_EQ(DescribeJson(Json(false)), "false");
  EXPECT_EQ(DescribeJson(Json("x\n")), "\"x\\x0A\"");
  EXPECT_EQ(DescribeJson(Json::array({1, 2})), "an array of 2");
  EXPECT_EQ(DescribeJson(Json::object()), "an object of 0 keys");
}

}  // namespace
}  // namespace lookback
