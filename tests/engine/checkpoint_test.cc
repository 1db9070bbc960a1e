#include "engine/checkpoint.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "engine/sha256.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::SafetensorsParts;
using testing::TempDir;

ModelConfig Tiny() {
  ModelConfig config;
  config.vocab_size = 10;
  config.hidden_size = 4;
  config.layers = 1;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 2;
  config.ffn_size = 3;
  config.train_context = 16;
  return config;
}

/// A lookback file with a tokenizer and one further tensor.
void WriteTiny(const std::string& path) {
  SafetensorsWriter writer(path);
  writer.SetMetadata("format", "lookback");
  writer.SetMetadata("format_version", "1");
  writer.SetMetadata("config", DumpJson(Tiny().ToJson()));
  writer.SetMetadata("windows", R"({"windows": [[3, null]], "sinks": 1, "train_context": 16})");
  writer.SetMetadata("tokenizer", R"({"kind": "sentencepiece", "add_bos": true, "bos_id": 1,
      "eos_id": 2, "stop_ids": [2, 9], "chat_template": "{{ x }}"})");
  writer.SetMetadata("generation", R"({"temperature": 0.5, "top_k": 7, "top_p": 0.9})");
  writer.SetMetadata("source", R"({"converter": "test"})");
  writer.Declare("lookback.tokenizer", DType::kU8, {3});
  writer.Declare("w", DType::kF32, {2});
  ASSERT_TRUE(writer.Begin().ok());
  const std::string bytes = "spm";
  ASSERT_TRUE(writer.Append(std::as_bytes(std::span(bytes))).ok());
  const float weights[] = {1.0F, 2.0F};
  ASSERT_TRUE(writer.Append(std::as_bytes(std::span(weights))).ok());
  ASSERT_TRUE(writer.Finish().ok());
}

TEST(Checkpoint, ReadsEverythingThatTheMetadataSays) {
  const TempDir dir;
  WriteTiny(dir / "m");
  const auto checkpoint = Checkpoint::Open(dir / "m");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const Checkpoint& c = **checkpoint;
  EXPECT_EQ(c.config().ToJson(), Tiny().ToJson());
  EXPECT_EQ(c.config().windows.at(0, 0), (HeadWindow{3, 1}));
  EXPECT_TRUE(c.config().windows.at(0, 1).full());
  EXPECT_EQ(c.tokenizer().kind, "sentencepiece");
  EXPECT_EQ(c.tokenizer().bos_id, 1);
  EXPECT_EQ(c.tokenizer().stop_ids, (std::vector<int32_t>{2, 9}));
  EXPECT_EQ(c.tokenizer().chat_template, "{{ x }}");
  EXPECT_EQ(c.tokenizer_bytes(), "spm");
  EXPECT_EQ(c.generation().temperature, 0.5);
  EXPECT_EQ(c.generation().top_k, 7);
  EXPECT_FALSE(c.generation().min_p.has_value());
  EXPECT_EQ(c.source()["converter"], "test");
  EXPECT_EQ(c.hash(), Sha256Hex(c.file().header()));
  EXPECT_EQ(TokenizerInfo::FromJson(c.tokenizer().ToJson())->ToJson(), c.tokenizer().ToJson());
  EXPECT_EQ(GenerationDefaults::FromJson(c.generation().ToJson())->ToJson(),
            c.generation().ToJson());
}

struct BadMetadata {
  std::string key;
  std::string value;  ///< "" = the key is left out
  std::string says;
};

TEST(Checkpoint, RefusesBadMetadataByKey) {
  const std::string config = DumpJson(Tiny().ToJson());
  const BadMetadata cases[] = {
      {"format", "", "metadata format of"},
      {"format", "gguf", "got \"gguf\", expected \"lookback\""},
      {"format_version", "", "metadata format_version of"},
      {"format_version", "2", "got \"2\", expected \"1\""},
      {"format_version", "1.0", "got \"1.0\""},
      {"config", "", "config: got null, expected a JSON object"},
      {"config", "{", "syntax error"},
      {"config", "{}", "family in config: got nothing"},
      {"config", config + config, "syntax error"},
      {"config", std::string(5000, '['), "more than 64 levels"},
      {"windows", "", "got null, expected a JSON object"},
      {"windows", R"({"windows": [[3]]})", "windows[0]"},
      {"windows", R"({"windows": [[3, 0]]})", "windows[0][1]"},
      {"windows", R"({"windows": [[3, 4], [3, 4]]})", "expected an array of 1 layers"},
      {"tokenizer", "[]", "expected a JSON object"},
      {"tokenizer", R"({"kind": "tiktoken"})", "got \"tiktoken\""},
      {"tokenizer", R"({"kind": "sentencepiece", "add_bos": true})", "bos_id"},
      {"tokenizer", R"({"kind": "sentencepiece", "add_eos": true})", "eos_id"},
      {"tokenizer", R"({"bos_id": 10})", "bos_id in the tokenizer metadata"},
      {"tokenizer", R"({"eos_id": -1})", "eos_id"},
      {"tokenizer", R"({"eos_id": 10})", "eos_id"},
      {"tokenizer", R"({"stop_ids": 3})", "stop_ids"},
      {"tokenizer", R"({"stop_ids": [3, 10]})", "stop_ids"},
      {"tokenizer", R"({"stop_ids": ["3"]})", "stop_ids"},
      {"tokenizer", R"({"add_bos": 1})", "add_bos"},
      {"generation", "7", "expected a JSON object"},
      {"generation", R"({"temperature": -1})", "temperature in metadata generation"},
      {"generation", R"({"top_p": 1.5})", "top_p"},
      {"generation", R"({"top_k": 2.5})", "top_k"},
      {"generation", R"({"repetition_penalty": 0})", "repetition_penalty"},
      {"source", "{", "syntax error"},
  };
  const TempDir dir;
  WriteTiny(dir / "good");
  const SafetensorsParts good = SafetensorsParts::Read(dir / "good");
  for (const BadMetadata& c : cases) {
    SafetensorsParts parts = good;
    if (c.value.empty()) {
      parts.header["__metadata__"].erase(c.key);
    } else {
      parts.header["__metadata__"][c.key] = c.value;
    }
    parts.Write(dir / "bad");
    const auto checkpoint = Checkpoint::Open(dir / "bad");
    ASSERT_FALSE(checkpoint.ok()) << c.key << " " << c.value.substr(0, 80);
    EXPECT_NE(checkpoint.status().message().find(c.says), std::string::npos)
        << checkpoint.status().message();
    EXPECT_NE(checkpoint.status().message().find(dir / "bad"), std::string::npos)
        << checkpoint.status().message();
  }
}

TEST(Checkpoint, IgnoresWhatItDoesNotKnow) {
  const TempDir dir;
  WriteTiny(dir / "good");
  SafetensorsParts parts = SafetensorsParts::Read(dir / "good");
  parts.header["__metadata__"]["invented"] = "{";
  parts.header["lookback.later"] = parts.header["w"];
  parts.header.erase("w");
  parts.header["__metadata__"].erase("generation");
  parts.header["__metadata__"].erase("source");
  parts.Write(dir / "later");
  const auto checkpoint = Checkpoint::Open(dir / "later");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_FALSE((*checkpoint)->generation().temperature.has_value());
}

TEST(Checkpoint, RefusesMisalignedTensorsByName) {
  const TempDir dir;
  WriteTiny(dir / "good");
  SafetensorsParts parts = SafetensorsParts::Read(dir / "good");
  std::string text = parts.header.dump();
  text.append((64 - (8 + text.size()) % 64) % 64 + 8, ' ');
  testing::WriteFile(dir / "bad", testing::SafetensorsBytes(text, parts.data));
  EXPECT_TRUE(SafetensorsFile::Open(dir / "bad").ok());
  const auto checkpoint = Checkpoint::Open(dir / "bad");
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_NE(checkpoint.status().message().find("expected a start at a multiple of 64"),
            std::string::npos)
      << checkpoint.status().message();
}

TEST(Checkpoint, ATokenizerKindNeedsItsBytes) {
  const TempDir dir;
  WriteTiny(dir / "good");
  const SafetensorsParts good = SafetensorsParts::Read(dir / "good");
  SafetensorsParts renamed = good;
  renamed.header["lookback.other"] = renamed.header["lookback.tokenizer"];
  renamed.header.erase("lookback.tokenizer");
  renamed.Write(dir / "bad");
  EXPECT_EQ(Checkpoint::Open(dir / "bad").status().code(), StatusCode::kNotFound);
  SafetensorsParts retyped = good;
  retyped.header["lookback.tokenizer"]["dtype"] = "I8";
  retyped.Write(dir / "bad");
  EXPECT_NE(Checkpoint::Open(dir / "bad").status().message().find("got I8[3]"), std::string::npos);
}

TEST(Checkpoint, SurvivesAnyByteChangedInTheHeader) {
  const TempDir dir;
  WriteTiny(dir / "good");
  const std::string good = testing::ReadFile(dir / "good");
  std::mt19937 random(11);
  for (int i = 0; i < 600; ++i) {
    std::string changed = good;
    changed[random() % (good.size() - 128)] = static_cast<char>(random() & 0xFF);
    testing::WriteFile(dir / "bad", changed);
    const auto checkpoint = Checkpoint::Open(dir / "bad");
    if (!checkpoint.ok()) {
      EXPECT_EQ(checkpoint.status().message().find('\n'), std::string::npos);
      EXPECT_FALSE(checkpoint.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace lookback
