// The controllers of AAH checkpoints and adapters, forward after forward, against the public
// release.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "engine/calibration.h"
#include "engine/json.h"
#include "engine/safetensors.h"
#include "tests/golden/golden.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::ReadFloats;
using testing::ReadInts;

constexpr double kNearTie = 1e-5;  // below this the release itself could have gone the other way

struct ControllerCase {
  std::string folder;
  std::string label;
  std::string base;  ///< of an adapter; "" for a checkpoint of its own

  std::string expected() const { return folder + "/expected.safetensors"; }
};

void PrintTo(const ControllerCase& golden, std::ostream* out) { *out << golden.label; }

std::vector<ControllerCase> FindControllerCases(bool adapters) {
  std::vector<ControllerCase> cases;
  for (const auto& folder : testing::GoldenFolders("aah", adapters ? "base" : "model.pt")) {
    if (!adapters) {
      const auto file = SafetensorsFile::Open(folder.path + "/expected.safetensors");
      if (file.ok() && (*file)->Has("groups")) cases.push_back({folder.path, folder.label, ""});
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder.path)) {
      if (!std::filesystem::exists(entry.path() / "adapter.pt")) continue;
      cases.push_back({entry.path().string(), folder.label + "_" + entry.path().filename().string(),
                       folder.path + "/base"});
    }
  }
  return cases;
}

/// A golden's tensors with their shapes.
class Expected {
 public:
  explicit Expected(const std::string& path)
      : path_(path), file_(SafetensorsFile::Open(path).value()) {}
  bool Has(const std::string& name) const { return file_->Has(name); }
  std::vector<int64_t> Shape(const std::string& name) const {
    return file_->Tensor(name).value().shape;
  }
  /// The part [step][layer] of a tensor [steps][layers][…].
  template <typename T>
  std::vector<T> At(const std::string& name, int64_t step, int64_t layer) const {
    const std::vector<int64_t> shape = Shape(name);
    int64_t size = 1;
    for (size_t i = 2; i < shape.size(); ++i) size *= shape[i];
    const auto all = Read<T>(name);
    const auto begin = all.begin() + (step * shape[1] + layer) * size;
    return {begin, begin + size};
  }
  template <typename T>
  std::vector<T> Read(const std::string& name) const {
    if constexpr (std::is_same_v<T, float>) {
      return ReadFloats(path_, name);
    } else {
      const auto ints = ReadInts(path_, name);
      return {ints.begin(), ints.end()};
    }
  }

 private:
  std::string path_;
  std::unique_ptr<SafetensorsFile> file_;
};

void ExpectClose(std::span<const float> got, std::span<const float> want, double relative,
                 double absolute, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double bound = absolute + relative * std::abs(static_cast<double>(want[i]));
    ASSERT_TRUE(std::abs(static_cast<double>(got[i]) - want[i]) <= bound)
        << what << " " << i << ": " << got[i] << " for " << want[i];
  }
}

/// A matrix of a trace.
std::vector<std::vector<float>> Matrix(const Json& json) {
  return json.get<std::vector<std::vector<float>>>();
}

class ControllerGolden : public ::testing::TestWithParam<ControllerCase> {
 protected:
  /// The case's file, with its controller; `ids` names the golden's inputs.
  void Open(const std::string& ids, const tools::ConvertOptions& options) {
    model_ = testing::ConvertAndOpen(options);
    ASSERT_NE(model_, nullptr);
    const auto config = controller::ReadConfig(model_->checkpoint->file());
    ASSERT_TRUE(config.ok()) << config.status().message();
    const std::vector<int64_t> shape = expected_.Shape(ids);
    steps_ = shape[0];
    rows_ = shape[1] * shape[2];
    CalibrationOptions calibration;
    calibration.sequences = shape[1];
    calibration.tokens = shape[2];
    auto made = Calibrator::Create(*model_->checkpoint, *config, calibration);
    ASSERT_TRUE(made.ok()) << made.status().message();
    calibrator_ = *std::move(made);
    ids_ = ReadInts(GetParam().expected(), ids);
  }
  void Forward(int64_t step) {
    const Status status = calibrator_->Forward(
        std::span(ids_).subspan(static_cast<size_t>(step * rows_), static_cast<size_t>(rows_)));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  /// Windows of `indices`, tokens.
  std::vector<int64_t> Tokens(int64_t layer, std::span<const int64_t> indices) const {
    std::vector<int64_t> tokens;
    for (const int64_t index : indices) {
      tokens.push_back(calibrator_->controller(layer).windows()[static_cast<size_t>(index)]);
    }
    return tokens;
  }
  void ReportNearTie(int64_t step, int64_t layer, const controller::Update& update) const {
    for (size_t level = 0; level < update.levels.size(); ++level) {
      if (update.levels[level].margin >= kNearTie) continue;
      std::cout << "near tie in forward " << step << ", layer " << layer << ", level " << level
                << ": " << update.levels[level].margin << "\n";
    }
  }

  Expected expected_{GetParam().expected()};
  std::shared_ptr<const LoadedModel> model_;
  std::unique_ptr<Calibrator> calibrator_;
  std::vector<int32_t> ids_;
  int64_t steps_ = 0;
  int64_t rows_ = 0;
};

class NativeController : public ControllerGolden {
 protected:
  void SetUp() override {
    tools::ConvertOptions options;
    options.source = GetParam().folder + "/model.pt";
    options.windows.windows = "full";
    Open("calib_ids", options);
  }

  void ExpectHierarchy(int64_t step, int64_t layer) {
    const controller::Hierarchy& hierarchy = calibrator_->controller(layer).hierarchy();
    const int64_t depth = expected_.Shape("hierarchy")[2], heads = expected_.Shape("hierarchy")[3];
    std::vector<int64_t> nodes;
    for (int64_t level = 0; level < depth; ++level) {
      std::vector<int64_t> row(static_cast<size_t>(heads), -1);
      if (level < std::ssize(hierarchy)) {
        row = controller::NodeOfHead(hierarchy, static_cast<size_t>(level), heads);
      }
      if (level == 0) {
        EXPECT_EQ(row, expected_.At<int64_t>("groups", step, layer));
      }
      nodes.insert(nodes.end(), row.begin(), row.end());
    }
    EXPECT_LE(std::ssize(hierarchy), depth);
    EXPECT_EQ(nodes, expected_.At<int64_t>("hierarchy", step, layer));
  }

  void ExpectStats(int64_t step, int64_t layer) {
    std::vector<float> stats;
    const auto left = calibrator_->attention_stats(layer);
    for (const auto& head : left) stats.push_back(head.entropy);
    for (const auto& head : left) stats.push_back(head.norm);
    for (const auto& head : left) stats.push_back(head.usage);
    ExpectClose(stats, expected_.At<float>("head_stats", step, layer), 1e-5, 1e-8, "head_stats");
  }

  void ExpectEmaFeatures(int64_t step, int64_t layer) {
    const auto want = expected_.At<float>("ema_features", step, layer);
    std::vector<float> got;
    for (const controller::Features& features : calibrator_->controller(layer).ema_features()) {
      got.insert(got.end(), features.begin(), features.end());
    }
    got.resize(got.empty() ? want.size() : got.size(), 0.0F);
    ExpectClose(got, want, 1e-5, 1e-8, "ema_features");
  }
};

TEST_P(NativeController, MakesTheReleasesChoicesAtEveryUpdate) {
  const int64_t layers = expected_.Shape("windows")[1];
  for (int64_t step = 0; step < steps_; ++step) {
    ASSERT_NO_FATAL_FAILURE(Forward(step));
    for (int64_t layer = 0; layer < layers; ++layer) {
      SCOPED_TRACE(StrCat("forward ", step, ", layer ", layer));
      const controller::Update& update = calibrator_->update(layer);
      ReportNearTie(step, layer, update);
      ExpectHierarchy(step, layer);
      EXPECT_EQ(Tokens(layer, update.chosen),
                expected_.At<int64_t>("windows_before_ema", step, layer));
      EXPECT_EQ(Tokens(layer, update.index), expected_.At<int64_t>("windows", step, layer));
      ExpectStats(step, layer);
      ExpectEmaFeatures(step, layer);
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_P(NativeController, AttendsWithTheWindowsThatItHasJustChosen) {
  const auto positions = expected_.Read<int64_t>("calib_positions");
  const auto want = expected_.Read<float>("calib_logits");
  const std::vector<int64_t> shape = expected_.Shape("calib_logits");
  const int64_t tokens = expected_.Shape("calib_ids")[2];
  size_t next = 0;
  for (int64_t step = 0; step < steps_; ++step) {
    ASSERT_NO_FATAL_FAILURE(Forward(step));
    for (int64_t sequence = 0; sequence < shape[1]; ++sequence) {
      for (const int64_t position : positions) {
        const int64_t row = sequence * tokens + position;
        const auto logits = calibrator_->Logits({&row, 1});
        ExpectClose(
            logits, std::span(want).subspan(next, logits.size()), 1e-5, 2e-4,
            StrCat("logits of forward ", step, ", sequence ", sequence, ", position ", position));
        ASSERT_FALSE(HasFatalFailure());
        next += logits.size();
      }
    }
  }
  EXPECT_EQ(next, want.size());
}

/// One layer's update against its entry in trace.json.
void ExpectTrace(const Json& want, const controller::Update& update) {
  ASSERT_EQ(std::ssize(update.levels), want["levels"].get<int64_t>());
  for (size_t level = 0; level < update.levels.size(); ++level) {
    SCOPED_TRACE(StrCat("level ", level));
    const controller::LevelTrace& got = update.levels[level];
    EXPECT_EQ(got.heads, want["members"][level].get<controller::Groups>());
    EXPECT_EQ(got.raw_index, want["raw_idx"][level].get<std::vector<int64_t>>());
    EXPECT_EQ(got.index, want["final_idx"][level].get<std::vector<int64_t>>());
    const auto logits = Matrix(want["logits"][level]);
    ASSERT_EQ(got.logits.size(), logits.size());
    for (size_t node = 0; node < logits.size(); ++node) {
      ExpectClose(got.logits[node], logits[node], 1e-5, 1e-4, StrCat("logits of node ", node));
    }
    if (!want.contains("inputs")) continue;
    const auto inputs = Matrix(want["inputs"][level]);
    ASSERT_EQ(got.inputs.size(), inputs.size());
    for (size_t node = 0; node < inputs.size(); ++node) {
      ExpectClose(got.inputs[node], inputs[node], 1e-4, 1e-5, StrCat("input of node ", node));
    }
  }
}

TEST_P(NativeController, TracesTheReleasesWayThere) {
  const std::string path = GetParam().folder + "/trace.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no trace.json";
  const Json trace = ReadJsonFile(path).value();
  for (int64_t step = 0; step < steps_; ++step) {
    ASSERT_NO_FATAL_FAILURE(Forward(step));
    const Json& layers = trace[static_cast<size_t>(step)];
    for (int64_t layer = 0; layer < calibrator_->layers(); ++layer) {
      SCOPED_TRACE(StrCat("forward ", step, ", layer ", layer));
      const Json& want = layers[static_cast<size_t>(layer)];
      const controller::Update& update = calibrator_->update(layer);
      ExpectTrace(want, update);
      ASSERT_FALSE(HasFailure());
      // Reuse lists the levels above 0 only; a kept tree is not clustered, which the trace writes
      // as zeros.
      for (size_t i = 0; i < update.clusterings.size(); ++i) {
        EXPECT_EQ(update.clusterings[i].before_merge, want["before_merge"][i].get<int64_t>()) << i;
        EXPECT_EQ(update.clusterings[i].after_merge, want["after_merge"][i].get<int64_t>()) << i;
        EXPECT_EQ(update.clusterings[i].forced, want["forced"][i].get<bool>()) << i;
      }
      if (!update.clusterings.empty()) {
        EXPECT_EQ(update.clusterings.size(), want["before_merge"].size());
      }
    }
  }
}

/// The golden's table, and its greedy ids under it.
void ExpectTableAndGreedy(const tools::ConvertOptions& options, const Expected& expected) {
  const auto model = testing::ConvertAndOpen(options);
  ASSERT_NE(model, nullptr);
  const WindowTable& table = model->config().windows;
  const auto want = expected.Read<int64_t>("window_table");
  for (int64_t layer = 0; layer < table.layers(); ++layer) {
    for (int64_t head = 0; head < table.heads(); ++head) {
      EXPECT_EQ(table.at(layer, head).window,
                want[static_cast<size_t>(layer * table.heads() + head)])
          << layer << " " << head;
    }
  }
  const auto prompt = expected.Read<int32_t>("greedy_prompt");
  const auto greedy = expected.Read<int32_t>("greedy");
  if (prompt.size() > 200) return;  // aah_golden_test has it, with the table pinned
  EXPECT_EQ(testing::GreedyIds(model, prompt, std::ssize(greedy)), greedy);
}

TEST_P(NativeController, ConversionFindsTheTableAndTheGreedyIdsFollow) {
  tools::ConvertOptions options;
  options.source = GetParam().folder + "/model.pt";
  options.calibration.ids = GetParam().expected();
  ExpectTableAndGreedy(options, expected_);
}

TEST_P(NativeController, TheNumberOfThreadsChangesNoBit) {
  CalibrationOptions options;
  options.sequences = expected_.Shape("calib_ids")[1];
  options.tokens = expected_.Shape("calib_ids")[2];
  const auto config = controller::ReadConfig(model_->checkpoint->file()).value();
  std::vector<float> first;
  for (const int64_t threads : {1, 3}) {
    options.threads = threads;
    const auto calibrator = Calibrator::Create(*model_->checkpoint, config, options).value();
    std::vector<float> bits;
    for (int64_t step = 0; step < 2; ++step) {
      ASSERT_TRUE(calibrator
                      ->Forward(std::span(ids_).subspan(static_cast<size_t>(step * rows_),
                                                        static_cast<size_t>(rows_)))
                      .ok());
      for (int64_t layer = 0; layer < calibrator->layers(); ++layer) {
        for (const auto& head : calibrator->attention_stats(layer)) {
          bits.insert(bits.end(), {head.entropy, head.norm, head.usage});
        }
        for (const auto& level : calibrator->update(layer).levels) {
          for (const auto& row : level.inputs) bits.insert(bits.end(), row.begin(), row.end());
        }
      }
    }
    if (first.empty()) first = bits;
    EXPECT_EQ(bits, first) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Aah, NativeController, ::testing::ValuesIn(FindControllerCases(false)),
                         [](const auto& info) { return info.param.label; });

class AdapterController : public ControllerGolden {
 protected:
  void SetUp() override {
    options_.source = GetParam().base;
    options_.adapter = GetParam().folder + "/adapter.pt";
    options_.windows.windows = "full";
    const Json facts = ReadJsonFile(GetParam().folder + "/case.json").value();
    options_.window_choices = facts["windows_choices"].get<std::vector<int64_t>>();
    Open("step_ids", options_);
  }

  tools::ConvertOptions options_;
};

TEST_P(AdapterController, MakesTheReleasesChoicesAtEveryStep) {
  const bool is_long = rows_ > 1000;
  const int64_t layers = expected_.Shape("windows")[1];
  for (int64_t step = 0; step < steps_; ++step) {
    ASSERT_NO_FATAL_FAILURE(Forward(step));
    for (int64_t layer = 0; layer < layers; ++layer) {
      SCOPED_TRACE(StrCat("step ", step, ", layer ", layer));
      const controller::Update& update = calibrator_->update(layer);
      EXPECT_EQ(update.cached, step % 5 != 0);
      ReportNearTie(step, layer, update);
      std::vector<int64_t> raw(update.index.size());
      for (size_t group = 0; group < update.levels[0].heads.size(); ++group) {
        for (const int64_t head : update.levels[0].heads[group]) {
          raw[static_cast<size_t>(head)] = update.levels[0].raw_index[group];
        }
      }
      EXPECT_EQ(raw, expected_.At<int64_t>("raw_idx", step, layer));
      EXPECT_EQ(Tokens(layer, update.index), expected_.At<int64_t>("windows", step, layer));
      ExpectClose(update.mean, expected_.At<float>("ema_idx", step, layer), 1e-6, 1e-6, "ema_idx");
      if (expected_.Has("controller_logits")) {
        std::vector<float> logits, inputs;
        for (const auto& row : update.levels[0].logits) {
          logits.insert(logits.end(), row.begin(), row.end());
        }
        for (const auto& row : update.levels[0].inputs) {
          inputs.insert(inputs.end(), row.begin(), row.end());
        }
        ExpectClose(logits, expected_.At<float>("controller_logits", step, layer), 1e-5, 1e-4,
                    "controller_logits");
        ExpectClose(inputs, expected_.At<float>("controller_inputs", step, layer), 1e-5, 1e-6,
                    "controller_inputs");
      }
      ASSERT_FALSE(HasFailure());
    }
    const auto want = expected_.Read<float>("last_logits");
    const std::vector<int64_t> shape = expected_.Shape("last_logits");
    const int64_t tokens = expected_.Shape("step_ids")[2];
    for (int64_t sequence = 0; sequence < shape[1]; ++sequence) {
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t row = (sequence + 1) * tokens - 2 + i;
        const auto logits = calibrator_->Logits({&row, 1});
        const auto at = static_cast<size_t>((step * shape[1] + sequence) * 2 + i) * logits.size();
        ExpectClose(logits, std::span(want).subspan(at, logits.size()), 1e-5, is_long ? 5e-4 : 2e-4,
                    StrCat("logits of step ", step, ", sequence ", sequence));
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
}

TEST_P(AdapterController, ConversionFindsTheTableAndTheGreedyIdsFollow) {
  const testing::TempDir dir;
  tools::ConvertOptions options = options_;
  options.windows = {};
  options.calibration.ids = dir / "ids.safetensors";
  SafetensorsWriter writer(options.calibration.ids);
  writer.Declare("calib_ids", DType::kI32, expected_.Shape("step_ids"));
  ASSERT_TRUE(writer.Begin().ok() && writer.Append(std::as_bytes(std::span(ids_))).ok() &&
              writer.Finish().ok());
  ExpectTableAndGreedy(options, expected_);
}

INSTANTIATE_TEST_SUITE_P(Aah, AdapterController, ::testing::ValuesIn(FindControllerCases(true)),
                         [](const auto& info) { return info.param.label; });

}  // namespace
}  // namespace lookback
