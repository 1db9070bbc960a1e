#include "tests/support/command_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/json.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/support.h"
#include "tools/commands.h"
#include "tools/inspect.h"
#include "tools/progress.h"
#include "tools/windows_view.h"

namespace lookback::tools {
namespace {

using testing::Outcome;
using testing::TempDir;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

Outcome Lookback(const std::vector<std::string>& arguments) {
  return testing::RunLookback(arguments);
}

int64_t Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(CommandLine, ConvertsInspectsAndDrawsTheDemo) {
  const TempDir dir;
  const std::string file = dir / "demo.safetensors";
  const Outcome converted = Lookback({"convert", testing::DemoDir(), "-o", file});
  EXPECT_EQ(converted.code, 0) << converted.err;
  EXPECT_EQ(converted.out, "");
  EXPECT_NE(converted.err.find("wrote "), std::string::npos);
  EXPECT_EQ(Lookback({"convert", testing::DemoDir(), "-o", file, "--quiet"}).err, "");

  const Outcome inspected = Lookback({"inspect", file, "--json", "--context", "4096"});
  ASSERT_EQ(inspected.code, 0) << inspected.err;
  const Json json = Json::parse(inspected.out);
  EXPECT_EQ(json["parameters"], 3227328);
  EXPECT_NEAR(json["at_train_context"]["acr"].get<double>(), 0.318, 5e-4);
  const Json kv = json["at_train_context"]["kv_bytes"]["bf16"];
  EXPECT_NEAR(kv["windowed"].get<double>() / kv["full"].get<double>(), 0.542, 5e-4);
  EXPECT_EQ(kv["full"], 6 * 3 * 512 * 2 * 32 * 2);
  EXPECT_EQ(json["at_context"]["context"], 4096);
  EXPECT_EQ(json["config"]["residual"], "full_mh");
  EXPECT_EQ(json["tokenizer"]["kind"], "sentencepiece");
  EXPECT_EQ(json["hash"].get<std::string>().size(), 64U);

  const Outcome text = Lookback({"inspect", file, "--context", "4096"});
  EXPECT_EQ(text.code, 0);
  for (const char* says : {"3227328", "full_mh", "BF16", "ACR 0.318", "at 4096 tokens", "▓",
                           "model.safetensors, 6.5 MB"}) {
    EXPECT_NE(text.out.find(says), std::string::npos) << says << "\n" << text.out;
  }
  EXPECT_EQ(text.out.find('\033'), std::string::npos);

  const Outcome windows = Lookback({"windows", file});
  EXPECT_EQ(windows.code, 0);
  EXPECT_EQ(Lines(windows.out), 1 + 6 + 3) << windows.out;
  const Outcome table = Lookback({"windows", file, "--json"});
  EXPECT_EQ(Json::parse(table.out)["windows"][0][3], 128);
  testing::WriteFile(dir / "w.json", table.out);
  EXPECT_EQ(
      Lookback({"convert", testing::DemoDir(), "-o", dir / "again", "--windows", dir / "w.json"})
          .code,
      0);
}

TEST(CommandLine, EveryErrorIsOneLineOnStderrAndExitCodeTwo) {
  const TempDir dir;
  testing::WriteFile(dir / "junk", "not a safetensors file at all");
  const std::string demo = testing::DemoDir();
  const std::vector<std::string> cases[] = {
      {},
      {"unknown"},
      {"convert"},
      {"convert", demo},
      {"convert", demo, "-o", dir / "x", "--weights", "q5"},
      {"convert", demo, "-o", dir / "x", "--weights", "fp4"},
      {"convert", demo, "-o", dir / "x", "--adapter", "a.pt"},
      {"convert", demo, "-o", dir / "x", "--config", "c.yaml"},
      {"convert", demo, "-o", dir / "x", "--sinks", "many"},
      {"convert", demo, "-o", dir / "x", "--windows", "0"},
      {"convert", dir / "none\n", "-o", dir / "x"},
      {"inspect"},
      {"inspect", dir / "none"},
      {"inspect", dir / "junk"},
      {"inspect", demo + "/model.safetensors"},
      {"inspect", dir / "junk", "--context", "0"},
      {"windows", dir / "junk"},
      {"windows", dir / "junk", "--context", "-4"},
  };
  for (const std::vector<std::string>& arguments : cases) {
    const Outcome outcome = Lookback(arguments);
    const std::string shown = arguments.empty() ? "" : arguments.front();
    EXPECT_EQ(outcome.code, 2) << shown;
    EXPECT_EQ(outcome.out, "") << shown;
    EXPECT_EQ(Lines(outcome.err), 1) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("lookback: ")) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(dir / "x"));
  }
}

TEST(CommandLine, HelpShowsExamples) {
  for (const char* command : {"convert", "inspect", "windows"}) {
    const Outcome outcome = Lookback({command, "--help"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find("Examples:\n  lookback "), std::string::npos) << outcome.out;
  }
}

TEST(Inspect, RefusesFilesWhoseTensorsDoNotFitTheConfig) {
  const TempDir dir;
  ASSERT_EQ(Lookback({"convert", testing::DemoDir(), "-o", dir / "good", "--quiet"}).code, 0);
  const auto good = testing::SafetensorsParts::Read(dir / "good");
  const auto refused = [&](const testing::SafetensorsParts& parts, const std::string& says) {
    parts.Write(dir / "bad");
    const auto report = InspectReport(dir / "bad", true, 0, false);
    ASSERT_FALSE(report.ok()) << says;
    EXPECT_NE(report.status().message().find(says), std::string::npos) << report.status().message();
  };
  auto parts = good;
  parts.header["lookback.later"] = parts.header["model.norm.weight"];
  parts.header.erase("model.norm.weight");
  refused(parts, "tensor \"model.norm.weight\" in ");
  parts = good;
  parts.header["model.norm.weight"]["shape"] = {2, 96};
  refused(parts, "got [2,96], expected [192]");
  parts = good;
  parts.header["model.norm.weight"]["dtype"] = "I32";
  refused(parts, "got I32, expected F32");
  parts = good;
  Json config = Json::parse(parts.header["__metadata__"]["config"].get<std::string>());
  config["layers"] = 4096;
  parts.header["__metadata__"]["config"] = config.dump();
  Json rows = Json::array();
  for (int i = 0; i < 4096; ++i) rows.push_back(Json::array({1, 1, 1, 1, 1, 1}));
  parts.header["__metadata__"]["windows"] = Json{{"windows", rows}}.dump();
  refused(parts, "layers in config of ");
  EXPECT_TRUE(WindowsReport(dir / "bad", false, 0, true).ok());
  EXPECT_FALSE(WindowsReport(dir / "bad", false, -1, true).ok());
  EXPECT_FALSE(InspectReport(dir / "good", false, -1, true).ok());
}

TEST(Inspect, RefusesQuantizedTensorsWithoutTheirScales) {
  const TempDir dir;
  ASSERT_EQ(
      Lookback({"convert", testing::DemoDir(), "-o", dir / "good", "--quiet", "--weights", "q4"})
          .code,
      0);
  const std::string matrix = "model.layers.0.mlp.up_proj.weight", scale = matrix + ".scale";
  const auto refused = [&](const std::function<void(Json&)>& spoil, const std::string& says) {
    auto parts = testing::SafetensorsParts::Read(dir / "good");
    spoil(parts.header);
    parts.Write(dir / "bad");
    const auto report = InspectReport(dir / "bad", true, 0, false);
    ASSERT_FALSE(report.ok()) << says;
    EXPECT_NE(report.status().message().find(says), std::string::npos) << report.status().message();
  };
  refused(
      [&](Json& header) {
        header["lookback.later"] = header[scale];
        header.erase(scale);
      },
      "tensor \"" + scale + "\" in ");
  refused([&](Json& header) { header[scale]["dtype"] = "BF16"; }, "got BF16, expected F16");
  refused([&](Json& header) { std::swap(header[scale]["shape"][0], header[scale]["shape"][1]); },
          "shape of " + scale);
  refused([&](Json& header) { header[matrix]["dtype"] = "I8"; }, "shape of " + matrix);
  refused([&](Json& header) { header[matrix]["dtype"] = "BOOL"; },
          "expected F32, BF16, I8 (q8) or U8 (q4)");
}

TEST(HeatMap, ShadesByTheLogarithmAndGathersManyHeads) {
  const Json json = {{"windows", {{1, 8, 64, 511, 512, nullptr}}}};
  const auto table = WindowTable::FromJson(json, 1, 6, "w");
  ASSERT_TRUE(table.ok());
  const std::string map = HeatMap(*table, 512, false);
  EXPECT_NE(map.find("··░░▒▒▓▓████  ACR "), std::string::npos) << map;
  EXPECT_NE(HeatMap(*table, 512, true).find("\033[38;5;226m█"), std::string::npos);
  const std::string wide = HeatMap(WindowTable::Full(1, 1000), 512, false);
  EXPECT_NE(wide.find("several to a cell"), std::string::npos);
  EXPECT_LT(wide.size(), 700U);
  EXPECT_EQ(WindowText(*table), "    0     1    8   64  511  512 full\n");
  EXPECT_EQ(Lines(WindowText(WindowTable::Full(1, 40))), 3);
}

TEST(SequenceKvBytes, CountsKeysAndValuesOfEveryKvHead) {
  ModelConfig config;
  config.layers = 1;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  const Json json = {{"windows", {{4, 10, 20, nullptr}}}, {"sinks", 2}};
  config.windows = *WindowTable::FromJson(json, 1, 4, "w");
  EXPECT_EQ(SequenceKvBytes(config, 100, 2).windowed, (12 + 100) * 2 * 8 * 2);
  EXPECT_EQ(SequenceKvBytes(config, 100, 2).full, 200 * 2 * 8 * 2);
  config.layers = config.kv_heads = config.heads = config.head_dim = 4096;
  config.windows = WindowTable::Full(4096, 4096);
  EXPECT_EQ(SequenceKvBytes(config, int64_t{1} << 31, 4).full, INT64_MAX);
}

TEST(HumanBytes, UsesDecimalUnits) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(1500), "1.5 kB");
  EXPECT_EQ(HumanBytes(6'464'576), "6.5 MB");
  EXPECT_EQ(HumanBytes(999'999), "1.0 MB");
  EXPECT_EQ(HumanBytes(16'000'000'000), "16.0 GB");
}

TEST(Progress, WritesPlainLinesWhereThereIsNoTerminal) {
  CaptureStderr();
  {
    Progress progress(false);
    for (int i = 1; i <= 10; ++i) progress.Update("hashing", i * 100, 1000);
    progress.Update("writing", 5, 10);
  }
  const std::string lines = GetCapturedStderr();
  EXPECT_EQ(lines, "hashing 1.0 kB\nwriting 10 B\n");
  CaptureStderr();
  {
    Progress quiet(true);
    quiet.Update("hashing", 1, 2);
  }
  EXPECT_EQ(GetCapturedStderr(), "");
}

}  // namespace
}  // namespace lookback::tools
