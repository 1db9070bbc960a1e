#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

namespace lookback {
namespace {

struct Outcome {
  std::string text;
  int32_t found = -1;
  bool operator==(const Outcome&) const = default;
};
void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << "{\"" << outcome.text << "\", " << outcome.found << "}";
}

// Looks at every prefix of the whole text in turn.
Outcome Naive(const std::string& text, const std::vector<std::string>& stops, bool include_stop) {
  for (size_t end = 1; end <= text.size(); ++end) {
    Outcome best;
    size_t best_bytes = 0;
    for (size_t s = 0; s < stops.size(); ++s) {
      const std::string head = text.substr(0, end);
      if (!head.ends_with(stops[s]) || stops[s].size() <= best_bytes) continue;
      best_bytes = stops[s].size();
      best.found = static_cast<int32_t>(s);
      best.text = include_stop ? head : head.substr(0, end - best_bytes);
    }
    if (best.found >= 0) return best;
  }
  return {text, -1};
}

// Longest suffix of `text` that is a proper prefix of a stop.
size_t NaiveHold(const std::string& text, const std::vector<std::string>& stops) {
  size_t hold = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) hold = std::max(hold, n);
    }
  }
  return hold;
}

TEST(StopMatcherTest, FindsAStopAcrossPiecesAndLeaksNothingOfIt) {
  StopMatcher matcher(std::vector<std::string>{"###END"}, false);
  std::string out;
  EXPECT_EQ(matcher.Feed("text #", out), -1);
  EXPECT_EQ(out, "text ");
  EXPECT_EQ(matcher.Feed("##E", out), -1);
  EXPECT_EQ(out, "text ");
  EXPECT_EQ(matcher.Feed("ND and more", out), 0);
  EXPECT_EQ(out, "text ");
  EXPECT_EQ(matcher.Feed("later", out), 0);
  matcher.Flush(out);
  EXPECT_EQ(out, "text ");
}

TEST(StopMatcherTest, ReleasesWhatTurnsOutToBeNoStop) {
  StopMatcher matcher(std::vector<std::string>{"aab"}, false);
  std::string out;
  EXPECT_EQ(matcher.Feed("aa", out), -1);
  EXPECT_EQ(out, "");
  EXPECT_EQ(matcher.Feed("a", out), -1);
  EXPECT_EQ(out, "a");  // "aa" may still become "aab"
  EXPECT_EQ(matcher.held_bytes(), 2U);
  EXPECT_EQ(matcher.Feed("c", out), -1);
  EXPECT_EQ(out, "aaac");
  EXPECT_EQ(matcher.Feed("aa", out), -1);
  matcher.Flush(out);
  EXPECT_EQ(out, "aaacaa");
  EXPECT_EQ(matcher.held_bytes(), 0U);
}

TEST(StopMatcherTest, TheEarliestEndWinsThenTheLongestThenTheFirst) {
  std::string out;
  EXPECT_EQ(StopMatcher(std::vector<std::string>{"abcd", "bc"}, false).Feed("xabcd", out), 1);
  EXPECT_EQ(out, "xa");
  out.clear();
  EXPECT_EQ(StopMatcher(std::vector<std::string>{"c", "abc"}, false).Feed("xabcd", out), 1);
  EXPECT_EQ(out, "x");
  out.clear();
  EXPECT_EQ(StopMatcher(std::vector<std::string>{"z", "c", "c"}, false).Feed("abc", out), 1);
  EXPECT_EQ(out, "ab");
}

TEST(StopMatcherTest, IncludeStopKeepsTheStopAndHoldsNothingBack) {
  StopMatcher matcher(std::vector<std::string>{"END"}, true);
  std::string out;
  EXPECT_EQ(matcher.Feed("the E", out), -1);
  EXPECT_EQ(out, "the E");
  EXPECT_EQ(matcher.Feed("ND.", out), 0);
  EXPECT_EQ(out, "the END");
}

TEST(StopMatcherTest, APassedStopIsTextAndMayBeginAnother) {
  StopMatcher matcher(std::vector<std::string>{"abab"}, false);
  std::string out;
  EXPECT_EQ(matcher.Feed("abab", out, /*may_stop=*/false), -1);
  EXPECT_EQ(out, "ab");
  EXPECT_EQ(matcher.Feed("ab", out), 0);
  EXPECT_EQ(out, "ab");
}

TEST(StopMatcherTest, WithoutStopsEverythingIsCertain) {
  StopMatcher matcher;
  std::string out;
  EXPECT_EQ(matcher.Feed("abc", out), -1);
  EXPECT_EQ(out, "abc");
}

TEST(StopMatcherTest, EqualsTheNaiveSearchOverRandomTextsAndSplits) {
  std::mt19937 random(5);
  const auto word = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  int found = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<std::string> stops(1 + random() % 4);
    for (std::string& stop : stops) stop = word(1 + random() % 7);
    const std::string text = word(random() % 30);
    const bool include_stop = random() % 4 == 0;
    StopMatcher matcher(stops, include_stop);
    Outcome outcome;
    for (size_t at = 0; at < text.size() && outcome.found < 0;) {
      const size_t bytes = random() % 5;
      outcome.found = matcher.Feed(text.substr(at, bytes), outcome.text);
      at = std::min(at + bytes, text.size());
      if (outcome.found < 0 && !include_stop) {
        const std::string fed = text.substr(0, at);
        ASSERT_EQ(matcher.held_bytes(), NaiveHold(fed, stops)) << fed;
        ASSERT_EQ(outcome.text.size() + matcher.held_bytes(), at);
      }
    }
    matcher.Flush(outcome.text);
    ASSERT_EQ(outcome, Naive(text, stops, include_stop)) << text;
    found += outcome.found >= 0 ? 1 : 0;
  }
  EXPECT_GT(found, 5000);
  EXPECT_LT(found, 19500);
}

TEST(StopMatcherTest, ALongRunOfNearMissesTakesLinearTime) {
  std::string stop(256, 'a');
  stop.back() = 'b';
  StopMatcher matcher(std::vector<std::string>{stop}, false);
  std::string out;
  for (int i = 0; i < 2000; ++i) EXPECT_EQ(matcher.Feed(std::string(1000, 'a'), out), -1);
  EXPECT_EQ(matcher.held_bytes(), 255U);
  EXPECT_EQ(matcher.Feed("b", out), 0);
  EXPECT_EQ(out.size(), 2000U * 1000 - 255);
}

}  // namespace
}  // namespace lookback
