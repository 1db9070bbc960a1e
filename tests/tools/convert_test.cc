#include "tools/convert/convert.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <string>

#include "engine/checkpoint.h"
#include "engine/sha256.h"
#include "engine/tensor_table.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/support.h"
#include "tools/convert/hf_source.h"
#include "tools/convert/interrupt.h"

namespace lookback::tools {
namespace {

namespace fs = std::filesystem;
using testing::DemoDir;
using testing::GoldenPath;
using testing::SafetensorsParts;
using testing::TempDir;

constexpr const char* kSmall = "mhar/qwen3_full_mh_eps3";  // no tokenizer, bf16, 4 layers

/// A writable copy of a checkpoint folder.
std::string CopyFolder(const std::string& from, const TempDir& dir, const std::string& name) {
  const std::string to = dir / name;
  fs::create_directory(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    testing::WriteFile(to + "/" + entry.path().filename().string(),
                       testing::ReadFile(entry.path().string()));
  }
  return to;
}

ConvertOptions Options(const std::string& source, const std::string& out) {
  ConvertOptions options;
  options.source = source;
  options.out = out;
  return options;
}

std::unique_ptr<Checkpoint> MustConvert(const ConvertOptions& options) {
  const Result<ConvertReport> report = Convert(options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  auto checkpoint = Checkpoint::Open(options.out);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  return checkpoint.ok() ? *std::move(checkpoint) : nullptr;
}

/// Converts `source` into an empty folder and expects an error that says `says` and leaves nothing.
void ExpectRefused(ConvertOptions options, const std::string& says) {
  const TempDir out_dir;
  if (options.out.empty()) options.out = out_dir / "out";
  const Result<ConvertReport> report = Convert(options);
  ASSERT_FALSE(report.ok()) << says;
  EXPECT_NE(report.status().message().find(says), std::string::npos)
      << report.status().message() << "\nshould say: " << says;
  EXPECT_EQ(report.status().message().find('\n'), std::string::npos);
  EXPECT_TRUE(fs::is_empty(out_dir.path())) << says;
}

void ExpectSameBits(const WeightSource& source, const Checkpoint& checkpoint) {
  for (const TensorSpec& spec : ModelTensors(checkpoint.config())) {
    const auto before = source.Find(spec.name);
    const auto after = checkpoint.file().Tensor(spec.name);
    ASSERT_TRUE(before.ok() && after.ok()) << spec.name;
    ASSERT_EQ(after->elements(), before->elements()) << spec.name;
    const bool vector = spec.role == TensorSpec::kVector;
    EXPECT_EQ(after->dtype, vector ? DType::kF32 : before->dtype) << spec.name;
    std::vector<float> a(static_cast<size_t>(after->elements()));
    std::vector<float> b(a.size());
    std::vector<std::byte> bytes(a.size() * static_cast<size_t>(DTypeBytes(before->dtype)));
    ASSERT_TRUE(before->file->Read(before->offset, bytes).ok());
    ASSERT_TRUE(CopyAsF32({before->dtype, before->shape, bytes}, a).ok());
    ASSERT_TRUE(CopyAsF32(*after, b).ok());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << spec.name;
  }
}

TEST(Convert, KeepsEveryTensorOfTheDemoBitForBit) {
  const TempDir dir;
  const auto checkpoint = MustConvert(Options(DemoDir(), dir / "demo"));
  ASSERT_NE(checkpoint, nullptr);
  const auto source = OpenHfWeights(DemoDir());
  ASSERT_TRUE(source.ok());
  ExpectSameBits(*source, *checkpoint);
  for (const auto& [name, entry] : checkpoint->file().entries()) {
    EXPECT_TRUE(entry.begin % 64 == 0 || name.starts_with("lookback.pad.")) << name;
  }
  EXPECT_EQ(checkpoint->config().routing_heads, 3);
  EXPECT_EQ(checkpoint->config().windows.at(0, 3).window, 128);
  EXPECT_EQ(checkpoint->config().windows.source(), "windows.json: trained with these windows");
  EXPECT_NEAR(checkpoint->config().windows.Acr(512), 0.318, 5e-4);
  EXPECT_EQ(checkpoint->tokenizer_bytes(), testing::ReadFile(DemoDir() + "/tokenizer.model"));
  EXPECT_TRUE(checkpoint->tokenizer().add_bos);
  EXPECT_EQ(checkpoint->tokenizer().bos_id, 1);
  EXPECT_EQ(checkpoint->tokenizer().stop_ids, std::vector<int32_t>{2});
  EXPECT_EQ(checkpoint->generation().temperature, 0.8);
  EXPECT_EQ(checkpoint->generation().top_k, 40);
  std::set<std::string> inputs;
  for (const Json& input : checkpoint->source()["inputs"]) {
    const std::string name = input["name"];
    inputs.insert(name);
    EXPECT_EQ(input["sha256"], Sha256Hex(testing::ReadFile(DemoDir() + "/" + name)));
  }
  EXPECT_EQ(inputs,
            (std::set<std::string>{"config.json", "generation_config.json", "model.safetensors",
                                   "tokenizer.model", "tokenizer_config.json", "windows.json"}));
}

TEST(Convert, IsDeterministic) {
  const TempDir dir;
  ASSERT_NE(MustConvert(Options(DemoDir(), dir / "a")), nullptr);
  ASSERT_NE(MustConvert(Options(DemoDir(), dir / "b")), nullptr);
  EXPECT_EQ(testing::ReadFile(dir / "a"), testing::ReadFile(dir / "b"));
}

TEST(Convert, ReadsTheGoldenFamilies) {
  for (const char* name :
       {"llama_full_sharded", "qwen3_full_hw_h2_g4", "qwen3_block_alpha", "llama_delta_mh",
        "qwen3_hyper_n2", "qwen3_full_mh_alpha_windows", "qwen3_plain_no_head_dim"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const std::string folder = GoldenPath(std::string("mhar/") + name);
    const auto checkpoint = MustConvert(Options(folder, dir / "out"));
    ASSERT_NE(checkpoint, nullptr);
    ExpectSameBits(*OpenHfWeights(folder), *checkpoint);
    const bool windows = fs::exists(folder + "/windows.json");
    EXPECT_EQ(checkpoint->config().windows.source(),
              windows ? "windows.json" : "none in the source: every window full");
    EXPECT_EQ(checkpoint->config().windows.Acr(512) < 1.0, windows);
  }
}

TEST(Convert, TakesEveryFixtureBitForBit) {
  const auto fixtures = testing::FixturesDir();
  if (!fixtures) GTEST_SKIP() << "LOOKBACK_FIXTURES is not set";
  int converted = 0;
  for (const auto& entry : fs::directory_iterator(*fixtures + "/mhar")) {
    if (!entry.is_directory()) continue;
    const std::string folder = entry.path().string();
    SCOPED_TRACE(folder);
    const TempDir dir;
    const auto checkpoint = MustConvert(Options(folder, dir / "out"));
    ASSERT_NE(checkpoint, nullptr);
    ExpectSameBits(*OpenHfWeights(folder), *checkpoint);
    ++converted;
  }
  EXPECT_GE(converted, 37);
}

TEST(Convert, WidensOrRoundsMatricesAndKeepsVectorsF32) {
  const TempDir dir;
  ConvertOptions options = Options(GoldenPath("mhar/llama_plain_identity_base"), dir / "out");
  options.weights = WeightType::kBF16;
  const auto rounded = MustConvert(options);
  ASSERT_NE(rounded, nullptr);
  const std::string matrix = "model.layers.0.self_attn.q_proj.weight";
  const std::vector<float> before =
      testing::ReadFloats(options.source + "/model.safetensors", matrix);
  const std::vector<float> after = testing::ReadFloats(options.out, matrix);
  for (size_t i = 0; i < before.size(); ++i) {
    ASSERT_EQ(after[i], BF16ToF32(F32ToBF16(before[i])));
  }
  EXPECT_EQ(rounded->file().Tensor(matrix)->dtype, DType::kBF16);
  EXPECT_EQ(rounded->file().Tensor("model.norm.weight")->dtype, DType::kF32);
  options = Options(GoldenPath(kSmall), dir / "wide");
  options.weights = WeightType::kF32;
  const auto wide = MustConvert(options);
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(wide->file().Tensor(matrix)->dtype, DType::kF32);
  EXPECT_EQ(testing::ReadFloats(options.out, matrix),
            testing::ReadFloats(options.source + "/model.safetensors", matrix));
}

TEST(Convert, QuantizesMatricesAndKeepsTablesAtEightBits) {
  const TempDir dir;
  ConvertOptions options = Options(GoldenPath(kSmall), dir / "out");
  for (const auto type : {WeightType::kQ8, WeightType::kQ4}) {
    options.weights = type;
    const auto checkpoint = MustConvert(options);
    ASSERT_NE(checkpoint, nullptr);
    const SafetensorsFile& file = checkpoint->file();
    const std::string matrix = "model.layers.0.self_attn.q_proj.weight";
    const auto table = file.Tensor("model.embed_tokens.weight"), values = file.Tensor(matrix);
    const int64_t groups = (checkpoint->config().hidden_size + 31) / 32;
    EXPECT_EQ(table->dtype, DType::kI8);
    EXPECT_EQ(file.Tensor("model.layers.0.self_attn.v_proj.weight")->dtype, DType::kI8);
    EXPECT_EQ(values->dtype, type == WeightType::kQ8 ? DType::kI8 : DType::kU8);
    EXPECT_EQ(values->shape[1],
              type == WeightType::kQ8 ? checkpoint->config().hidden_size : 16 * groups);
    const auto scale = file.Tensor(matrix + ".scale");
    ASSERT_TRUE(scale.ok()) << scale.status().message();
    EXPECT_EQ(scale->dtype, DType::kF16);
    EXPECT_EQ(scale->shape, (std::vector<int64_t>{values->shape[0], groups}));
    EXPECT_EQ(file.Tensor("model.norm.weight")->dtype, DType::kF32);
  }
}

TEST(Convert, ReadsMisalignedF16AndShardedSources) {
  const TempDir dir;
  const std::string source = CopyFolder(GoldenPath(kSmall), dir, "src");
  // Halves of 1.0 for every bf16, in a header whose length makes all of them odd.
  SafetensorsParts parts = SafetensorsParts::Read(source + "/model.safetensors");
  for (auto& [name, entry] : parts.header.items()) {
    if (name != "__metadata__") entry["dtype"] = "F16";
  }
  for (size_t i = 0; i + 1 < parts.data.size(); i += 2) {
    parts.data[i] = 0;
    parts.data[i + 1] = 0x3C;
  }
  std::string text = parts.header.dump();
  if (text.size() % 2 == 0) text += ' ';
  fs::remove(source + "/model.safetensors");
  testing::WriteFile(source + "/model-00001-of-00001.safetensors",
                     testing::SafetensorsBytes(text, parts.data));
  Json map = Json::object();
  for (const auto& [name, entry] : parts.header.items()) {
    if (name != "__metadata__") map[name] = "model-00001-of-00001.safetensors";
  }
  testing::WriteFile(source + "/model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  const auto checkpoint = MustConvert(Options(source, dir / "out"));
  ASSERT_NE(checkpoint, nullptr);
  const std::vector<float> values = testing::ReadFloats(dir / "out", "model.embed_tokens.weight");
  EXPECT_EQ(std::set<float>(values.begin(), values.end()), std::set<float>{1.0F});
  EXPECT_EQ(checkpoint->file().Tensor("model.embed_tokens.weight")->dtype, DType::kF32);
}

TEST(Convert, TakesWindowsFromTheCommandLine) {
  const TempDir dir;
  ConvertOptions options = Options(DemoDir(), dir / "out");
  options.windows = {"48", 4};
  EXPECT_EQ(MustConvert(options)->config().windows.at(5, 5), (HeadWindow{48, 4}));
  options.windows = {"full", {}};
  EXPECT_TRUE(MustConvert(options)->config().windows.at(0, 0).full());
  testing::WriteFile(dir / "w.json", Json{{"windows", Json(6, Json(6, Json(9)))}}.dump());
  options.windows = {"", 2};
  EXPECT_EQ(MustConvert(options)->config().windows.at(0, 0), (HeadWindow{32, 2}));
}

TEST(Convert, RefusesBadWindowsAndSinks) {
  const TempDir dir;
  const auto refused = [&](const std::string& windows, std::optional<int64_t> sinks,
                           const std::string& says) {
    ConvertOptions options = Options(DemoDir(), "");
    options.windows = {windows, sinks};
    ExpectRefused(options, says);
  };
  refused("0", {}, "--windows: window: got 0");
  refused("-1", {}, "--windows: window: got -1");
  refused("99999999999999999999", {}, "--windows: window: got ");
  refused("w.csv", {}, "cannot open w.csv");
  refused("nan", {}, "cannot open nan");
  refused("", -1, "--sinks: got -1");
  refused("", int64_t{1} << 31, "--sinks: got 2147483648");
  testing::WriteFile(dir / "w.json", "{\"windows\": [[NaN]]}");
  refused(dir / "w.json", {}, "NaN");
  testing::WriteFile(dir / "w.json", "{\"windows\": [[4]]}");
  refused(dir / "w.json", {}, "expected an array of 6 layers");
}

TEST(Convert, RefusesSourcesThatDoNotMatchTheirConfig) {
  struct Case {
    std::string says;
    std::function<void(SafetensorsParts&)> spoil;
  };
  const std::string norm = "model.norm.weight";
  const Case cases[] = {
      {"tensor \"model.norm.weight\" in ",
       [&](SafetensorsParts& p) {
         p.header["model.norm.wait"] = p.header[norm];
         p.header.erase(norm);
       }},
      {"got an unknown tensor",
       [&](SafetensorsParts& p) {
         p.header["model.extra"] = {
             {"dtype", "U8"}, {"shape", {4}}, {"data_offsets", {p.data.size(), p.data.size() + 4}}};
         p.data += "1234";
       }},
      {"got [8,8], expected [64] from the configuration",
       [&](SafetensorsParts& p) {
         p.header[norm]["shape"] = {8, 8};
       }},
      {"got I16, expected F32, F16 or BF16",
       [&](SafetensorsParts& p) { p.header[norm]["dtype"] = "I16"; }},
      {"weight [5] of tensor \"model.norm.weight\"",
       [&](SafetensorsParts& p) {
         const size_t place = p.header[norm]["data_offsets"][0].get<size_t>() + 10;
         p.data[place] = static_cast<char>(0xC0);
         p.data[place + 1] = 0x7F;
       }},
      {"weight [1,3] of tensor \"model.embed_tokens.weight\"",
       [&](SafetensorsParts& p) {
         const size_t place =
             p.header["model.embed_tokens.weight"]["data_offsets"][0].get<size_t>() + 2 * (64 + 3);
         p.data[place] = static_cast<char>(0x80);
         p.data[place + 1] = static_cast<char>(0xFF);
       }},
      {"got an overlap", [&](SafetensorsParts& p) { p.header["x"] = p.header[norm]; }},
  };
  for (const Case& c : cases) {
    const TempDir dir;
    const std::string source = CopyFolder(GoldenPath(kSmall), dir, "src");
    SafetensorsParts parts = SafetensorsParts::Read(source + "/model.safetensors");
    c.spoil(parts);
    parts.Write(source + "/model.safetensors");
    ExpectRefused(Options(source, ""), c.says);
  }
}

TEST(Convert, RefusesAnF32ThatRoundsToInfinity) {
  const TempDir dir;
  const std::string source = CopyFolder(GoldenPath("mhar/llama_plain_identity_base"), dir, "src");
  SafetensorsParts parts = SafetensorsParts::Read(source + "/model.safetensors");
  const float largest = std::numeric_limits<float>::max();
  const size_t place = parts.header["model.embed_tokens.weight"]["data_offsets"][0].get<size_t>();
  std::memcpy(parts.data.data() + place, &largest, sizeof largest);
  parts.Write(source + "/model.safetensors");
  ConvertOptions options = Options(source, dir / "out");
  ASSERT_NE(MustConvert(options), nullptr);
  options.out = "";
  options.weights = WeightType::kBF16;
  ExpectRefused(options, "expected a finite BF16 number");
}

TEST(Convert, AllowsAndDropsTensorsThatNothingReads) {
  const TempDir dir;
  const std::string source = CopyFolder(GoldenPath(kSmall), dir, "src");
  SafetensorsParts parts = SafetensorsParts::Read(source + "/model.safetensors");
  parts.header["model.layers.1.mlp_null_source"] = {
      {"dtype", "U8"},
      {"shape", {4}},
      {"data_offsets", {parts.data.size(), parts.data.size() + 4}}};
  parts.data += "1234";
  parts.Write(source + "/model.safetensors");
  const auto checkpoint = MustConvert(Options(source, dir / "out"));
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_FALSE(checkpoint->file().Has("model.layers.1.mlp_null_source"));
}

TEST(Convert, RefusesAnIndexThatLiesOrLeavesTheFolder) {
  const TempDir dir;
  const std::string source = CopyFolder(GoldenPath(kSmall), dir, "src");
  fs::rename(source + "/model.safetensors", source + "/part.safetensors");
  fs::copy_file(source + "/part.safetensors", source + "/again.safetensors");
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "expected a JSON object"},
      {"{}", "weight_map in "},
      {R"({"weight_map": {}})", "weight_map in "},
      {R"({"weight_map": []})", "weight_map in "},
      {R"({"weight_map": {"a": 1}})", "got 1, expected the name of a file in the same folder"},
      {R"({"weight_map": {"a": "../part.safetensors"}})", "got \"../part.safetensors\""},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "got \"/etc/passwd\""},
      {R"({"weight_map": {"a": ".."}})", "got \"..\""},
      {R"({"weight_map": {"a": ""}})", "got \"\""},
      {R"({"weight_map": {"a": "part.safetensors\u0000"}})", "weight_map \"a\""},
      {R"({"weight_map": {"a": "absent.safetensors"}})", "cannot open"},
      {R"({"weight_map": {"a": "part.safetensors"}})", "expected that tensor in that file"},
      {R"({"weight_map": {"a": "part.safetensors", "b": "again.safetensors"}})", "expected one"},
  };
  for (const auto& [text, says] : cases) {
    testing::WriteFile(source + "/model.safetensors.index.json", text);
    ExpectRefused(Options(source, ""), says);
  }
}

TEST(Convert, RefusesFoldersWithoutWhatItNeeds) {
  const TempDir dir;
  ExpectRefused(Options(dir / "none", ""), "cannot open");
  testing::WriteFile(dir / "a.pt", "x");
  ExpectRefused(Options(dir / "a.pt", ""), "got no .yaml file");
  ExpectRefused(Options(DemoDir() + "/config.json", ""), "expected a Hugging Face folder");
  const std::string source = CopyFolder(GoldenPath(kSmall), dir, "src");
  fs::remove(source + "/model.safetensors");
  ExpectRefused(Options(source, ""), "weights in ");
  testing::WriteFile(source + "/pytorch_model.bin", "x");
  ExpectRefused(Options(source, ""), "save the model as safetensors");
  fs::remove(source + "/config.json");
  ExpectRefused(Options(source, ""), "config.json: No such file");
  ConvertOptions options = Options(GoldenPath(kSmall), "");
  options.tokenizer_folder = dir / "none";
  ExpectRefused(options, "cannot open");
}

TEST(Convert, RefusesOutputsThatAreInputsFoldersOrDevices) {
  const TempDir dir;
  const std::string source = CopyFolder(GoldenPath(kSmall), dir, "src");
  ExpectRefused(Options(source, source), "got a folder");
  ExpectRefused(Options(source, source + "/model.safetensors"), "got the input");
  fs::create_symlink(source + "/model.safetensors", dir / "link");
  ExpectRefused(Options(source, dir / "link"), "got the input");
  ExpectRefused(Options(source, dir / "none/out"), "cannot create a file beside");
  ExpectRefused(Options(source, dir / "none/"), "expected a file's name");
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  ExpectRefused(Options(source, dir / "pipe"), "got no regular file");
  EXPECT_EQ(testing::ReadFile(source + "/model.safetensors"),
            testing::ReadFile(GoldenPath(kSmall) + std::string("/model.safetensors")));
}

TEST(Convert, RefusesBadTokenizerAndGenerationSettings) {
  struct Case {
    std::string file;
    std::string text;
    std::string says;
  };
  const Case cases[] = {
      {"tokenizer_config.json", "[]", "expected a JSON object"},
      {"tokenizer_config.json", R"({"add_bos_token": "yes"})", "add_bos_token"},
      {"tokenizer_config.json", R"({"bos_token": 3})", "bos_token"},
      {"tokenizer_config.json", R"({"bos_token": {"content": 3}})", "content in bos_token"},
      {"tokenizer_config.json", R"({"bos_token": "<s>", "added_tokens_decoder": []})",
       "added_tokens_decoder"},
      {"tokenizer_config.json",
       R"({"bos_token": "<s>", "added_tokens_decoder": {"9999999": {"content": "<s>"}}})",
       "got 9999999, expected an id from 0 to "},
      {"tokenizer_config.json", R"({"chat_template": 3})", "chat_template"},
      {"generation_config.json", R"({"temperature": "hot"})", "temperature"},
      {"generation_config.json", R"({"eos_token_id": [2, 4096]})", "eos_token_id"},
      {"generation_config.json", R"({"bos_token_id": -1})", "bos_token_id"},
      {"generation_config.json", R"({)", "syntax error"},
      {"tokenizer.model", "", "got 0 bytes"},
      {"training_manifest.json", "x", "syntax error"},
  };
  for (const Case& c : cases) {
    const TempDir dir;
    const std::string source = CopyFolder(DemoDir(), dir, "src");
    testing::WriteFile(source + "/" + c.file, c.text);
    ExpectRefused(Options(source, ""), c.says);
  }
}

TEST(Convert, ReadsStopIdsTemplatesAndTokenizersFromElsewhere) {
  const TempDir dir;
  const std::string source = CopyFolder(DemoDir(), dir, "src");
  testing::WriteFile(source + "/generation_config.json", R"({"eos_token_id": [7, 2]})");
  testing::WriteFile(source + "/tokenizer_config.json",
                     R"({"add_bos_token": false, "eos_token": {"content": "</s>"},
                         "added_tokens_decoder": {"2": {"content": "</s>"}},
                         "chat_template": [{"name": "tool", "template": "t"},
                                           {"name": "default", "template": "d"}]})");
  auto checkpoint = MustConvert(Options(source, dir / "out"));
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_FALSE(checkpoint->tokenizer().add_bos);
  EXPECT_EQ(checkpoint->tokenizer().eos_id, 2);
  EXPECT_EQ(checkpoint->tokenizer().stop_ids, (std::vector<int32_t>{2, 7}));
  EXPECT_EQ(checkpoint->tokenizer().chat_template, "d");
  testing::WriteFile(source + "/chat_template.jinja", "jinja");
  fs::remove(source + "/generation_config.json");
  checkpoint = MustConvert(Options(source, dir / "out"));
  EXPECT_EQ(checkpoint->tokenizer().chat_template, "jinja");
  EXPECT_FALSE(checkpoint->generation().temperature.has_value());
  fs::create_directory(dir / "tok");
  fs::rename(source + "/tokenizer.model", dir / "tok/tokenizer.model");
  ConvertOptions options = Options(source, dir / "out");
  options.tokenizer_folder = dir / "tok";
  checkpoint = MustConvert(options);
  EXPECT_EQ(checkpoint->tokenizer().kind, "sentencepiece");
  EXPECT_TRUE(checkpoint->tokenizer().add_bos);
}

TEST(Convert, WarnsWhereAFileServesIdsOnlyAndOfMixedPartitions) {
  const TempDir dir;
  const std::string source = CopyFolder(GoldenPath(kSmall), dir, "src");
  Result<ConvertReport> report = Convert(Options(source, dir / "out"));
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->warnings.size(), 1U);
  EXPECT_NE(report->warnings[0].find("token ids only"), std::string::npos);
  testing::WriteFile(source + "/training_manifest.json",
                     R"({"args": {"mixed_partition": false, "use_mixed_partition": [0, "a"]}})");
  report = Convert(Options(source, dir / "out"));
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->warnings.size(), 2U);
  EXPECT_NE(report->warnings[1].find("mixed_partition"), std::string::npos);
  testing::WriteFile(source + "/training_manifest.json",
                     R"({"mixed_partition": null, "b": {"mixed_partition": ""}, "c": true})");
  EXPECT_EQ(Convert(Options(source, dir / "out"))->warnings.size(), 1U);
}

TEST(Convert, AnInterruptAtAnySliceLeavesNothing) {
  const TempDir dir;
  int64_t slices = 0;
  ConvertOptions options = Options(DemoDir(), dir / "out");
  options.on_progress = [&](std::string_view, int64_t, int64_t) { ++slices; };
  ASSERT_NE(MustConvert(options), nullptr);
  ASSERT_GT(slices, 90);
  for (const int signal : {SIGINT, SIGTERM}) {
    for (int64_t stop = 0; stop < slices; stop += testing::kSanitized ? 45 : 9) {
      const TempDir out_dir;
      const InterruptGuard guard;
      options.out = out_dir / "out";
      testing::WriteFile(options.out, "old");
      int64_t seen = 0;
      options.on_progress = [&](std::string_view, int64_t done, int64_t total) {
        EXPECT_LE(done, total);
        if (seen++ == stop) raise(signal);
      };
      EXPECT_EQ(Convert(options).status().code(), StatusCode::kCancelled);
      EXPECT_EQ(PendingInterrupt(), signal);
      EXPECT_EQ(testing::ReadFile(options.out), "old");
      EXPECT_EQ(std::distance(fs::directory_iterator(out_dir.path()), {}), 1);
    }
  }
  EXPECT_EQ(PendingInterrupt(), 0);
}

TEST(Convert, HalfAFileNeverLoads) {
  const TempDir dir;
  ASSERT_NE(MustConvert(Options(GoldenPath(kSmall), dir / "out")), nullptr);
  const std::string whole = testing::ReadFile(dir / "out");
  for (size_t length = 0; length < whole.size(); length += 997) {
    testing::WriteFile(dir / "half", whole.substr(0, length));
    EXPECT_FALSE(Checkpoint::Open(dir / "half").ok()) << length;
  }
}

TEST(ParseWeightType, RefusesTypesByName) {
  EXPECT_EQ(*ParseWeightType("keep"), WeightType::kKeep);
  EXPECT_EQ(*ParseWeightType("f32"), WeightType::kF32);
  EXPECT_EQ(*ParseWeightType("bf16"), WeightType::kBF16);
  EXPECT_EQ(*ParseWeightType("q8"), WeightType::kQ8);
  EXPECT_EQ(*ParseWeightType("q4"), WeightType::kQ4);
  EXPECT_EQ(ParseWeightType("fp4").status().message(),
            "--weights: got \"fp4\", expected keep, f32, bf16, q8 or q4");
}

}  // namespace
}  // namespace lookback::tools
