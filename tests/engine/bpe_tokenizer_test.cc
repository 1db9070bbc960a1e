// Byte-level BPE tokenizers beyond the goldens: what is refused and how it is named, damaged files,
// long texts, threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "engine/json.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_files.h"
#include "engine/utf8.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::GoldenPath;
using testing::ReadFile;

std::string GoldenJson(const std::string& name) {
  return ReadFile(GoldenPath("tokenizers/" + name + "/tokenizer.json"));
}

// A vocabulary of all bytes (ids 0 to 255) and a few merges.
Json SmallJson() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocab[SpellInAlphabet({&c, 1})] = byte;
  }
  Json merges = Json::array();
  for (const auto& [left, right] : {std::pair("a", "b"), {"ab", "ab"}, {"b", "c"}, {"Ġ", "a"}}) {
    vocab[std::string(left) + right] = 256 + merges.size();
    merges.push_back({left, right});
  }
  Json json;
  json["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}};
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  json["decoder"] = {{"type", "ByteLevel"}};
  json["added_tokens"] = {{{"id", 260}, {"content", "<s>"}, {"special", true}},
                          {{"id", 261}, {"content", "<t>"}, {"special", false}}};
  return json;
}

std::unique_ptr<Tokenizer> Make(const Json& json) {
  auto made = MakeBpeTokenizer(DumpJson(json), {});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? *std::move(made) : nullptr;
}

using Ids = std::vector<int32_t>;

Ids Encode(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text, false);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : Ids();
}

TEST(BpeTokenizerTest, MergesInOrderOfRankAndTakesBothForms) {
  Json json = SmallJson();
  const auto pairs = Make(json);
  EXPECT_EQ(Encode(*pairs, "ababc a ab<s>"), (Ids{257, 'c', 259, ' ', 256, 260}));
  for (Json& merge : json["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  const auto strings = Make(json);
  EXPECT_EQ(Encode(*strings, "ababc a ab<s>"), Encode(*pairs, "ababc a ab<s>"));
  EXPECT_EQ(pairs->vocab_size(), 262);
  EXPECT_EQ(pairs->Piece(259), "Ġa");
  EXPECT_EQ(pairs->Piece(262), "");
  EXPECT_EQ(pairs->FindPiece("Ġa"), 259);
  EXPECT_EQ(pairs->FindPiece("<t>"), 261);
  EXPECT_EQ(pairs->FindPiece("nothing"), std::nullopt);
}

TEST(BpeTokenizerTest, OfTwoMergesOfAPairTheLaterCounts) {
  Json json = SmallJson();
  json["model"]["merges"].push_back({"a", "b"});
  EXPECT_EQ(Encode(*Make(json), "abc"), (Ids{'a', 258}));
}

TEST(BpeTokenizerTest, BytesThatTheVocabularyLacksAreLeftOut) {
  Json json = SmallJson();
  json["model"]["vocab"].erase("z");
  json["model"]["vocab"]["zzz"] = 'z';
  EXPECT_EQ(Encode(*Make(json), "azb"), (Ids{256}));
  json["model"]["unk_token"] = "<unk>";
  EXPECT_NE(MakeBpeTokenizer(DumpJson(json), {}).status().message().find("255 of 256 bytes"),
            std::string::npos);
  Json whole = SmallJson();
  whole["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(Encode(*Make(whole), "ab"), (Ids{256}));
}

TEST(BpeTokenizerTest, SpecialTokensAreSkippedOthersShown) {
  const auto tokenizer = Make(SmallJson());
  EXPECT_EQ(tokenizer->Decode(Ids{'a', 260, 261, 999, -1, 'b'}, false), "a<s><t>b");
  EXPECT_EQ(tokenizer->Decode(Ids{'a', 260, 261, 'b'}, true), "a<t>b");
  // Half a character, cut by a special token that is shown, joined by one that is not.
  EXPECT_EQ(tokenizer->Decode(Ids{0xE4, 0xB8, 260, 0xAD}, false), "\uFFFD<s>\uFFFD");
  EXPECT_EQ(tokenizer->Decode(Ids{0xE4, 0xB8, 260, 0xAD}, true), "中");
}

// All bytes at once: U+FFFD for each maximal invalid subpart.
std::string DecodeAtOnce(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const Utf8Head head = DecodeUtf8Head(bytes);
    out += head.kind == Utf8Head::kComplete ? bytes.substr(0, head.length) : kReplacementCharacter;
    bytes.remove_prefix(head.length);
  }
  return out;
}

TEST(BpeTokenizerTest, StreamsByteByByteWhatDecodingAtOnceGives) {
  const auto tokenizer = Make(SmallJson());
  // Bytes at which the ranges of well-formed sequences begin and end.
  constexpr std::string_view kBytes =
      "a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF";
  std::mt19937 random(3);
  for (int trial = 0; trial < 5000; ++trial) {
    DecodeState state;
    std::string bytes, out;
    for (int i = 0; i < 12; ++i) {
      bytes += kBytes[random() % kBytes.size()];
      tokenizer->DecodeNext(state, static_cast<uint8_t>(bytes.back()), true, out);
      ASSERT_LE(state.pending_size, 3);
      std::string now = out;
      DecodeState end = state;
      tokenizer->DecodeFlush(end, now);
      ASSERT_EQ(now, DecodeAtOnce(bytes));
    }
  }
}

TEST(BpeTokenizerTest, RefusesTextThatIsNotUtf8AndIdsBeyondTheVocabulary) {
  const auto tokenizer = Make(SmallJson());
  for (const char* text : {"\xFF", "a\xE2\x82", "\xED\xA0\x80", "\xC0\x80"}) {
    EXPECT_EQ(tokenizer->Encode(text, false).status().code(), StatusCode::kInvalidArgument);
  }
  TokenizerInfo info;
  info.bos_id = 262;
  EXPECT_EQ(MakeBpeTokenizer(DumpJson(SmallJson()), info).status().message(),
            "bos_id: got 262, expected 0 to 261");
}

TEST(BpeTokenizerTest, TheTemplateIsAddedAlways) {
  Json json = SmallJson();
  json["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single",
          {{{"SpecialToken", {{"id", "B"}}}},
           {{"Sequence", {{"id", "A"}}}},
           {{"SpecialToken", {{"id", "E"}}}}}},
         {"special_tokens", {{"B", {{"ids", {260}}}}, {"E", {{"ids", {261, 0}}}}}}}}}};
  const auto tokenizer = Make(json);
  EXPECT_EQ(*tokenizer->Encode("", true), (Ids{260, 261, 0}));
  EXPECT_EQ(*tokenizer->Encode("<s>a", true), (Ids{260, 260, 'a', 261, 0}));
  EXPECT_EQ(*tokenizer->Encode("<s>a", false), (Ids{260, 'a'}));
}

struct Refusal {
  const char* pointer;  // where to put `value`
  Json value;
  const char* says;
};

TEST(BpeTokenizerTest, WhatWeDoNotReproduceIsRefusedByName) {
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", "\\p{Lu}"}}}, {"behavior", "Isolated"}};
  Json removed = split;
  removed["behavior"] = "Removed";
  const Refusal refusals[] = {
      {"/model/type", "WordPiece", "type of model in tokenizer.json: got \"WordPiece\""},
      {"/model/type", "Unigram", "got \"Unigram\", expected \"BPE\""},
      {"/model/byte_fallback", true, "byte_fallback in model in tokenizer.json: got true"},
      {"/model/dropout", 0.1, "dropout in model in tokenizer.json: got 0.1"},
      {"/model/end_of_word_suffix", "</w>", "end_of_word_suffix"},
      {"/model/continuing_subword_prefix", "##", "continuing_subword_prefix"},
      {"/normalizer", {{"type", "NFKC"}}, "type of normalizer in tokenizer.json: got \"NFKC\""},
      {"/normalizer",
       {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}},
       "got \"Lowercase\", expected \"NFC\" or null"},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "type of pre_tokenizer in tokenizer.json"},
      {"/pre_tokenizer", nullptr, "none of type \"ByteLevel\""},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}},
       "got \"Digits\" after \"ByteLevel\""},
      {"/pre_tokenizer", split, "got \"\\\\p{Lu}\""},
      {"/pre_tokenizer", removed, "behavior in pre_tokenizer in tokenizer.json: got \"Removed\""},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", " "}}}},
       "expected a \"Regex\""},
      {"/post_processor", {{"type", "BertProcessing"}}, "got \"BertProcessing\""},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", Json::array()}},
       "no Sequence A"},
      {"/decoder", nullptr, "decoder in tokenizer.json: got nothing"},
      {"/decoder", {{"type", "Metaspace"}}, "type of decoder in tokenizer.json"},
      {"/truncation", {{"max_length", 5}}, "truncation in tokenizer.json"},
      {"/padding", {{"length", 5}}, "padding in tokenizer.json"},
  };
  for (const Refusal& refusal : refusals) {
    Json json = SmallJson();
    json[Json::json_pointer(refusal.pointer)] = refusal.value;
    const TokenizerJsonResult result = ParseTokenizerJson(DumpJson(json));
    ASSERT_FALSE(result.parsed.ok()) << refusal.says;
    const std::string message = result.parsed.status().message();
    EXPECT_NE(message.find(refusal.says), std::string::npos) << message << '\n' << refusal.says;
    EXPECT_NE(message.find(", expected "), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_TRUE(result.unsupported) << message;
  }
}

TEST(BpeTokenizerTest, DamageIsRefusedWithItsPlace) {
  const Refusal refusals[] = {
      {"/model", nullptr, "model in tokenizer.json: got nothing"},
      {"/model/vocab", Json::array(), "vocab in model"},
      {"/model/vocab/a", -1, "id of \"a\""},
      {"/model/vocab/a", 1.5, "id of \"a\""},
      {"/model/vocab/a", 1 << 22, "id of \"a\""},
      {"/model/vocab/a", UINT64_MAX, "id of \"a\""},
      {"/model/vocab/a", 'b', "expected every id once"},
      {"/model/vocab/", 300, "a token of 0 bytes"},
      {"/model/merges", nullptr, "merges in model"},
      {"/model/merges/0", "a", "merge 0"},
      {"/model/merges/0", "a b c", "merge 0"},
      {"/model/merges/1", {"a"}, "merge 1"},
      {"/model/merges/1", {"a", "q"}, "got \"aq\", expected a token of the vocabulary"},
      {"/model/merges/1", {"a", "xyz"}, "got \"xyz\", expected a token of the vocabulary"},
      {"/model/ignore_merges", "yes", "ignore_merges"},
      {"/added_tokens", Json::object(), "added_tokens in tokenizer.json"},
      {"/added_tokens/0", "x", "added token 0"},
      {"/added_tokens/0/id", 5, "got 5, expected 260, the id that the library gives it"},
      {"/added_tokens/1/id", 300, "got 300, expected 261"},
      {"/added_tokens/1/content", "<s>", "got \"<s>\" twice"},
      {"/added_tokens/1/content", "", "0 bytes"},
      {"/added_tokens/1/content", std::string(600, 'x'), "600 bytes"},
      {"/added_tokens/1/lstrip", 1, "lstrip in added token 1"},
      {"/pre_tokenizer", {{"type", 5}}, "type in pre_tokenizer"},
      {"/pre_tokenizer", {{"type", "Sequence"}}, "pretokenizers in pre_tokenizer"},
      {"/post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "X"}}}}, {{"Sequence", {{"id", "A"}}}}}},
        {"special_tokens", {{"X", {{"ids", {777}}}}}}},
       "got 777, expected an id of the vocabulary"},
  };
  for (const Refusal& refusal : refusals) {
    Json json = SmallJson();
    json[Json::json_pointer(refusal.pointer)] = refusal.value;
    const TokenizerJsonResult result = ParseTokenizerJson(DumpJson(json));
    ASSERT_FALSE(result.parsed.ok()) << refusal.says;
    EXPECT_EQ(result.parsed.status().code(), StatusCode::kInvalidArgument);
    const std::string message = result.parsed.status().message();
    EXPECT_NE(message.find(refusal.says), std::string::npos) << message << '\n' << refusal.says;
    EXPECT_FALSE(result.unsupported) << message;
  }
  for (const char* text : {"", "[]", "{", "{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}"}) {
    EXPECT_EQ(MakeBpeTokenizer(text, {}).status().code(), StatusCode::kInvalidArgument) << text;
  }
  const std::string deep(100, '[');
  EXPECT_NE(MakeBpeTokenizer(deep, {}).status().message().find("nesting"), std::string::npos);
  const std::string large(static_cast<size_t>(kMaxTokenizerJsonBytes) + 1, ' ');
  EXPECT_NE(MakeBpeTokenizer(large, {}).status().message().find("size of"), std::string::npos);
}

TEST(BpeTokenizerTest, DamagedFilesAreRefusedOrLoadButNeverCrash) {
  const std::string bytes = GoldenJson("added_flags");
  std::mt19937 random(5);
  int loaded = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::string damaged = bytes;
    for (int flips = 0; flips < 1 + trial % 3; ++flips) {
      damaged[random() % damaged.size()] = static_cast<char>(random() % 128);
    }
    if (trial % 5 == 0) damaged.resize(random() % damaged.size());
    const auto made = MakeBpeTokenizer(damaged, {});
    if (!made.ok()) {
      EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
      continue;
    }
    ++loaded;
    (void)(*made)->Encode("The <mask> of Å, 한국 and  1234<tok>2\n", true);
    (void)(*made)->Decode(Ids{1, 200, 400, 805, 815}, true);
  }
  EXPECT_GT(loaded, 0);
}

// The heap of long pieces against the scan of short ones: the same text, cut at pieces' ends.
TEST(BpeModelTest, LongPiecesMergeAsShortOnesDo) {
  std::vector<std::string> tokens = {"a", "b", "c"};
  std::vector<BpeModel::Merge> merges;
  std::mt19937 random(7);
  while (tokens.size() < 40) {
    const auto left = static_cast<int32_t>(random() % tokens.size());
    const auto right = static_cast<int32_t>(random() % tokens.size());
    const std::string merged =
        tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)];
    if (merged.size() > 12 || std::find(tokens.begin(), tokens.end(), merged) != tokens.end())
      continue;
    merges.push_back({left, right, static_cast<int32_t>(tokens.size())});
    tokens.push_back(merged);
  }
  BpeModel model;
  model.Build(tokens, merges, false);
  // The definition: the lowest rank, the leftmost of equals, again and again.
  const auto by_definition = [&](std::string_view piece) {
    Ids ids;
    for (const char c : piece) ids.push_back(c - 'a');
    while (true) {
      size_t best = merges.size(), at = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        for (size_t rank = 0; rank < best; ++rank) {
          if (merges[rank].left != ids[i] || merges[rank].right != ids[i + 1]) continue;
          best = rank;
          at = i;
        }
      }
      if (best == merges.size()) return ids;
      ids[at] = merges[best].merged;
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
  };
  BpeModel::Scratch scratch;
  for (int trial = 0; trial < 400; ++trial) {
    std::string piece;
    for (size_t i = random() % 90; i > 0; --i) piece += static_cast<char>('a' + random() % 3);
    Ids ids;
    model.Encode(piece, scratch, ids);
    ASSERT_EQ(ids, by_definition(piece)) << piece;
  }
}

TEST(BpeTokenizerTest, AMegabyteOfOneKindTakesNoQuadraticTime) {
  for (const char* name : {"llama3_style", "smollm2_style", "added_flags"}) {
    const auto tokenizer = Make(Json::parse(GoldenJson(name)));
    for (const std::string unit : {"a", " ", "中文", "\u0301\u0323", "\n", "'", "1", " \n"}) {
      std::string text;
      while (std::ssize(text) < testing::Trials(1'000'000)) text += unit;
      const auto begin = std::chrono::steady_clock::now();
      const Ids ids = Encode(*tokenizer, text);
      const std::string back = tokenizer->Decode(ids, false);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      // A tenth of a second on an idle machine; a scan for each merge would take an hour.
      EXPECT_LT(taken.count(), 20.0) << name << ' ' << unit;
      EXPECT_GE(back.size(), text.size()) << name << ' ' << unit;
    }
  }
}

TEST(BpeTokenizerTest, ThreadsShareATokenizer) {
  const auto tokenizer = Make(Json::parse(GoldenJson("added_flags")));
  const std::string text = "In the beginning <mask> 12 cafe\u0301 \n and the word <tok>2";
  const Ids expected = Encode(*tokenizer, text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3000 && (i == 0 || result == expected); ++i) {
        result = *tokenizer->Encode(text, false);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace lookback
