// The tokenizers against what the original libraries computed, text by text and piece by piece.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "engine/json.h"
#include "engine/tokenizer/char_class.h"
#include "engine/tokenizer/nfc.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_files.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

namespace fs = std::filesystem;
using testing::GoldenPath;
using testing::ReadFile;

/// The folder of one set of goldens: of all there are where LOOKBACK_FIXTURES is set, else of those
/// that the repository carries. "" where it is in neither.
std::string GoldenFolder(const std::string& name) {
  const auto fixtures = testing::FixturesDir();
  const std::string folder =
      fixtures ? *fixtures + "/tokenizers/" + name : GoldenPath("tokenizers/" + name);
  return fs::exists(folder) ? folder : "";
}

std::vector<Json> ReadLines(const std::string& path) {
  std::istringstream in(ReadFile(path));
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

struct Golden {
  const char* name;
  const char* folder;
  enum Source { kJson, kSentencePieceBpe, kSentencePieceUnigram, kVocabAndMerges } source;
};

void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.name; }

Result<std::unique_ptr<Tokenizer>> Load(const Golden& golden, const std::string& folder) {
  TokenizerInfo info;
  switch (golden.source) {
    case Golden::kJson:
      return MakeBpeTokenizer(ReadFile(folder + "/tokenizer.json"), info);
    case Golden::kVocabAndMerges: {
      const std::string merges = ReadFile(folder + "/merges.txt");
      Gpt2Files files;
      files.vocab = Json::parse(ReadFile(folder + "/vocab.json"));
      files.merges = merges;
      LOOKBACK_ASSIGN_OR_RETURN(const Json json, TokenizerJsonOfGpt2Files(files));
      return MakeBpeTokenizer(DumpJson(json), info);
    }
    case Golden::kSentencePieceBpe:
    case Golden::kSentencePieceUnigram:
      break;
  }
  info.bos_id = 1;
  info.eos_id = 2;
  info.add_bos = golden.source == Golden::kSentencePieceBpe;
  info.add_eos = !info.add_bos;
  return MakeSentencePieceTokenizer(ReadFile(folder + "/tokenizer.model"), info);
}

class TokenizerGolden : public ::testing::TestWithParam<Golden> {
 protected:
  void SetUp() override {
    folder_ = GoldenFolder(GetParam().folder);
    if (folder_.empty()) GTEST_SKIP() << "LOOKBACK_FIXTURES is not set";
    auto made = Load(GetParam(), folder_);
    if (made.status().code() == StatusCode::kFailedPrecondition)
      GTEST_SKIP() << made.status().message();
    ASSERT_TRUE(made.ok()) << made.status().message();
    tokenizer_ = *std::move(made);
  }

  std::string folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(TokenizerGolden, EqualsTheLibraryOnEveryText) {
  int lines = 0;
  for (const Json& line : ReadLines(folder_ + "/golden.jsonl")) {
    const auto text = line["text"].get<std::string>();
    const auto ids = line["ids"].get<std::vector<int32_t>>();
    const auto special = line["ids_special"].get<std::vector<int32_t>>();
    SCOPED_TRACE(line.dump().substr(0, 300));
    const auto encoded = tokenizer_->Encode(text, false);
    ASSERT_TRUE(encoded.ok()) << encoded.status().message();
    EXPECT_EQ(*encoded, ids);
    EXPECT_EQ(*tokenizer_->Encode(text, true), special);
    EXPECT_EQ(tokenizer_->Decode(ids, false), line["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer_->Decode(special, true), line["decoded_skip_special"].get<std::string>());
    ++lines;
  }
  EXPECT_GT(lines, 400);
}

TEST_P(TokenizerGolden, StreamsThePiecesOfEveryLine) {
  int lines = 0, after_prompt = 0;
  for (const Json& line : ReadLines(folder_ + "/stream.jsonl")) {
    SCOPED_TRACE(line.dump().substr(0, 300));
    const auto ids = line["ids"].get<std::vector<int32_t>>();
    for (const bool skip_special : {false, true}) {
      const Json& pieces = line[skip_special ? "pieces_skip_special" : "pieces"];
      DecodeState state;
      std::string out;
      if (line.contains("prompt_ids")) {
        for (const Json& id : line["prompt_ids"]) {
          tokenizer_->DecodeNext(state, id.get<int32_t>(), skip_special, out);
        }
        ++after_prompt;
      }
      ASSERT_EQ(pieces.size(), ids.size() + 1);
      for (size_t i = 0; i <= ids.size(); ++i) {
        out.clear();
        if (i < ids.size()) {
          tokenizer_->DecodeNext(state, ids[i], skip_special, out);
        } else {
          tokenizer_->DecodeFlush(state, out);
        }
        EXPECT_EQ(out, pieces[i].get<std::string>()) << "piece " << i;
      }
    }
    ++lines;
  }
  EXPECT_GT(lines, 20);
  EXPECT_GT(after_prompt, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, TokenizerGolden,
    ::testing::Values(Golden{"sp_bpe", "sp_bpe", Golden::kSentencePieceBpe},
                      Golden{"sp_unigram", "sp_unigram", Golden::kSentencePieceUnigram},
                      Golden{"llama3_style", "llama3_style", Golden::kJson},
                      Golden{"smollm2_style", "smollm2_style", Golden::kJson},
                      Golden{"added_flags", "added_flags", Golden::kJson},
                      Golden{"qwen3", "qwen3", Golden::kJson},
                      Golden{"gpt2", "gpt2", Golden::kJson},
                      Golden{"gpt2_vocab_and_merges", "gpt2", Golden::kVocabAndMerges}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(CharClassGolden, EqualsTheLibraryOnEveryCodePoint) {
  const Json json = Json::parse(ReadFile(GoldenPath("tokenizers/unicode_classes.json")));
  const auto set_of = [&](const char* key) {
    std::vector<bool> set(0x110000, false);
    for (const Json& range : json[key]) {
      const auto end = std::stoul(range[1].get<std::string>(), nullptr, 16);
      for (auto c = std::stoul(range[0].get<std::string>(), nullptr, 16); c <= end; ++c)
        set[c] = true;
    }
    return set;
  };
  const auto letters = set_of("L"), numbers = set_of("N"), spaces = set_of("space");
  const auto digits = set_of("digits_pretokenizer");
  for (char32_t c = 0; c < 0x110000; ++c) {
    const CharProperties properties(c);
    const CharClass expected = letters[c]   ? CharClass::kLetter
                               : numbers[c] ? CharClass::kNumber
                               : spaces[c]  ? CharClass::kSpace
                                            : CharClass::kOther;
    ASSERT_EQ(properties.char_class(), expected) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(properties.is_digit(), digits[c]) << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(NfcGolden, EqualsTheLibraryOnEveryCodePointAlone) {
  const Json json = Json::parse(ReadFile(GoldenPath("tokenizers/unicode_classes.json")));
  std::vector<bool> changes(0x110000, false);
  for (const Json& range : json["nfc_changes_alone"]) {
    const auto end = std::stoul(range[1].get<std::string>(), nullptr, 16);
    for (auto c = std::stoul(range[0].get<std::string>(), nullptr, 16); c <= end; ++c)
      changes[c] = true;
  }
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text, normalized;
    AppendUtf8(c, text);
    AppendNfc(text, normalized);
    ASSERT_EQ(normalized != text, changes[c]) << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(NfcGolden, EqualsTheLibraryOnRunsOfMarks) {
  int lines = 0;
  for (const Json& line : ReadLines(GoldenPath("tokenizers/nfc.jsonl"))) {
    std::string normalized;
    AppendNfc(line["text"].get<std::string>(), normalized);
    EXPECT_EQ(normalized, line["nfc"].get<std::string>()) << line.dump();
    ++lines;
  }
  EXPECT_GT(lines, 300);
}

}  // namespace
}  // namespace lookback
