// Which tokenizer a folder has, and what the converter says of it.
#include "tools/convert/hf_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/json.h"
#include "tests/support/support.h"

namespace lookback::tools {
namespace {

using testing::GoldenPath;
using testing::ReadFile;
using testing::TempDir;
using testing::WriteFile;

std::string Golden(const std::string& name) { return ReadFile(GoldenPath("tokenizers/" + name)); }

Result<HfTokenizer> Read(const std::string& folder, int64_t vocab_size = 4096,
                         const HfGeneration& generation = {}) {
  HfModel model;
  model.config.vocab_size = vocab_size;
  return ReadHfTokenizer(folder, model, generation);
}

std::string Refusal(const std::string& folder, int64_t vocab_size = 4096) {
  const auto read = Read(folder, vocab_size);
  EXPECT_FALSE(read.ok());
  return read.ok() ? "" : read.status().message();
}

TEST(HfTokenizer, TokenizerJsonSaysWhatItAddsAndTheConfigNamesTheRest) {
  const auto read = Read(GoldenPath("tokenizers/llama3_style"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->info.kind, "bpe");
  EXPECT_TRUE(read->info.add_bos);
  EXPECT_FALSE(read->info.add_eos);
  EXPECT_EQ(read->info.bos_id, 2001);
  EXPECT_EQ(read->info.eos_id, 2009);
  EXPECT_EQ(read->info.stop_ids, std::vector<int32_t>{2009});
  EXPECT_EQ(read->bytes, Golden("llama3_style/tokenizer.json"));
  EXPECT_EQ(read->inputs.size(), 2U);
  EXPECT_EQ(read->warning, "");
  HfGeneration generation;
  generation.eos_ids = {7, 2009};
  EXPECT_EQ(Read(GoldenPath("tokenizers/llama3_style"), 4096, generation)->info.stop_ids,
            (std::vector<int32_t>{2009, 7}));
}

TEST(HfTokenizer, TheConfigDoesNotMakeATokenizerJsonAddABos) {
  const TempDir dir;
  WriteFile(dir / "tokenizer.json", Golden("smollm2_style/tokenizer.json"));
  WriteFile(dir / "tokenizer_config.json",
            R"({"add_bos_token": true, "bos_token": "<|im_start|>", "chat_template": "t"})");
  const auto read = Read(dir.path());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_FALSE(read->info.add_bos);
  EXPECT_EQ(read->info.bos_id, 1);
  EXPECT_EQ(read->info.chat_template, "t");
}

TEST(HfTokenizer, ADamagedOrForeignTokenizerIsRefusedWithItsFile) {
  const TempDir dir;
  const std::string path = dir / "tokenizer.json";
  WriteFile(path, "{}");
  EXPECT_EQ(Refusal(dir.path()), path + ": model in tokenizer.json: got nothing, expected a BPE");
  Json json = Json::parse(Golden("smollm2_style/tokenizer.json"));
  json["model"]["byte_fallback"] = true;
  WriteFile(path, json.dump());
  EXPECT_EQ(Refusal(dir.path()),
            path + ": byte_fallback in model in tokenizer.json: got true, expected false");
  WriteFile(path, Golden("smollm2_style/tokenizer.json"));
  EXPECT_EQ(Refusal(dir.path(), 1999),
            path + ": got 2000 tokens, expected at most 1999, vocab_size in config.json");
  EXPECT_TRUE(Read(dir.path(), 2000).ok());
  WriteFile(dir / "tokenizer.model", "garbage");
  EXPECT_TRUE(Read(dir.path()).ok());
  std::filesystem::remove(path);
  EXPECT_TRUE(Refusal(dir.path()).starts_with(dir / "tokenizer.model: "));
}

TEST(HfTokenizer, OfTwoTokenizersTheOneThatWeReproduceIsTaken) {
  const TempDir dir;
  WriteFile(dir / "tokenizer.model", Golden("sp_bpe/tokenizer.model"));
  WriteFile(dir / "tokenizer.json", Golden("smollm2_style/tokenizer.json"));
  EXPECT_EQ(Read(dir.path())->info.kind, "bpe");
  Json json = Json::parse(Golden("smollm2_style/tokenizer.json"));
  json["model"]["byte_fallback"] = true;
  WriteFile(dir / "tokenizer.json", json.dump());
  HfGeneration generation;
  generation.bos_id = 1;
  const auto read = Read(dir.path(), 2000, generation);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->info.kind, "sentencepiece");
  EXPECT_EQ(read->bytes, Golden("sp_bpe/tokenizer.model"));
  EXPECT_NE(Refusal(dir.path(), 1999).find("got 2000 tokens"), std::string::npos);
  json["model"]["byte_fallback"] = false;
  json["model"]["merges"][0] = "damage";
  WriteFile(dir / "tokenizer.json", json.dump());
  EXPECT_NE(Refusal(dir.path()).find("merge 0"), std::string::npos);
}

// vocab.json and merges.txt that say what smollm2_style's tokenizer.json says.
void WriteGpt2Files(const TempDir& dir) {
  const Json json = Json::parse(Golden("smollm2_style/tokenizer.json"));
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : json["model"]["merges"]) {
    merges += merge.is_string() ? merge.get<std::string>()
                                : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    merges += "\r\n";
  }
  WriteFile(dir / "vocab.json", json["model"]["vocab"].dump());
  WriteFile(dir / "merges.txt", merges);
}

TEST(HfTokenizer, VocabAndMergesBecomeATokenizerJson) {
  const TempDir dir;
  WriteGpt2Files(dir);
  auto read = Read(dir.path());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->info.kind, "bpe");
  EXPECT_EQ(read->inputs.size(), 2U);
  const auto whole = OpenTokenizer(GoldenPath("tokenizers/smollm2_style"));
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  // The end of text is special, as it is in the vocabulary; nothing cuts digits apart.
  const std::string text = "The house, and the word<|endoftext|>\n";
  EXPECT_EQ(*read->tokenizer->Encode(text, true), *(*whole)->Encode(text, true));

  WriteFile(dir / "special_tokens_map.json",
            R"({"bos_token": {"content": "<s>"}, "additional_special_tokens": ["<x>"]})");
  WriteFile(dir / "added_tokens.json", R"({"<x>": 2001, "<s>": 2000})");
  WriteFile(dir / "tokenizer_config.json",
            R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "bos_token": "<s>",
                "pad_token": "<pad>", "eos_token": "<|endoftext|>"})");
  read = Read(dir.path());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read->info.add_bos);
  EXPECT_EQ(read->info.bos_id, 2000);
  EXPECT_EQ(read->info.eos_id, 0);
  EXPECT_EQ(read->inputs.size(), 5U);
  EXPECT_EQ(*read->tokenizer->Encode("<x><pad>", true), (std::vector<int32_t>{2000, 2001, 2002}));
  // What the file carries loads again as it is.
  const auto again = MakeBpeTokenizer(read->bytes, read->info);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*(*again)->Encode(text, true), *read->tokenizer->Encode(text, true));
}

TEST(HfTokenizer, OtherUsesOfVocabAndMergesAreRefused) {
  const TempDir dir;
  WriteGpt2Files(dir);
  const std::pair<const char*, const char*> configs[] = {
      {R"({"tokenizer_class": "CLIPTokenizer"})", "got \"CLIPTokenizer\""},
      {R"({"add_bos_token": true, "bos_token": 5})", "bos_token in tokenizer_config.json: got 5"},
      {R"({"added_tokens_decoder": {"x": {"content": "a"}}})", "got \"x\", expected an id"},
      {R"({"added_tokens_decoder": {"3000": {"content": "<y>"}}})", "got 3000, expected 2000"},
      {R"([])", "expected a JSON object"},
  };
  for (const auto& [config, says] : configs) {
    WriteFile(dir / "tokenizer_config.json", config);
    EXPECT_NE(Refusal(dir.path()).find(says), std::string::npos) << Refusal(dir.path());
  }
  WriteFile(dir / "tokenizer_config.json", R"({"tokenizer_class": "Qwen2TokenizerFast"})");
  const auto read = Read(dir.path());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read->tokenizer->Encode("e\u0301", false), *read->tokenizer->Encode("é", false));
  WriteFile(dir / "vocab.json", "[]");
  EXPECT_NE(Refusal(dir.path()).find("vocab.json"), std::string::npos);
}

TEST(HfTokenizer, OpensEveryKindOfFile) {
  TokenizerInfo info;
  for (const char* path : {"smollm2_style", "smollm2_style/tokenizer.json"}) {
    const auto opened = OpenTokenizer(GoldenPath(std::string("tokenizers/") + path), &info);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    EXPECT_EQ(info.kind, "bpe");
    EXPECT_EQ((*opened)->vocab_size(), 2000);
  }
  const TempDir dir;
  WriteGpt2Files(dir);
  EXPECT_EQ((*OpenTokenizer(dir.path(), &info))->vocab_size(), 2000);
  WriteFile(dir / "x.json", "{\"model\": 1}");
  EXPECT_EQ(OpenTokenizer(dir / "x.json").status().message(),
            (dir / "x.json") + ": model in tokenizer.json: got 1, expected a JSON object");
}

}  // namespace
}  // namespace lookback::tools
