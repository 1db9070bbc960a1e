#include "engine/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/json.h"
#include "engine/tokenizer/sentencepiece_model.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::GoldenPath;
using testing::ReadFile;

std::string ModelPath(const std::string& name) {
  return GoldenPath("tokenizers/" + name + "/tokenizer.model");
}

TEST(SentencePieceInfoTest, WithoutAConfigBosIsAddedWhereTheModelHasOne) {
  const std::string bytes = ReadFile(ModelPath("sp_bpe"));
  const auto info = ReadSentencePieceInfo(bytes, nullptr);
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_EQ(info->kind, "sentencepiece");
  EXPECT_TRUE(info->add_bos);
  EXPECT_FALSE(info->add_eos);
  EXPECT_EQ(info->bos_id, 1);
  EXPECT_EQ(info->eos_id, 2);
  EXPECT_EQ(info->stop_ids, (std::vector<int32_t>{2}));
}

TEST(SentencePieceInfoTest, TheConfigDecides) {
  const std::string bytes = ReadFile(ModelPath("sp_bpe"));
  const Json config = {{"add_bos_token", false},
                       {"add_eos_token", true},
                       {"eos_token", {{"content", "<unk>"}}},
                       {"chat_template", "{{ x }}"}};
  const auto info = ReadSentencePieceInfo(bytes, &config);
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_FALSE(info->add_bos);
  EXPECT_TRUE(info->add_eos);
  EXPECT_EQ(info->eos_id, 0);
  EXPECT_EQ(info->chat_template, "{{ x }}");
  const Json bad = {{"add_bos_token", "yes"}};
  EXPECT_EQ(ReadSentencePieceInfo(bytes, &bad).status().code(), StatusCode::kInvalidArgument);
}

TEST(SentencePieceModelTest, DamagedModelsAreInvalidArguments) {
  const std::string bytes = ReadFile(ModelPath("sp_unigram"));
  ASSERT_TRUE(SentencePieceModel::Parse(bytes).ok());
  EXPECT_FALSE(SentencePieceModel::Parse("").ok());
  EXPECT_FALSE(SentencePieceModel::Parse("garbage").ok());
  for (size_t size = 1; size < bytes.size(); size += 997) {
    (void)SentencePieceModel::Parse(std::string_view(bytes).substr(0, size));  // must return
  }
}

// A character map of one 256-unit block, whose root is unit 0.
std::string CharsMap(const std::vector<std::pair<uint32_t, uint32_t>>& set,
                     std::string_view texts) {
  std::vector<uint32_t> units(512, 0);
  for (uint32_t i = 0; i < 512; ++i) units[i] = ~i & 0xFF;  // a label that no lookup meets
  for (const auto& [at, unit] : set) units[at] = unit;
  std::string map;
  const auto put = [&](uint32_t value) {
    for (int i = 0; i < 4; ++i) map += static_cast<char>(value >> (8 * i) & 0xFF);
  };
  put(static_cast<uint32_t>(units.size() * 4));
  for (const uint32_t unit : units) put(unit);
  return map.append(texts);
}

TEST(CharsMapTest, ALookupThatLeavesTheTableIsRefused) {
  const std::string_view texts("abc\0", 4);
  const auto unit = [](uint32_t offset, uint32_t label, bool leaf) {
    return offset << 10 | (leaf ? 0x100U : 0U) | label;
  };
  // Root 0 -> base 256; 'a' at 256 ^ 'a' -> base 256 ^ 0x80, its value there.
  const uint32_t a = 256 ^ 'a', base = 256 ^ 0x80;
  const auto with = [&](uint32_t value, uint32_t a_offset, std::string_view text) {
    return CheckCharsMap(CharsMap({{0, unit(256, 0, false)},
                                   {a, unit(a_offset, 'a', true)},
                                   {a_offset ^ a, 0x80000000U | value}},
                                  text));
  };
  EXPECT_TRUE(with(3, a ^ base, texts).ok()) << with(3, a ^ base, texts).message();
  EXPECT_FALSE(with(4, a ^ base, texts).ok());                    // value beyond the texts
  EXPECT_FALSE(with(0, a ^ base, std::string_view("abc")).ok());  // no NUL at the end
  const auto far = CharsMap({{0, unit(1024, 0, false)}}, texts);
  EXPECT_FALSE(CheckCharsMap(far).ok());
  // 'a' leads back to itself: "aaaa…" would match without end.
  const auto cycle = CharsMap({{0, unit(256, 0, false)}, {a, unit('a', 'a', false)}}, texts);
  EXPECT_FALSE(CheckCharsMap(cycle).ok());
  for (size_t size = 0; size < far.size(); size += 13)
    EXPECT_FALSE(CheckCharsMap(far.substr(0, size)).ok());
}

class TokenizerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    bytes_ = ReadFile(ModelPath(GetParam()));
    info_.bos_id = 1;
    info_.eos_id = 2;
    const bool bpe = std::string(GetParam()) == "sp_bpe";
    info_.add_bos = bpe;
    info_.add_eos = !bpe;
    auto made = MakeSentencePieceTokenizer(bytes_, info_);
    if (made.status().code() == StatusCode::kFailedPrecondition)
      GTEST_SKIP() << made.status().message();
    ASSERT_TRUE(made.ok()) << made.status().message();
    tokenizer_ = std::move(*made);
  }

  std::string bytes_;
  TokenizerInfo info_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(TokenizerTest, HoldsBackAtMostThreeBytesWhateverTheIds) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    DecodeState state;
    std::string out;
    std::vector<int32_t> ids;
    for (int i = 0; i < 40; ++i) {
      ids.push_back(static_cast<int32_t>(random() % (trial % 2 == 0 ? 2100 : 300)) - 3);
      tokenizer_->DecodeNext(state, ids.back(), true, out);
      ASSERT_LE(state.pending_size, 3);
    }
    tokenizer_->DecodeFlush(state, out);
    ASSERT_EQ(out, tokenizer_->Decode(ids, true));
  }
}

TEST_P(TokenizerTest, RefusesTextThatIsNotUtf8) {
  for (const char* text : {"\xFF", "a\xE2\x82", "\xED\xA0\x80", "\xC0\x80"}) {
    const auto result = tokenizer_->Encode(text, false);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(tokenizer_->Piece(-1), "");
  EXPECT_EQ(tokenizer_->Piece(1), "<s>");
}

TEST_P(TokenizerTest, DamagedModelsAreRefusedOrLoadButNeverCrash) {
  std::mt19937 random(17);
  for (size_t size = 0; size < bytes_.size(); size += bytes_.size() / testing::Trials(40)) {
    const auto result = MakeSentencePieceTokenizer(bytes_.substr(0, size), info_);
    EXPECT_TRUE(result.ok() || result.status().code() == StatusCode::kInvalidArgument);
  }
  int loaded = 0;
  for (int trial = 0; trial < testing::Trials(150); ++trial) {
    std::string bytes = bytes_;
    for (int flips = 0; flips < 1 + trial % 3; ++flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto result = MakeSentencePieceTokenizer(bytes, info_);
    if (!result.ok()) {
      EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
      continue;
    }
    ++loaded;
    (void)(*result)->Encode("The ﬁrst ① line, ½ of ｆｕｌｌ  Å and 한국", true);
  }
  EXPECT_GT(loaded, 0);
}

TEST_P(TokenizerTest, SpecialIdsOutsideTheVocabularyAreRefused) {
  TokenizerInfo info = info_;
  info.bos_id = 2000;
  EXPECT_EQ(MakeSentencePieceTokenizer(bytes_, info).status().message(),
            "bos_id: got 2000, expected 0 to 1999");
  info = info_;
  info.add_eos = true;
  info.eos_id.reset();
  EXPECT_FALSE(MakeSentencePieceTokenizer(bytes_, info).ok());
}

TEST_P(TokenizerTest, OpensAFileAndAFolder) {
  TokenizerInfo info;
  const auto file = OpenTokenizer(ModelPath(GetParam()), &info);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->vocab_size(), 2000);
  EXPECT_EQ(info.bos_id, 1);
  const testing::TempDir dir;
  EXPECT_EQ(OpenTokenizer(dir.path()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenTokenizer(dir / "none").status().code(), StatusCode::kNotFound);
  testing::WriteFile(dir / "tokenizer.model", bytes_);
  testing::WriteFile(dir / "tokenizer_config.json", R"({"add_bos_token": false})");
  const auto folder = OpenTokenizer(dir.path(), &info);
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_FALSE(info.add_bos);
  testing::WriteFile(dir / "tokenizer_config.json", "{");
  EXPECT_EQ(OpenTokenizer(dir.path()).status().code(), StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(SentencePiece, TokenizerTest, ::testing::Values("sp_bpe", "sp_unigram"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lookback
