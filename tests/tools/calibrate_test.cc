// Calibration by command: over text and ids, what it writes and what it refuses.
#include "tools/convert/calibrate.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/golden.h"
#include "tests/support/command_line.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/support.h"
#include "tools/commands.h"
#include "tools/convert/convert.h"
#include "tools/convert/recalibrate.h"

namespace lookback::tools {
namespace {

namespace fs = std::filesystem;
using testing::GoldenPath;
using testing::ReadFile;
using testing::SafetensorsParts;
using testing::TempDir;
using testing::WriteFile;

constexpr int64_t kTokens = 64;  // training context of the small case

std::string Case(const std::string& file) { return GoldenPath("aah/force_split_tie/" + file); }

/// A tokenizer.json whose tokens are the 256 bytes.
std::string ByteTokenizer() {
  Json json = Json::parse(ReadFile(GoldenPath("tokenizers/smollm2_style/tokenizer.json")));
  Json vocab = Json::object();
  for (const auto& [token, id] : json["model"]["vocab"].items()) {
    const auto characters = std::count_if(token.begin(), token.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    });
    if (characters == 1) vocab[token] = vocab.size();
  }
  EXPECT_EQ(vocab.size(), 256U);
  json["model"]["vocab"] = vocab;
  json["model"]["merges"] = Json::array();
  json["added_tokens"] = Json::array();
  return json.dump();
}

std::string Text(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "In the beginning was the word, and it had a window. ";
  text.resize(bytes);
  return text;
}

/// A safetensors file with one I32 tensor of zeros.
void WriteIds(const std::string& path, const std::string& name, std::vector<int64_t> shape) {
  SafetensorsWriter writer(path);
  writer.Declare(name, DType::kI32, std::move(shape));
  ASSERT_TRUE(writer.Begin().ok());
  const std::vector<std::byte> zeros(
      static_cast<size_t>(writer.file_bytes() - writer.written_bytes()));
  ASSERT_TRUE(writer.Append(zeros).ok());
  ASSERT_TRUE(writer.Finish().ok());
}

class Calibrated : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(in_ / "tokenizer");
    WriteFile(in_ / "tokenizer/tokenizer.json", ByteTokenizer());
    options_.source = Case("model.pt");
    options_.out = out_ / "aah.safetensors";
    options_.tokenizer_folder = in_ / "tokenizer";
    options_.calibration.text = in_ / "text.txt";
    WriteFile(options_.calibration.text, Text(2000));
  }
  std::unique_ptr<Checkpoint> Converted() {
    const auto report = Convert(options_);
    EXPECT_TRUE(report.ok()) << report.status().message();
    auto checkpoint = Checkpoint::Open(options_.out);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    return checkpoint.ok() ? *std::move(checkpoint) : nullptr;
  }
  void ExpectRefused(const std::string& says) {
    const auto report = Convert(options_);
    ASSERT_FALSE(report.ok()) << says;
    EXPECT_NE(report.status().message().find(says), std::string::npos)
        << report.status().message() << "\nshould say: " << says;
    EXPECT_TRUE(fs::is_empty(out_.path())) << says;
  }
  /// A run of its own with changed settings; nothing says which run the weights are of.
  void ChangeRun(const std::string& from, const std::string& to) {
    fs::create_directory(in_ / "run");
    WriteFile(in_ / "run/model.pt", ReadFile(Case("model.pt")));
    std::string yaml = ReadFile(Case("config.yaml"));
    const size_t at = yaml.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    WriteFile(in_ / "run/config.yaml", yaml.replace(at, from.size(), to));
    options_.source = in_ / "run/model.pt";
  }

  TempDir in_, out_;
  ConvertOptions options_;
};

TEST_F(Calibrated, TextIsCutIntoSequencesOneAForward) {
  options_.calibration.batches = 3;
  options_.windows.sinks = 2;
  const auto checkpoint = Converted();
  ASSERT_NE(checkpoint, nullptr);
  const WindowTable& table = checkpoint->config().windows;
  EXPECT_EQ(table.train_context(), kTokens);
  EXPECT_EQ(table.at(1, 3).sinks, 2);
  const std::string source = table.source();
  EXPECT_EQ(source.find("controller (adaptive, depth 1): 3 forwards of 1 x 64 tokens of "
                        "\"text.txt\", SHA-256 "),
            0U)
      << source;
  EXPECT_NE(source.find("; --sinks 2"), std::string::npos) << source;
  bool has_text = false;
  for (const Json& input : checkpoint->source()["inputs"]) {
    has_text = has_text || input["name"] == "text.txt";
  }
  EXPECT_TRUE(has_text);

  // The same by hand: the controller over those ids gives those windows, and the golden is theirs.
  const auto model = LoadedModel::Open(options_.out).value();
  const auto ids = model->tokenizer->Encode(Text(2000), false).value();
  CalibrationOptions options;
  options.tokens = kTokens;
  const auto calibrator =
      Calibrator::Create(*checkpoint, *controller::ReadConfig(checkpoint->file()), options).value();
  for (size_t k = 0; k < 3; ++k) {
    ASSERT_TRUE(calibrator->Forward(std::span(ids).subspan(k * kTokens, kTokens)).ok());
  }
  const auto windows = calibrator->windows();
  for (int64_t layer = 0; layer < table.layers(); ++layer) {
    for (int64_t head = 0; head < table.heads(); ++head) {
      EXPECT_EQ(table.at(layer, head).window,
                windows[static_cast<size_t>(layer)][static_cast<size_t>(head)]);
    }
  }
  const auto error = CheckGolden(model, ReadGolden(*checkpoint).value(), {});
  ASSERT_TRUE(error.ok());
  EXPECT_TRUE(error->Within(1e-6)) << error->worst;
}

TEST_F(Calibrated, OnlyAsMuchTextIsReadAsIsNeeded) {
  // Bytes that are no UTF-8 lie far behind what two forwards need.
  options_.calibration.batches = 2;
  WriteFile(options_.calibration.text, Text(100000) + "\xff\xff");
  const auto long_text = Converted();
  ASSERT_NE(long_text, nullptr);
  WriteFile(options_.calibration.text, Text(2 * kTokens));
  const auto exact = Converted();
  ASSERT_NE(exact, nullptr);
  EXPECT_EQ(long_text->config().windows.Hash(), exact->config().windows.Hash());
}

TEST_F(Calibrated, TooLittleTextSaysHowMuchIsNeeded) {
  WriteFile(options_.calibration.text, Text(511));
  ExpectRefused("text.txt: got 511 tokens, expected at least 512: 8 forwards of 64");
  options_.calibration.batches = 2;
  options_.calibration.context = 32;
  EXPECT_NE(Converted(), nullptr);
}

TEST_F(Calibrated, RefusesInputsThatItCannotUse) {
  options_.tokenizer_folder.clear();
  ExpectRefused("text.txt: got no tokenizer (");
  options_.tokenizer_folder = in_ / "tokenizer";
  options_.calibration.text = in_ / "nothing.txt";
  ExpectRefused("nothing.txt");
  options_.calibration.ids = Case("expected.safetensors");
  ExpectRefused("calibration input: got text and ids");
  options_.calibration.text.clear();
  options_.calibration.batches = 5;
  ExpectRefused("--calibrate-batches: got 5, expected at most the 4 forwards of calib_ids");
  options_.calibration.batches = 0;
  options_.calibration.context = 8;
  ExpectRefused("--calibrate-context: got 8");
  options_.calibration.context = 0;
  options_.windows.windows = "16";
  ExpectRefused("--windows: got \"16\", expected none with --calibrate");
  options_.windows.windows.clear();
  options_.window_choices = {16, 32};
  ExpectRefused("--window-choices: got a list of windows");
  options_.window_choices.clear();
  for (const auto& [name, shape, says] :
       {std::tuple<const char*, std::vector<int64_t>, const char*>{"ids", {1, 1, 8}, "calib_ids"},
        {"calib_ids", {2, 8}, "shape of calib_ids in "},
        {"calib_ids",
         {1, 4097, 64},
         "tokens of one calibration forward: got 4097 sequences of 64, expected 1 to 262144"},
        {"calib_ids", {2, 1, 65}, "at most 64: this model has a learned table"}}) {
    options_.calibration.ids = in_ / "ids.safetensors";
    WriteIds(options_.calibration.ids, name, shape);
    ExpectRefused(says);
  }
  options_.source = testing::DemoDir();
  options_.tokenizer_folder.clear();
  ExpectRefused("--calibrate: got a plain ");
}

TEST_F(Calibrated, AnAdapterTakesAsManyChoicesAsItsNetworksHave) {
  options_.source = GoldenPath("aah/adapter_qwen3_untied/base");
  options_.adapter = GoldenPath("aah/adapter_qwen3_untied/full_adaptive/adapter.pt");
  options_.tokenizer_folder.clear();
  options_.window_choices = {16, 32, 64};
  ExpectRefused("--window-choices: got 3 windows, expected 4");
}

TEST_F(Calibrated, IdsOutsideTheVocabularyAreRefusedByPlace) {
  SafetensorsParts parts = SafetensorsParts::Read(Case("expected.safetensors"));
  const auto begin = parts.header["calib_ids"]["data_offsets"][0].get<size_t>();
  // Forward 1, sequence 1, position 5.
  parts.data[begin + 4 * ((2 + 1) * kTokens + 5) + 1] = 2;
  options_.calibration.text.clear();
  options_.calibration.ids = in_ / "ids.safetensors";
  parts.Write(options_.calibration.ids);
  ExpectRefused("forward 1: calibration id at sequence 1, position 5: got ");
}

TEST_F(Calibrated, RefusesSettingsThatContradictEachOtherOrThatItDoesNotKnow) {
  ChangeRun("aah_v3_reuse_group_hierarchy: false", "aah_v3_of_tomorrow: 3");
  ExpectRefused("the unknown aah_v3_of_tomorrow");
  ChangeRun("aah_v3_hierarchy_ablation_mode: adaptive", "aah_v3_hierarchy_ablation_mode: adaptiv");
  ExpectRefused("aah_v3_hierarchy_ablation_mode");
  ChangeRun("aah_v3_build_hierarchy: true\n", "aah_v3_build_hierarchy: false\n");
  EXPECT_NE(Converted(), nullptr);
  fs::remove(options_.out);
  std::string yaml = ReadFile(in_ / "run/config.yaml");
  const std::string reuse = "aah_v3_reuse_group_hierarchy: ";
  yaml.replace(yaml.find(reuse) + reuse.size(), 5, "true ");
  WriteFile(in_ / "run/config.yaml", yaml);
  ExpectRefused("aah_v3_reuse_group_hierarchy in ");
  // With windows from elsewhere nothing asks the controller.
  options_.windows.windows = "16";
  options_.calibration = {};
  EXPECT_NE(Converted(), nullptr);
}

TEST_F(Calibrated, AControllerOfAnotherShapeIsRefusedByTensor) {
  ChangeRun("aah_v3_controller_input_mode: enriched", "aah_v3_controller_input_mode: base");
  ExpectRefused("lookback.controller.blocks.0.attn.controller.mlp.0.weight");
  ChangeRun("aah_v3_controller_arch: mlp", "aah_v3_controller_arch: deep_mlp");
  ExpectRefused("lookback.controller.blocks.0.attn.controller.mlp.4.weight\" in " +
                options_.source);
  ChangeRun("aah_v3_controller_pairwise_mode: none",
            "aah_v3_controller_pairwise_mode: joint_sibling");
  ExpectRefused("lookback.controller.blocks.0.attn.joint_sibling_scorer.mlp.0.weight");
}

class Recalibrated : public Calibrated {
 protected:
  void SetUp() override {
    Calibrated::SetUp();
    options_.calibration = {};
    options_.calibration.ids = Case("expected.safetensors");
    options_.windows.sinks = 3;
    first_ = Converted();
    ASSERT_NE(first_, nullptr);
    again_.file = options_.out;
    again_.out = out_ / "again.safetensors";
    again_.calibration = options_.calibration;
  }
  void ExpectNotRecalibrated(const std::string& says) {
    const auto result = Recalibrate(again_);
    ASSERT_FALSE(result.ok()) << says;
    EXPECT_NE(result.status().message().find(says), std::string::npos) << result.status().message();
    EXPECT_FALSE(fs::exists(again_.out));
  }

  std::unique_ptr<Checkpoint> first_;
  RecalibrateOptions again_;
};

TEST_F(Recalibrated, GivesTheSameFileOverTheSameIdsAndAnotherTableOverOthers) {
  ASSERT_TRUE(Recalibrate(again_).ok());
  const auto second = Checkpoint::Open(again_.out).value();
  EXPECT_EQ(second->config().windows.Hash(), first_->config().windows.Hash());
  EXPECT_EQ(second->config().windows.at(0, 0).sinks, 3);
  for (const auto& [name, entry] : first_->file().entries()) {
    if (name.starts_with("lookback.pad.")) continue;
    const auto before = first_->file().Tensor(name), after = second->file().Tensor(name);
    ASSERT_TRUE(after.ok()) << name;
    ASSERT_TRUE(std::equal(before->data.begin(), before->data.end(), after->data.begin(),
                           after->data.end()))
        << name;
  }
  // One forward alone chooses otherwise, and the golden goes with it.
  again_.calibration.batches = 1;
  ASSERT_TRUE(Recalibrate(again_).ok());
  const auto model = LoadedModel::Open(again_.out).value();
  EXPECT_NE(model->config().windows.Hash(), first_->config().windows.Hash());
  const auto error = CheckGolden(model, ReadGolden(*model->checkpoint).value(), {});
  ASSERT_TRUE(error.ok());
  EXPECT_TRUE(error->Within(1e-6)) << error->worst;
}

TEST_F(Recalibrated, RefusesAFileWithoutAWholeControllerAndItsOwnInput) {
  SafetensorsParts parts = SafetensorsParts::Read(again_.file);
  const std::string tensor = "lookback.controller.blocks.1.attn.controller.mlp.2.bias";
  again_.file = in_ / "broken.safetensors";
  SafetensorsParts renamed = parts;
  renamed.header["lookback.spare"] = renamed.header[tensor];
  renamed.header.erase(tensor);
  renamed.Write(again_.file);
  ExpectNotRecalibrated(tensor);
  SafetensorsParts reshaped = parts;
  reshaped.header[tensor]["shape"] = {2, 2};
  reshaped.Write(again_.file);
  ExpectNotRecalibrated(tensor);
  SafetensorsParts bare = parts;
  bare.header["__metadata__"].erase("controller");
  bare.Write(again_.file);
  ExpectNotRecalibrated("metadata controller of ");
  SafetensorsParts odd = parts;
  odd.header["__metadata__"]["controller"] = R"({"kind": "oracle"})";
  odd.Write(again_.file);
  ExpectNotRecalibrated("kind in metadata controller");
  odd.header["__metadata__"]["controller"] = R"({"kind": "aah_adapter", "regime": "grouping_off"})";
  odd.Write(again_.file);
  ExpectNotRecalibrated("an adapter's");
  again_.file = options_.out;
  again_.out = options_.out;
  EXPECT_FALSE(Recalibrate(again_).ok());
  EXPECT_TRUE(Checkpoint::Open(options_.out).ok());
}

/// Runs a command; returns its exit code and what it printed.
std::pair<int, std::string> RunTool(const std::vector<std::string>& arguments) {
  const testing::Outcome outcome = testing::RunLookback(arguments);
  return {outcome.code, outcome.out + outcome.err};
}

TEST_F(Recalibrated, TheCommandTracesAsATreeAndAsJson) {
  std::vector<std::string> command = {
      "calibrate",           again_.file, "--calibrate-ids", again_.calibration.ids, "--quiet",
      "--calibrate-batches", "2"};
  EXPECT_EQ(RunTool(command).first, 2) << "neither --out nor --trace";
  command.emplace_back("--trace");
  const auto [code, text] = RunTool(command);
  EXPECT_EQ(code, 0) << text;
  EXPECT_EQ(text.find("forward 0\nlayer 0: adaptive; clusters 2 by force\n  ├─ level 0: window "),
            0U)
      << text;
  EXPECT_NE(text.find("\nforward 1\n"), std::string::npos);
  command.emplace_back("--json");
  const auto [json_code, json_text] = RunTool(command);
  EXPECT_EQ(json_code, 0) << json_text;
  const Json json = Json::parse(json_text);
  ASSERT_EQ(json["forwards"].size(), 2U);
  const auto expected = testing::ReadInts(again_.calibration.ids, "windows");
  const Json& layers = json["forwards"][1]["layers"];
  ASSERT_EQ(layers.size(), 2U);
  for (size_t layer = 0; layer < 2; ++layer) {
    for (size_t head = 0; head < 8; ++head) {
      EXPECT_EQ(layers[layer]["windows"][head], expected[(2 + layer) * 8 + head]);
    }
  }
  EXPECT_EQ(json["table"]["windows"][1], layers[1]["windows"]);
}

}  // namespace
}  // namespace lookback::tools
