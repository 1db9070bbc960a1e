// How texts are cut before merging: the splitters by hand against PCRE2, split patterns from
// elsewhere, NFC and added tokens.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>

#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/char_class.h"
#include "engine/tokenizer/nfc.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/regex_splitter.h"
#include "engine/tokenizer/regex_translator.h"
#include "engine/tokenizer/splitter.h"
#include "engine/utf8.h"

namespace lookback {
namespace {

constexpr KnownPattern kPatterns[] = {KnownPattern::kGpt2, KnownPattern::kLlama3,
                                      KnownPattern::kQwen};

std::vector<std::string> Pieces(KnownPattern pattern, std::string_view text) {
  std::vector<std::string> pieces;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = MatchEnd(pattern, text, begin);
    pieces.emplace_back(text.substr(begin, end - begin));
    if (end <= begin) break;
    begin = end;
  }
  return pieces;
}

std::vector<std::string> Pieces(const RegexSplitter& splitter, std::string_view text) {
  std::vector<size_t> ends;
  const Status status = splitter.Split(text, ends);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<std::string> pieces;
  size_t begin = 0;
  for (const size_t end : ends) {
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return pieces;
}

std::vector<std::string> Pieces(std::string_view regex, std::string_view text) {
  const auto splitter = RegexSplitter::Make(regex);
  EXPECT_TRUE(splitter.ok()) << splitter.status().message();
  return Pieces(*splitter, text);
}

using Strings = std::vector<std::string>;

// Texts in which the alternatives of the patterns meet: quotes, spaces of all kinds, letters that
// fold to ASCII, numbers that are no digits, marks, characters that Unicode 14 did not know.
std::string RandomText(std::mt19937& random) {
  static constexpr const char* kParts[] = {
      "'", "s",  "S",  "t",  "re",     "LL",     "ve",   "d",          "M",          "ſ",
      "K", "a",  "é",  "中", "1",      "23",     "²",    "Ⅷ",          "٣",          " ",
      " ", "  ", "\n", "\r", "\t",     "\u00A0", "　",   "\u180E",     "\u200B",     "\u0301",
      "!", "_",  "<",  "😀",  "\u001C", "\u0085", "𞤀", "\U00031350", "\U00010EC2", "\U00011DE0"};
  std::string text;
  for (size_t i = random() % 14; i > 0; --i) text += kParts[random() % std::size(kParts)];
  return text;
}

TEST(SplitterTest, ByHandAndPcre2CutEveryTextAlike) {
  for (const KnownPattern pattern : kPatterns) {
    const std::string_view regex = KnownPatternRegex(pattern);
    EXPECT_EQ(FindKnownPattern(regex), pattern);
    const auto splitter = RegexSplitter::Make(regex);
    ASSERT_TRUE(splitter.ok()) << splitter.status().message();
    std::mt19937 random(11);
    for (int trial = 0; trial < 20'000; ++trial) {
      const std::string text = RandomText(random);
      ASSERT_EQ(Pieces(pattern, text), Pieces(*splitter, text)) << '"' << text << '"';
    }
  }
  EXPECT_EQ(FindKnownPattern("\\s+"), std::nullopt);
}

TEST(SplitterTest, CutsAsThePatternsSay) {
  EXPECT_EQ(Pieces(KnownPattern::kGpt2, "I'm  here's\n1234!"),
            (Strings{"I", "'m", " ", " here", "'s", "\n", "1234", "!"}));
  EXPECT_EQ(Pieces(KnownPattern::kLlama3, "I'M  'ſ 12345 \n x!\n\n"),
            (Strings{"I", "'M", " ", " '", "ſ", " ", "123", "45", " \n", " x", "!\n\n"}));
  EXPECT_EQ(Pieces(KnownPattern::kQwen, "a'ſb\t\t12"),
            (Strings{"a", "'ſ", "b", "\t", "\t", "1", "2"}));
}

TEST(RegexSplitterTest, PiecesAreMatchesAndWhatLiesBetween) {
  EXPECT_EQ(Pieces(R"(\p{L}+)", "ab 1\u4e2d, é"), (Strings{"ab", " 1", "中", ", ", "é"}));
  EXPECT_EQ(Pieces(R"((?i:k|S)+)", "xKſsKy"), (Strings{"x", "KſsK", "y"}));
  EXPECT_EQ(Pieces(R"([^\s\P{N}]|[a-c]{2,})", "abcab²½ 7"), (Strings{"abcab", "²", "½", " ", "7"}));
  EXPECT_EQ(Pieces(R"(\S+?(?=\s)|\r?\n)", "ab cd"), (Strings{"ab", " cd"}));
  EXPECT_EQ(Pieces(R"([\]\-\\x]+)", "a]-\\x"), (Strings{"a", "]-\\x"}));
}

TEST(RegexSplitterTest, WhatItDoesNotReproduceIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(\p{Lu}+)", R"("\\p{Lu}")"},
      {R"([\p{M}])", R"("\\p{M}")"},
      {R"(\p{Han})", R"("\\p{Han}")"},
      {R"(\p{^L})", R"("\\p{^L}")"},
      {R"(\w+)", R"("\\w")"},
      {R"(\d)", R"("\\d")"},
      {R"(a\b)", R"("\\b")"},
      {R"((a)\1)", R"("\\1")"},
      {R"(\C)", R"("\\C")"},
      {"[一-龥]", "beyond ASCII"},
      {"é", "\"é\""},
      {"a.b", "\".\""},
      {"^a", "\"^\""},
      {"a$", "\"$\""},
      {"(?<=a)b", "\"(?<=\""},
      {"(?i)a", "\"(?i)\""},
      {"(?R)", "\"(?R)\""},
      {"(*LIMIT_MATCH=1)a", "\"(*LI\""},
      {"(?i:ss)", "\"ss\" with case ignored"},
      {"(?i:a(?:fl))", "\"fl\" with case ignored"},
      {"a**", "\"*\" after no character"},
      {"a{2}+", "\"+\" after \"{2}\""},
      {"a{3,2}", "\"{3,2}\""},
      {"a{99999}", "\"{99999}\""},
      {"a{,2}", "\"{,2}\""},
      {"(a", "not closed"},
      {"a)", "without a group"},
      {"[a", "not closed"},
      {"[[:alpha:]]", "\"[\" in a set"},
      {"[a&&b]", "in a set"},
      {"[z-a]", "a range"},
      {R"([\s\S])", ""},
      {"a*", "does not match the empty text"},
      {"", "0 bytes"},
      {"a\\", "a final backslash"},
  };
  for (const auto& [regex, says] : cases) {
    const auto made = RegexSplitter::Make(regex);
    if (std::string_view(says).empty()) {
      EXPECT_TRUE(made.ok()) << regex << made.status().message();
      continue;
    }
    ASSERT_FALSE(made.ok()) << regex;
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument) << regex;
    EXPECT_NE(made.status().message().find(says), std::string::npos)
        << regex << ": " << made.status().message();
  }
  EXPECT_FALSE(RegexSplitter::Make(std::string(kMaxRegexBytes + 1, 'a')).ok());
  EXPECT_FALSE(RegexSplitter::Make(std::string(40, '(') + "a" + std::string(40, ')')).ok());
}

TEST(RegexSplitterTest, AMatchWithoutEndIsAnError) {
  const auto splitter = RegexSplitter::Make("(?:a+)+b|a");
  ASSERT_TRUE(splitter.ok()) << splitter.status().message();
  std::vector<size_t> ends;
  const Status status = splitter->Split(std::string(64, 'a'), ends);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("steps"), std::string::npos) << status.message();
}

struct Collect final : PreTokenizer::Sink {
  void Take(std::string_view piece) override { pieces.emplace_back(piece); }
  Strings pieces;
};

Strings PreTokenize(std::vector<PreTokenizer::Step> steps, std::string_view text) {
  Collect collect;
  EXPECT_TRUE(PreTokenizer(std::move(steps)).Split(text, collect).ok());
  return std::move(collect.pieces);
}

TEST(PreTokenizerTest, EachStepCutsThePiecesOfTheOneBefore) {
  std::vector<PreTokenizer::Step> steps;
  steps.emplace_back(PreTokenizer::Digits{true});
  steps.emplace_back(PreTokenizer::PrefixSpace{});
  steps.emplace_back(KnownPattern::kGpt2);
  EXPECT_EQ(PreTokenize(std::move(steps), "ab 12\tc"),
            (Strings{" ab", " ", " 1", " 2", " ", "\t", "c"}));
  std::vector<PreTokenizer::Step> runs;
  runs.emplace_back(PreTokenizer::Digits{false});
  EXPECT_EQ(PreTokenize(std::move(runs), "a12²b"), (Strings{"a", "12²", "b"}));
  EXPECT_EQ(PreTokenize({}, ""), Strings{});
}

std::string Nfc(std::string_view text) {
  std::string out;
  AppendNfc(text, out);
  return out;
}

TEST(NfcTest, ComposesSortsAndLeavesAloneWhatUnicode9DidNotKnow) {
  EXPECT_EQ(Nfc("e\u0301 cafe\u0301"), "é café");
  EXPECT_EQ(Nfc("a\u0301\u0323"), "\u1EA1\u0301");
  EXPECT_EQ(Nfc("\u1112\u1161\u11AB"), "한");
  EXPECT_EQ(Nfc("\u212B\u0958"), "\u00C5\u0915\u093C");
  EXPECT_EQ(Nfc("<\u0338"), "≮");
  // U+1AC1 (class 220) is of Unicode 13, U+11938 composes since Unicode 13.
  EXPECT_EQ(Nfc("a\u0301\u1AC1"), "á\u1AC1");
  EXPECT_EQ(Nfc("\U00011935\U00011930"), "\U00011935\U00011930");
  EXPECT_TRUE(IsSurelyNfc("plain, é ʰ"));
  EXPECT_FALSE(IsSurelyNfc("e\u0301"));
}

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(NfcTest, AMegabyteOfAlternatingMarksTakesNoQuadraticTime) {
  std::string text = "a";
  while (text.size() < 1'000'000) text += "\u0301\u0323\u0334";
  std::string out;
  // Exchanging neighbours would take minutes.
  EXPECT_LT(Seconds([&] { AppendNfc(text, out); }), 5.0);
  EXPECT_TRUE(out.ends_with("\u0301\u0301"));
}

AddedToken Added(int32_t id, std::string content) {
  AddedToken token;
  token.id = id;
  token.content = std::move(content);
  return token;
}

std::vector<std::pair<int32_t, std::string>> Parts(const AddedTokenMatcher& matcher,
                                                   std::string_view text) {
  std::vector<std::pair<int32_t, std::string>> parts;
  for (const auto& part : matcher.Split(text)) parts.emplace_back(part.id, part.text);
  return parts;
}

using PartList = std::vector<std::pair<int32_t, std::string>>;

TEST(AddedTokenTest, TheLongestTokenWinsFromLeftToRight) {
  AddedTokenMatcher matcher;
  for (const AddedToken& token : {Added(1, "<a>"), Added(2, "<a>b"), Added(3, "b<a")}) {
    matcher.Add(token, token.content);
  }
  EXPECT_EQ(Parts(matcher, "x<a>b<a>"), (PartList{{-1, "x"}, {2, "<a>b"}, {1, "<a>"}}));
  EXPECT_EQ(Parts(matcher, "<a<a>"), (PartList{{-1, "<a"}, {1, "<a>"}}));
  EXPECT_EQ(Parts(matcher, ""), PartList{});
  EXPECT_EQ(Parts(AddedTokenMatcher(), "<a>"), (PartList{{-1, "<a>"}}));
}

TEST(AddedTokenTest, FlagsTakeSpacesAndLookAtTheNeighbours) {
  AddedToken left = Added(1, "<l>"), right = Added(2, "<r>"), word = Added(3, "w");
  left.lstrip = true;
  right.rstrip = true;
  word.single_word = true;
  AddedTokenMatcher matcher;
  for (const AddedToken& token : {left, right, word}) matcher.Add(token, token.content);
  EXPECT_EQ(Parts(matcher, "a \u3000<l> <r> \n<l>"),
            (PartList{{-1, "a"}, {1, " \u3000<l>"}, {-1, " "}, {2, "<r> \n"}, {1, "<l>"}}));
  // U+200B and U+001C are no spaces.
  EXPECT_EQ(Parts(matcher, "\u200B<l>\u001C"),
            (PartList{{-1, "\u200B"}, {1, "<l>"}, {-1, "\u001C"}}));
  EXPECT_EQ(Parts(matcher, "w ew w\u0301 w"), (PartList{{3, "w"}, {-1, " ew w\u0301 "}, {3, "w"}}));
}

TEST(AddedTokenTest, ATokenThatIsASpaceAndTakesSpacesNeedsNoQuadraticTime) {
  AddedToken space = Added(1, " ");
  space.rstrip = true;
  AddedTokenMatcher matcher;
  matcher.Add(space, " ");
  const std::string text(1'000'000, ' ');
  EXPECT_LT(Seconds([&] { EXPECT_EQ(matcher.Split(text).size(), text.size()); }), 5.0);
}

}  // namespace
}  // namespace lookback
