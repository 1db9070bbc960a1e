// AAH checkpoints and adapters, windows pinned, against the public release.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "engine/json.h"
#include "engine/safetensors.h"
#include "tests/golden/golden.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::ReadFloats;
using testing::ReadInts;

struct AahCase {
  std::string folder;
  std::string label;
  std::string base;  ///< of an adapter; "" for a checkpoint of its own

  std::string expected() const { return folder + "/expected.safetensors"; }
};

void PrintTo(const AahCase& golden, std::ostream* out) { *out << golden.label; }

std::vector<AahCase> FindAahCases() {
  std::vector<AahCase> cases;
  for (const auto& folder : testing::GoldenFolders("aah", "model.pt")) {
    cases.push_back({folder.path, folder.label, ""});
  }
  for (const auto& family : testing::GoldenFolders("aah", "base")) {
    for (const auto& entry : std::filesystem::directory_iterator(family.path)) {
      const std::string name = entry.path().filename().string();
      if (!std::filesystem::exists(entry.path() / "adapter.pt")) continue;
      cases.push_back({entry.path().string(), family.label + "_" + name, family.path + "/base"});
    }
  }
  return cases;
}

/// The golden's table as the JSON that --windows takes.
std::string TableJson(const std::string& expected) {
  const auto file = SafetensorsFile::Open(expected).value();
  const std::vector<int64_t> shape = file->Tensor("window_table")->shape;
  const auto windows = ReadInts(expected, "window_table");
  Json rows = Json::array();
  for (int64_t layer = 0; layer < shape[0]; ++layer) {
    const auto begin = windows.begin() + layer * shape[1];
    rows.push_back(std::vector<int32_t>(begin, begin + shape[1]));
  }
  return DumpJson(Json{{"windows", std::move(rows)}});
}

tools::ConvertOptions OptionsOf(const AahCase& golden) {
  tools::ConvertOptions options;
  options.source = golden.base.empty() ? golden.folder + "/model.pt" : golden.base;
  if (!golden.base.empty()) options.adapter = golden.folder + "/adapter.pt";
  return options;
}

class AahGolden : public ::testing::TestWithParam<AahCase> {
 protected:
  void SetUp() override {
    const testing::TempDir dir;
    tools::ConvertOptions options = OptionsOf(GetParam());
    options.windows.windows = dir / "table.json";
    testing::WriteFile(options.windows.windows, TableJson(GetParam().expected()));
    model_ = testing::ConvertAndOpen(std::move(options));
    ASSERT_NE(model_, nullptr);
  }
  EngineOptions Options() const {
    EngineOptions options;  // an adapter's base is rotary and may be run beyond its training
    if (!GetParam().base.empty()) options.max_context = 2048;
    return options;
  }
  std::shared_ptr<const LoadedModel> model_;
};

TEST_P(AahGolden, LogitsAgreeHoweverTheyAreComputed) {
  const std::string file = GetParam().expected();
  const auto prompt = ReadInts(file, "prompt");
  const auto logits = testing::LogitsOf(model_, prompt, Options());
  if (prompt.size() < 200) testing::ExpectSameBitsHoweverItRuns(model_, prompt, logits);
  const auto expected = ReadFloats(file, "static_logits");
  const auto vocab = static_cast<size_t>(model_->config().vocab_size);
  std::vector<int32_t> positions;
  if (SafetensorsFile::Open(file).value()->Has("static_positions")) {
    positions = ReadInts(file, "static_positions");
  }
  const size_t rows = expected.size() / vocab;
  const double slack = prompt.size() > 1000 ? 5e-4 : 2e-4;  // the README of the fixtures
  for (size_t row = 0; row < rows; ++row) {
    const size_t position = positions.empty() ? row : static_cast<size_t>(positions[row]);
    for (size_t i = 0; i < vocab; ++i) {
      const double want = expected[row * vocab + i], got = logits[position * vocab + i];
      ASSERT_TRUE(std::abs(got - want) <= slack + 1e-5 * std::abs(want))
          << "position " << position << ", id " << i << ": " << got << " for " << want;
    }
  }
}

TEST_P(AahGolden, GreedyIdsAgreeAloneAndInABatch) {
  const auto prompt = ReadInts(GetParam().expected(), "greedy_prompt");
  const auto greedy = ReadInts(GetParam().expected(), "greedy");
  EXPECT_EQ(testing::GreedyIds(model_, prompt, std::ssize(greedy)), greedy);
  EXPECT_EQ(testing::GreedyIds(model_, prompt, std::ssize(greedy), 2), greedy);
}

TEST_P(AahGolden, RoundedToBf16ItLoadsAndVerifies) {
  tools::ConvertOptions options = OptionsOf(GetParam());
  options.windows.windows = "24";
  testing::ExpectVerifiesInEveryType(std::move(options));
}

INSTANTIATE_TEST_SUITE_P(Cases, AahGolden, ::testing::ValuesIn(FindAahCases()),
                         [](const auto& info) { return info.param.label; });

TEST(AahCheckpoint, WindowsThatItFixesAreItsTableAndOthersMustBeGiven) {
  int fixed = 0, open = 0;
  for (const AahCase& golden : FindAahCases()) {
    SCOPED_TRACE(golden.label);
    const testing::TempDir dir;
    tools::ConvertOptions options = OptionsOf(golden);
    options.out = dir / "model.safetensors";
    const auto report = tools::Convert(options);
    if (!report.ok()) {
      ++open;
      EXPECT_NE(report.status().message().find("windows: got none ("), std::string::npos)
          << report.status().message();
      EXPECT_NE(report.status().message().find("FILE.csv"), std::string::npos);
      EXPECT_FALSE(std::filesystem::exists(options.out));
      continue;
    }
    ++fixed;
    // With control off the release looks at the length of each forward; the golden ran a shorter
    // one than the training's, which is the one that conversion takes and warns of.
    const auto is_length_rule = [](const std::string& warning) {
      return warning.find("window control is off") != std::string::npos;
    };
    if (std::any_of(report->warnings.begin(), report->warnings.end(), is_length_rule)) continue;
    const auto checkpoint = Checkpoint::Open(options.out).value();
    const WindowTable& table = checkpoint->config().windows;
    const auto expected = ReadInts(golden.expected(), "window_table");
    for (int64_t layer = 0; layer < table.layers(); ++layer) {
      for (int64_t head = 0; head < table.heads(); ++head) {
        const int32_t want = expected[static_cast<size_t>(layer * table.heads() + head)];
        const HeadWindow got = table.at(layer, head);
        EXPECT_TRUE(got.window == want ||
                    (got.full() && want == checkpoint->config().train_context))
            << layer << " " << head;
      }
    }
  }
  EXPECT_GE(fixed, 2);
  EXPECT_GE(open, 2);
}

TEST(AahCheckpoint, ItsOwnDiagnosticsGiveTheTable) {
  for (const AahCase& golden : FindAahCases()) {
    for (const auto& entry : std::filesystem::directory_iterator(golden.folder)) {
      const std::string path = entry.path().string();
      // The state after the last forward is the one that the golden's table pins.
      if (!path.ends_with("step110_heatmap.csv") && !path.ends_with("/full_adaptive_heatmap.csv")) {
        continue;
      }
      SCOPED_TRACE(path);
      tools::ConvertOptions options = OptionsOf(golden);
      options.windows.windows = path;
      const auto model = testing::ConvertAndOpen(std::move(options));
      ASSERT_NE(model, nullptr);
      const WindowTable& table = model->config().windows;
      const auto expected = ReadInts(golden.expected(), "window_table");
      size_t next = 0;
      for (int64_t layer = 0; layer < table.layers(); ++layer) {
        for (int64_t head = 0; head < table.heads(); ++head) {
          EXPECT_EQ(table.at(layer, head).window, expected[next++]) << layer << " " << head;
        }
      }
    }
  }
}

TEST(AahCheckpoint, APositionBeyondTheLearnedTableIsRefusedWithTheNumbers) {
  const AahCase golden = FindAahCases().front();
  tools::ConvertOptions options = OptionsOf(golden);
  options.windows.windows = "16";
  const auto model = testing::ConvertAndOpen(std::move(options));
  ASSERT_NE(model, nullptr);
  ASSERT_TRUE(model->config().gpt_style());
  const int64_t context = model->config().train_context;
  EngineOptions engine_options;
  engine_options.max_context = context + 1;
  const auto beyond = Engine::Create(model, engine_options);
  ASSERT_FALSE(beyond.ok());
  EXPECT_NE(beyond.status().message().find(StrCat("at most ", context)), std::string::npos)
      << beyond.status().message();
  const auto engine = Engine::Create(model, {}).value();
  GenerateRequest request;
  request.prompt_ids = std::vector<int32_t>(static_cast<size_t>(context), 1);
  request.max_new_tokens = 2;
  EXPECT_FALSE(engine->Resolve(std::move(request)).ok());
}

}  // namespace
}  // namespace lookback
