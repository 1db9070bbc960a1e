#include "engine/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace lookback {
namespace {

struct HeadCase {
  std::string text;
  Utf8Head::Kind kind;
  size_t length;
};

TEST(Utf8Head, FollowsTheUnicodeTableOfWellFormedSequences) {
  const HeadCase cases[] = {
      {"a", Utf8Head::kComplete, 1},
      {"\xC3\xA9", Utf8Head::kComplete, 2},
      {"\xE2\x82\xAC", Utf8Head::kComplete, 3},
      {"\xF0\x9F\x98\x80", Utf8Head::kComplete, 4},
      {"\xC3", Utf8Head::kIncomplete, 1},
      {"\xE2\x82", Utf8Head::kIncomplete, 2},
      {"\xF0\x9F\x98", Utf8Head::kIncomplete, 3},
      {"\x80", Utf8Head::kInvalid, 1},              // a continuation without a lead
      {"\xC0\xAF", Utf8Head::kInvalid, 1},          // overlong
      {"\xE0\x80\x80", Utf8Head::kInvalid, 1},      // overlong
      {"\xED\xA0\x80", Utf8Head::kInvalid, 1},      // a surrogate
      {"\xF4\x90\x80\x80", Utf8Head::kInvalid, 1},  // past U+10FFFF
      {"\xF5", Utf8Head::kInvalid, 1},
      {"\xE2\x82q", Utf8Head::kInvalid, 2},
  };
  for (const HeadCase& c : cases) {
    const Utf8Head head = DecodeUtf8Head(c.text);
    EXPECT_EQ(head.kind, c.kind) << c.text;
    EXPECT_EQ(head.length, c.length) << c.text;
  }
}

TEST(Utf8, ATextIsValidOnlyThroughout) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("naïve €"));
  EXPECT_FALSE(IsValidUtf8("naïve \xFF"));
  EXPECT_FALSE(IsValidUtf8("cut \xE2\x82"));
}

}  // namespace
}  // namespace lookback
