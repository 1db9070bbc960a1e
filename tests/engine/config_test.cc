#include "engine/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "engine/tensor_table.h"

namespace lookback {
namespace {

ModelConfig Small() {
  ModelConfig config;
  config.vocab_size = 100;
  config.hidden_size = 12;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 6;
  config.ffn_size = 20;
  config.train_context = 64;
  config.qk_norm = true;
  config.residual = ResidualMode::kFullMh;
  config.routing_heads = 3;
  config.windows = WindowTable::Full(2, 4);
  return config;
}

TEST(ModelConfig, JsonRoundTripKeepsEveryField) {
  ModelConfig config = Small();
  config.family = Family::kLlama;
  config.norm_eps = 1e-5F;
  config.attention_bias = true;
  config.mlp_bias = true;
  config.tied_embeddings = true;
  config.rope = {5e5, RopeConfig::Scaling::kLlama3, 8.0, 1.0, 4.0, 8192};
  const Json json = config.ToJson();
  EXPECT_EQ(DumpJson(json["norm_eps"]), "1e-05");
  const Result<ModelConfig> again = ModelConfig::FromJson(json);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->ToJson(), json);
  EXPECT_EQ(again->norm_eps, config.norm_eps);
  EXPECT_EQ(again->routing_sites(), 5);
  EXPECT_EQ(again->group(), 2);
}

TEST(ModelConfig, FromJsonNamesEveryKeyThatIsMissingOrWrong) {
  const Json good = Small().ToJson();
  ASSERT_TRUE(ModelConfig::FromJson(good).ok());
  for (const auto& [key, value] : good.items()) {
    for (const Json& wrong : {Json(), Json("text"), Json(Json::array()), Json(-1), Json(1e308)}) {
      if (key == "routing_heads" && wrong.is_null()) continue;  // as if it were absent
      Json json = good;
      json[key] = wrong;
      const Result<ModelConfig> config = ModelConfig::FromJson(json);
      ASSERT_FALSE(config.ok()) << key << " " << wrong;
      EXPECT_NE(config.status().message().find(key), std::string::npos)
          << config.status().message();
    }
  }
  Json more = good;
  more["from_the_future"] = 1;
  EXPECT_TRUE(ModelConfig::FromJson(more).ok());
}

TEST(ModelConfig, ValidateRefusesWhatTheEngineCannotRely) {
  struct Case {
    std::string says;
    std::function<void(ModelConfig&)> spoil;
  };
  const Case cases[] = {
      {"kv_heads", [](ModelConfig& c) { c.kv_heads = 3; }},
      {"head_dim", [](ModelConfig& c) { c.head_dim = 7; }},
      {"routing_heads", [](ModelConfig& c) { c.routing_heads = 5; }},
      {"routing_heads", [](ModelConfig& c) { c.residual = ResidualMode::kAdditive; }},
      {"norm_eps", [](ModelConfig& c) { c.norm_eps = 0.0F; }},
      {"norm_eps", [](ModelConfig& c) { c.norm_eps = NAN; }},
      {"hidden_size", [](ModelConfig& c) { c.hidden_size = int64_t{1} << 40; }},
      {"layers", [](ModelConfig& c) { c.layers = 0; }},
      {"window table", [](ModelConfig& c) { c.windows = WindowTable::Full(2, 3); }},
      {"theta", [](ModelConfig& c) { c.rope.theta = 0.0; }},
      {"factor",
       [](ModelConfig& c) {
         c.rope = {1e4, RopeConfig::Scaling::kLinear, 0.0};
       }},
      {"high_freq_factor",
       [](ModelConfig& c) { c.rope = {1e4, RopeConfig::Scaling::kLlama3, 8, 4, 1, 64}; }},
      {"original_max_position",
       [](ModelConfig& c) { c.rope = {1e4, RopeConfig::Scaling::kLlama3, 8, 1, 4, 0}; }},
  };
  EXPECT_TRUE(Small().Validate().ok());
  for (const Case& c : cases) {
    ModelConfig config = Small();
    c.spoil(config);
    const Status status = config.Validate();
    ASSERT_FALSE(status.ok()) << c.says;
    EXPECT_NE(status.message().find(c.says), std::string::npos) << status.message();
  }
}

TEST(Rope, DefaultAndLinearAreThePowersOfTheta) {
  RopeConfig rope;
  const std::vector<float> plain = rope.InverseFrequencies(8);
  ASSERT_EQ(plain.size(), 4U);
  const float expected[] = {1.0F, 0.1F, 0.01F, 0.001F};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(plain[i], expected[i], 1e-7F * expected[i] * 2);
  rope.scaling = RopeConfig::Scaling::kLinear;
  rope.factor = 4.0;
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(rope.InverseFrequencies(8)[i], plain[i] / 4.0F);
}

TEST(Rope, Llama3KeepsHighDividesLowAndBlendsBetween) {
  const RopeConfig rope = {5e5, RopeConfig::Scaling::kLlama3, 8.0, 1.0, 4.0, 8192};
  RopeConfig plain_rope;
  plain_rope.theta = 5e5;
  const std::vector<float> plain = plain_rope.InverseFrequencies(128);
  const std::vector<float> scaled = rope.InverseFrequencies(128);
  int blended = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2.0 * M_PI / static_cast<double>(plain[i]);
    double expected = static_cast<double>(plain[i]);
    if (wavelength > 8192.0) {
      expected /= 8.0;
    } else if (wavelength > 2048.0) {
      const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
      expected *= (1.0 - smooth) / 8.0 + smooth;
      ++blended;
    }
    EXPECT_NEAR(scaled[i], expected, 2e-6 * expected) << i;
  }
  EXPECT_GT(blended, 3);
}

TEST(ModelTensors, HasOneRowForEverySwitch) {
  ModelConfig config = Small();
  config.attention_bias = true;
  config.mlp_bias = true;
  const std::vector<TensorSpec> all = ModelTensors(config);
  EXPECT_EQ(all.size(), 1U + 2 * 22 + 4);
  EXPECT_EQ(all.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(all.back().name, "lm_head.weight");
  std::set<std::string> names;
  for (const TensorSpec& spec : all) names.insert(spec.name);
  EXPECT_EQ(names.size(), all.size());
  config.attention_bias = false;
  config.mlp_bias = false;
  config.qk_norm = false;
  config.tied_embeddings = true;
  config.residual = ResidualMode::kAdditive;
  EXPECT_EQ(ModelTensors(config).size(), 1U + 2 * 9 + 1);
}

TEST(ModelTensors, ShapesFollowTheConfig) {
  for (const TensorSpec& spec : ModelTensors(Small())) {
    const bool vector = spec.role == TensorSpec::kVector;
    if (spec.name == "model.layers.1.self_attn.k_proj.weight") {
      EXPECT_EQ(spec.shape, (std::vector<int64_t>{12, 12}));
      EXPECT_FALSE(vector);
    }
    if (spec.name == "model.layers.0.self_attn.o_proj.weight") {
      EXPECT_EQ(spec.shape, (std::vector<int64_t>{12, 24}));
    }
    if (spec.name == "model.final_res_proj.weight") {
      EXPECT_EQ(spec.shape, (std::vector<int64_t>{1, 12}));
      EXPECT_TRUE(vector);
    }
    if (spec.name == "model.layers.1.self_attn.q_norm.weight") {
      EXPECT_EQ(spec.shape, (std::vector<int64_t>{6}));
    }
  }
}

TEST(IsIgnoredTensor, KnowsWhatReleasesCarryInVain) {
  ModelConfig config = Small();
  EXPECT_TRUE(IsIgnoredTensor(config, "model.layers.1.attn_null_source"));
  EXPECT_TRUE(IsIgnoredTensor(config, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(IsIgnoredTensor(config, "model.layers.2.attn_null_source"));
  EXPECT_FALSE(IsIgnoredTensor(config, "model.layers.-1.attn_null_source"));
  EXPECT_FALSE(IsIgnoredTensor(config, "model.layers.1.attn_res_alpha"));
  EXPECT_FALSE(IsIgnoredTensor(config, "lm_head.weight"));
  EXPECT_FALSE(IsIgnoredTensor(config, ""));
  config.tied_embeddings = true;
  EXPECT_TRUE(IsIgnoredTensor(config, "lm_head.weight"));
  config.residual = ResidualMode::kAdditive;
  config.routing_heads = 1;
  EXPECT_FALSE(IsIgnoredTensor(config, "model.layers.1.attn_null_source"));
}

}  // namespace
}  // namespace lookback
