// `lookback bench`: what it counts and refuses. How fast anything is, no test asks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/cpus.h"
#include "engine/json.h"
#include "engine/tensor_table.h"
#include "tests/support/command_line.h"
#include "tests/support/random_model.h"
#include "tests/support/support.h"
#include "tools/bench_shapes.h"

namespace lookback::tools {
namespace {

using testing::Outcome;

Outcome Bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  return testing::RunLookback(arguments);
}

std::string DemoFile(const testing::TempDir& dir) {
  const std::string file = dir / "demo.safetensors";
  EXPECT_EQ(testing::RunLookback({"convert", testing::DemoDir(), "-o", file, "--quiet"}).code, 0);
  return file;
}

TEST(Bench, ABatchReadsTheWeightsOnceForAll) {
  const testing::TempDir dir;
  const std::string file = DemoFile(dir);
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {file, "--context", "300", "--tokens", "2", "--repeat", "2",
                                       "--json", "--threads", "1"});
    const Outcome outcome = Bench(std::move(arguments));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out);
  };
  const std::string cpus = CpuList(UsableCpus());
  const Json one = run({"decode"}), four = run({"batch", "--sequences", "4", "--cpus", cpus});
  EXPECT_EQ(four["sequences"], 4);
  // But for the rows of the embedding, one a token.
  EXPECT_NEAR(four["weight_bytes_per_token"].get<double>(),
              one["weight_bytes_per_token"].get<double>() / 4, 1000.0);
  EXPECT_EQ(four["kv_bytes_per_token"], one["kv_bytes_per_token"]);
  EXPECT_EQ(four["tokens_per_s"].size(), 2U);
}

TEST(Bench, ComparesWindowsWithNone) {
  const testing::TempDir dir;
  const Outcome outcome = Bench({"windows", DemoFile(dir), "--context", "500", "--tokens", "2",
                                 "--repeat", "2", "--json", "--threads", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  const Json own = json["rows"][0], full = json["rows"][1];
  EXPECT_LT(own["attention_measured_ratio"], 0.4);
  EXPECT_EQ(full["attention_measured_ratio"], 1.0);
  EXPECT_LT(own["kv_bytes_per_token"], full["kv_bytes_per_token"]);
  EXPECT_EQ(own["weight_bytes_per_token"], full["weight_bytes_per_token"]);
  EXPECT_GT(json["bytes_ratio"], 1.0);
  EXPECT_EQ(json["speed_ratio"].size(), 2U);
}

TEST(Bench, SaysWhatItCannotMeasure) {
  const testing::TempDir dir;
  const std::string file = DemoFile(dir);
  const auto refused = [](std::vector<std::string> arguments, const std::string& says) {
    const Outcome outcome = Bench(std::move(arguments));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
  };
  refused({"decode"}, "FILE and --shape: got neither, expected one of them");
  refused({"decode", file, "--shape", "mhar-1b"}, "FILE and --shape: got both");
  refused({"decode", "--shape", "gpt-5"}, "mhar-1b");
  refused({"decode", file, "--context", "512", "--tokens", "1"}, "--context + --tokens: got 513");
  refused({"routing", "--shape", "aah-1b"}, "got \"aah-1b\", expected one with a residual mode");
  refused({"batch", file, "--sequences", "0"}, "--sequences");
  refused({"kernels", "--kernels", "mmx"}, "got \"mmx\", expected ");
  refused({"decode", file, "--cpus", ""}, "--cpus: got \"\", expected CPUs from 0 to");
  refused({"cpu", "--cpus", "0,3-1"}, "--cpus: got \"3-1\", expected CPUs from 0 to");
  const std::string cpu = CpuList(std::vector<int>{UsableCpus().back()});
  const std::string more =
      StrCat("threads: got 2, expected at most 1, one for each of the CPUs ", cpu);
  refused({"decode", file, "--cpus", cpu, "--threads", "2"}, more);
  refused({"kernels", "--cpus", cpu, "--threads", "2"}, more);
}

TEST(Bench, ShapesAreTheModelsThatTheyAreNamedAfter) {
  const auto parameters = [](const std::string& name) {
    const Result<ModelConfig> config = ShapeConfig(name);
    EXPECT_TRUE(config.ok()) << config.status().message();
    EXPECT_TRUE(config->Validate().ok()) << config->Validate().message();
    int64_t sum = 0;
    for (const TensorSpec& spec : ModelTensors(*config)) {
      int64_t count = 1;
      for (const int64_t size : spec.shape) count *= size;
      sum += count;
    }
    return static_cast<double>(sum) / 1e9;
  };
  for (const std::string& name : ShapeNames()) EXPECT_GT(parameters(name), 0.0);
  EXPECT_NEAR(parameters("mhar-1b"), 1.08, 0.02);
  EXPECT_NEAR(parameters("aah-1b"), 0.53, 0.01);
  EXPECT_NEAR(parameters("llama-8b-delta"), 8.03, 0.02);
  EXPECT_NEAR(parameters("qwen3-4b-aah"), 4.02, 0.02);
  EXPECT_NEAR(ShapeConfig("aah-1b")->windows.Acr(4096), 0.33, 0.01);
  EXPECT_FALSE(ShapeConfig("mhar-2b").ok());
}

TEST(RandomModel, RunsInEveryTypeOfWeights) {
  ModelConfig config = testing::TinyConfig();
  config.hidden_size = 96;
  config.ffn_size = 160;
  config.head_dim = 32;
  for (const char* weights : {"f32", "bf16", "q8", "q4"}) {
    const auto model = OpenRandomModel(config, weights);
    ASSERT_TRUE(model.ok()) << weights << ": " << model.status().message();
    const auto evaluator = Evaluator::Create(*model, {});
    ASSERT_TRUE(evaluator.ok()) << weights << ": " << evaluator.status().message();
    float largest = 0.0F;
    const std::vector<int32_t> ids = {1, 2, 3};
    EXPECT_TRUE((*evaluator)
                    ->Run(ids,
                          [&](int64_t, std::span<const float> logits) {
                            for (const float logit : logits) {
                              EXPECT_TRUE(std::isfinite(logit));
                              largest = std::max(largest, std::fabs(logit));
                            }
                            return Status();
                          })
                    .ok());
    EXPECT_GT(largest, 0.5F) << weights;
    EXPECT_LT(largest, 100.0F) << weights;
  }
  config.hidden_size = 48;
  EXPECT_EQ(OpenRandomModel(config, "q8").status().message(),
            "columns of model.embed_tokens.weight: got 48, expected a multiple of 32");
}

}  // namespace
}  // namespace lookback::tools
