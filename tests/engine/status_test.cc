#include "engine/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace lookback {
namespace {

TEST(StrCat, JoinsLiteralsStringsNumbersAndBools) {
  EXPECT_EQ(StrCat("a", std::string("b"), 'c', 1, 2.5, true), "abc12.5true");
}

TEST(Mismatch, SaysWhatGotAndExpectedInOneLine) {
  const Status status = Mismatch("heads in config.json", 7, "a divisor of 12");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "heads in config.json: got 7, expected a divisor of 12");
}

TEST(Quoted, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(Quoted("a\"b\\c\x1b[31m\n"), "\"a\\\"b\\\\c\\x1B[31m\\x0A\"");
  EXPECT_EQ(Quoted("\xFF\xC3"), "\"\\xFF\\xC3\"");
  EXPECT_EQ(Quoted("é"), "\"é\"");
}

TEST(Quoted, CutsLongTextAndSaysSo) {
  const std::string quoted = Quoted(std::string(1000, 'x'));
  EXPECT_LE(quoted.size(), 90U);
  EXPECT_TRUE(quoted.ends_with("…\""));
}

TEST(IoError, NamesThePathAndTheReason) {
  const Status missing = IoError("cannot open", "no/such", ENOENT);
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "cannot open no/such: No such file or directory");
  EXPECT_EQ(IoError("cannot open", "x", EACCES).code(), StatusCode::kIo);
}

TEST(Status, PrefixLeavesSuccessAlone) {
  EXPECT_TRUE(Status().WithPrefix("x").ok());
  EXPECT_EQ(InvalidArgument("y").WithPrefix("x").message(), "x: y");
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Mismatch("value", value, "an even number");
  return value / 2;
}

Result<int> Quarter(int value) {
  LOOKBACK_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

TEST(Result, CarriesTheFirstErrorOutwards) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "value: got 3, expected an even number");
  EXPECT_TRUE(Quarter(8).status().ok());
}

}  // namespace
}  // namespace lookback
