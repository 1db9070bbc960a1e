// Depth routing, deltas, hyper-connections and plain models against the public implementation.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "engine/residual.h"
#include "engine/safetensors.h"
#include "tests/golden/golden.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::ReadFloats;
using testing::ReadInts;

struct MharCase {
  std::string folder;
  std::string label;
  bool windows;

  std::string expected() const {
    return folder + (windows ? "/expected_windows.safetensors" : "/expected.safetensors");
  }
};

void PrintTo(const MharCase& golden, std::ostream* out) { *out << golden.label; }

std::vector<MharCase> FindMharCases() {
  std::vector<MharCase> cases;
  for (const testing::GoldenFolder& folder :
       testing::GoldenFolders("mhar", "expected.safetensors")) {
    cases.push_back({folder.path, folder.label, false});
    if (std::filesystem::exists(folder.path + "/expected_windows.safetensors")) {
      cases.push_back({folder.path, folder.label + "_windows", true});
    }
  }
  return cases;
}

/// The tolerances of the fixtures' README, by mode.
struct Tolerance {
  double logits, shares, final_state;
};

Tolerance ToleranceOf(const ModelConfig& config) {
  if (config.routes() && !config.is_delta()) return {2e-3, 2e-4, 2e-4};
  return {2e-4, 5e-5, 2e-5};
}

/// Gathers what the golden file holds, under its names.
class Recorder : public ResidualProbe {
 public:
  void OnShares(Site site, int64_t input, int64_t rows, int64_t heads, int64_t sources,
                const float* shares) override {
    const std::string name = site.kind == Site::kFinal
                                 ? "routing.final"
                                 : StrCat("routing.layers.", site.layer,
                                          site.kind == Site::kAttention ? ".attn" : ".mlp");
    // The golden has [heads][sources][rows]; the inputs of a site count as heads.
    std::vector<float>& out = shares_[name];
    out.resize(static_cast<size_t>((input + heads) * sources * rows));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t s = 0; s < sources; ++s) {
          out[static_cast<size_t>(((input + h) * sources + s) * rows + r)] =
              shares[(r * heads + h) * sources + s];
        }
      }
    }
  }
  void OnFinalState(int64_t rows, const float* state) override {
    final_state_.assign(state, state + rows * width_);
  }

  explicit Recorder(int64_t width) : width_(width) {}
  std::map<std::string, std::vector<float>> shares_;
  std::vector<float> final_state_;

 private:
  int64_t width_;
};

class MharGolden : public ::testing::TestWithParam<MharCase> {
 protected:
  void SetUp() override {
    const MharCase& golden = GetParam();
    model_ = testing::ConvertAndOpen(golden.folder,
                                     golden.windows ? golden.folder + "/windows.json" : "full");
    ASSERT_NE(model_, nullptr);
    ids_ = ReadInts(golden.expected(), "input_ids");
  }
  std::span<const int32_t> Sequence(size_t row) const {
    return std::span(ids_).subspan(row * ids_.size() / 2, ids_.size() / 2);
  }

  std::shared_ptr<const LoadedModel> model_;
  std::vector<int32_t> ids_;
};

TEST_P(MharGolden, LogitsAgreeHoweverTheyAreComputed) {
  std::vector<float> logits = testing::LogitsOf(model_, Sequence(0));
  testing::ExpectSameBitsHoweverItRuns(model_, Sequence(0), logits);
  const auto second = testing::LogitsOf(model_, Sequence(1));
  logits.insert(logits.end(), second.begin(), second.end());
  const auto expected = ReadFloats(GetParam().expected(), "logits");
  const testing::Worst worst = testing::WorstError(logits, expected);
  const double limit = ToleranceOf(model_->config()).logits;
  EXPECT_TRUE(worst.error <= limit) << worst.error << " at " << worst.index << ", limit " << limit;
}

TEST_P(MharGolden, GreedyIdsAgreeAloneAndInABatch) {
  const auto prompt = ReadInts(GetParam().expected(), "greedy_prompt");
  const auto greedy = ReadInts(GetParam().expected(), "greedy");
  EXPECT_EQ(testing::GreedyIds(model_, prompt, std::ssize(greedy)), greedy);
  EXPECT_EQ(testing::GreedyIds(model_, prompt, std::ssize(greedy), 3), greedy);
}

TEST_P(MharGolden, TheDepthSoftmaxAndTheFinalStateAgree) {
  const Tolerance tolerance = ToleranceOf(model_->config());
  EngineOptions options;
  options.max_chunk = options.max_step_rows = 128;  // the whole sequence in one step
  const auto evaluator = Evaluator::Create(model_, options).value();
  Recorder recorder(model_->config().hidden_size);
  evaluator->SetProbe(&recorder);
  ASSERT_TRUE(evaluator->Run(Sequence(0), [](auto...) { return Status(); }).ok());
  const auto file = SafetensorsFile::Open(GetParam().expected()).value();
  int64_t sites = 0;
  for (const auto& [name, entry] : file->entries()) {
    if (!name.starts_with("routing.")) continue;
    ++sites;
    const auto expected = ReadFloats(GetParam().expected(), name);
    const auto& shares = recorder.shares_[name];
    ASSERT_EQ(shares.size(), expected.size()) << name;
    const testing::Worst worst = testing::WorstError(shares, expected);
    EXPECT_TRUE(worst.error <= tolerance.shares) << name << ": " << worst.error;
  }
  EXPECT_EQ(std::ssize(recorder.shares_), sites) << "no site that the release does not have";
  EXPECT_EQ(model_->config().routing_sites(), sites);
  const auto state = ReadFloats(GetParam().expected(), "final_state");
  float largest = 0.0F;
  for (const float value : state) largest = std::max(largest, std::abs(value));
  const testing::Worst worst = testing::WorstError(recorder.final_state_, state);
  EXPECT_TRUE(worst.error / static_cast<double>(largest) <= tolerance.final_state) << worst.error;
}

TEST_P(MharGolden, RoundedToBf16ItLoadsAndVerifies) {
  tools::ConvertOptions options;
  options.source = GetParam().folder;
  testing::ExpectVerifiesInEveryType(std::move(options));
}

INSTANTIATE_TEST_SUITE_P(Cases, MharGolden, ::testing::ValuesIn(FindMharCases()),
                         [](const auto& info) { return info.param.label; });

TEST(MharIdentity, WithEveryGateAtZeroTheBaseModelsBitsComeOut) {
  const auto folders = testing::GoldenFolders("mhar", "expected.safetensors");
  const auto find = [&](const std::string& name) {
    for (const auto& folder : folders) {
      if (folder.name == name) return folder.path;
    }
    return std::string();
  };
  const std::string routed = find("llama_delta_mh_identity");
  const std::string base = find("llama_plain_identity_base");
  ASSERT_FALSE(routed.empty() || base.empty());
  const auto ids = ReadInts(base + "/expected.safetensors", "input_ids");
  const std::span<const int32_t> sequence = std::span(ids).first(ids.size() / 2);
  EXPECT_EQ(testing::LogitsOf(testing::ConvertAndOpen(routed), sequence),
            testing::LogitsOf(testing::ConvertAndOpen(base), sequence));
}

}  // namespace
}  // namespace lookback
