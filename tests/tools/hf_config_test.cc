#include "tools/convert/hf_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lookback::tools {
namespace {

Json Good() {
  return {{"model_type", "qwen3_attnres"},
          {"attnres_mode", "full_mh"},
          {"attnres_num_heads", 4},
          {"vocab_size", 320},
          {"hidden_size", 64},
          {"intermediate_size", 88},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000.0},
          {"bos_token_id", 1},
          {"eos_token_id", 2}};
}

Json Llama() {
  Json json = Good();
  json["model_type"] = "llama";
  json.erase("attnres_mode");
  json.erase("attnres_num_heads");
  return json;
}

const Json kLlama3 = {{"rope_type", "llama3"},
                      {"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 64}};

Json With(Json json, const std::string& key, Json value) {
  json[key] = std::move(value);
  return json;
}

Json Without(Json json, const std::string& key) {
  json.erase(key);
  return json;
}

struct BadConfig {
  Json json;
  std::string says;
};

void ExpectRefused(const std::vector<BadConfig>& cases) {
  for (const BadConfig& c : cases) {
    const Result<HfModel> model = ReadHfConfig(c.json, "config.json");
    ASSERT_FALSE(model.ok()) << c.says;
    EXPECT_NE(model.status().message().find(c.says), std::string::npos) << model.status().message();
    EXPECT_NE(model.status().message().find("config.json"), std::string::npos)
        << model.status().message();
  }
}

TEST(ReadHfConfig, RefusesModelTypesAndModesByName) {
  std::vector<BadConfig> cases = {
      {Json::array(), "expected a JSON object"},
      {Without(Good(), "model_type"), "model_type in config.json: got nothing"},
      {With(Good(), "model_type", "gpt2"), "got \"gpt2\", expected one of qwen3"},
      {With(Good(), "model_type", "qwen3"), "got \"full_mh\" with model_type \"qwen3\""},
      {Without(Good(), "attnres_mode"), "attnres_mode in config.json: got nothing"},
      {With(Good(), "attnres_mode", "delta_mh"),
       "got \"delta_mh\" with model_type \"qwen3_attnres\", expected model_type \"llama_attnres\""},
      {With(With(Good(), "model_type", "llama_attnres"), "attnres_mode", "full_hw"),
       "expected model_type \"qwen3_attnres\""},
  };
  for (const char* mode : {"delta_v", "full_v", "full_split2", "depth_attn", "pre_gated",
                           "first_layer", "baseline", "full_hm"}) {
    cases.push_back({With(Good(), "attnres_mode", mode),
                     std::string("got \"") + mode + "\", expected one of full, full_mh"});
  }
  ExpectRefused(cases);
}

TEST(ReadHfConfig, RefusesFeaturesByName) {
  ExpectRefused({
      {With(Good(), "experiment6_qkv_groups", 2), "experiment6_qkv_groups"},
      {With(Good(), "experiment7_local_q_groups", 2), "experiment7_local_q_groups"},
      {With(Llama(), "quantization_config", Json::object()), "quantization_config"},
      {With(Good(), "hidden_act", "gelu"), "hidden_act in config.json: got \"gelu\""},
      {With(Good(), "attnres_gate_type", "sigmoid"), "attnres_gate_type"},
      {With(Good(), "attnres_num_heads", 5), "got 5, expected a divisor of hidden_size 64"},
      {With(Good(), "attnres_num_heads", 0), "attnres_num_heads"},
      {With(Good(), "partial_rotary_factor", 0.5), "partial_rotary_factor"},
      {With(Llama(), "layer_types", {"full_attention", "sliding_attention", "full_attention"}),
       "layer_types[1] in config.json: got \"sliding_attention\""},
      {With(Good(), "layer_types", {"full_attention"}), "layer_types in config.json"},
      {With(Good(), "layer_types", {"full_attention", "chunked_attention", "full_attention"}),
       "got \"chunked_attention\""},
  });
}

TEST(ReadHfConfig, RefusesSizesThatDoNotFit) {
  ExpectRefused({
      {With(Good(), "num_key_value_heads", 3), "num_key_value_heads"},
      {With(Good(), "head_dim", 15), "head_dim"},
      {With(Good(), "hidden_size", 1.5), "hidden_size in config.json: got 1.5"},
      {With(Good(), "vocab_size", "320"), "vocab_size"},
      {With(Good(), "num_hidden_layers", 0), "num_hidden_layers"},
      {With(Good(), "num_hidden_layers", 2000000000), "layers"},
      {With(Good(), "rms_norm_eps", 0), "norm_eps"},
      {With(Good(), "rms_norm_eps", "x"), "rms_norm_eps"},
      {With(Good(), "attention_bias", 1), "attention_bias"},
      {With(Good(), "tie_word_embeddings", "yes"), "tie_word_embeddings"},
      {With(Good(), "bos_token_id", 320), "bos_token_id"},
      {With(Good(), "bos_token_id", Json::array({1})), "bos_token_id"},
      {With(Good(), "eos_token_id", Json::array({1, -1})), "eos_token_id"},
      {With(Without(Llama(), "head_dim"), "hidden_size", 66), "num_attention_heads"},
      {With(With(Good(), "use_sliding_window", true), "sliding_window", 0), "sliding_window"},
      {With(Good(), "use_sliding_window", 1), "use_sliding_window"},
      {With(Good(), "max_window_layers", -1), "max_window_layers"},
  });
}

TEST(ReadHfConfig, RefusesUnknownAndContradictingRope) {
  Json yarn = kLlama3;
  yarn["rope_type"] = "yarn";
  Json both = kLlama3;
  both["type"] = "linear";
  Json no_factor = kLlama3;
  no_factor.erase("factor");
  Json crossed = kLlama3;
  crossed["low_freq_factor"] = 9.0;
  Json with_theta = kLlama3;
  with_theta["rope_theta"] = 5000.0;
  Json other = kLlama3;
  other["factor"] = 4.0;
  ExpectRefused({
      {With(Good(), "rope_scaling", yarn),
       "rope_type in rope_scaling in config.json: got \"yarn\""},
      {With(Good(), "rope_scaling", both), "got \"llama3\" and type \"linear\""},
      {With(Good(), "rope_scaling", no_factor), "factor in rope_scaling"},
      {With(Good(), "rope_scaling", crossed), "high_freq_factor in rope_scaling"},
      {With(Good(), "rope_scaling", "llama3"), "rope_scaling in config.json"},
      {With(Good(), "rope_parameters", with_theta),
       "rope_theta in config.json: got 5000 and 10000"},
      {With(With(Good(), "rope_parameters", kLlama3), "rope_scaling", other),
       "other values than rope_parameters"},
      {With(Good(), "rope_parameters", {{"full_attention", Json::object()}}),
       "expected one RoPE for all layers"},
      {With(Good(), "rope_theta", 0), "rope_theta"},
      {With(Good(), "rope_scaling", {{"rope_type", "linear"}, {"factor", 0.5}}), "factor"},
      {With(Good(), "rope_scaling", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
       "partial_rotary_factor"},
  });
}

TEST(ReadHfConfig, ReadsBothFormsOfRope) {
  Json now = Without(Good(), "rope_theta");
  now["rope_parameters"] = kLlama3;
  now["rope_parameters"]["rope_theta"] = 5e5;
  Json before = With(Good(), "rope_theta", 5e5);
  before["rope_scaling"] = kLlama3;
  Json both = now;
  both["rope_scaling"] = kLlama3;
  both["rope_theta"] = 5e5;
  Json oldest = before;
  oldest["rope_scaling"]["type"] = "llama3";
  oldest["rope_scaling"].erase("rope_type");
  for (const Json& json : {now, before, both, oldest}) {
    const Result<HfModel> model = ReadHfConfig(json, "config.json");
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->config.rope.theta, 5e5);
    EXPECT_EQ(model->config.rope.scaling, RopeConfig::Scaling::kLlama3);
    EXPECT_EQ(model->config.rope.original_max_position, 64);
  }
}

TEST(ReadHfConfig, FillsInWhatTheFamilyAssumes) {
  const Result<HfModel> qwen =
      ReadHfConfig(Without(Without(Good(), "head_dim"), "rope_theta"), "config.json");
  ASSERT_TRUE(qwen.ok()) << qwen.status().message();
  EXPECT_EQ(qwen->config.head_dim, 128);
  EXPECT_TRUE(qwen->config.qk_norm);
  EXPECT_EQ(qwen->config.rope.theta, 10000.0);
  EXPECT_EQ(qwen->config.routing_heads, 4);
  EXPECT_EQ(qwen->bos_id, 1);
  const Result<HfModel> eight = ReadHfConfig(Without(Good(), "attnres_num_heads"), "config.json");
  ASSERT_TRUE(eight.ok());
  EXPECT_EQ(eight->config.routing_heads, 8);
  Json json = Without(Without(Llama(), "head_dim"), "num_key_value_heads");
  json["mlp_bias"] = true;
  json["something_new"] = {1, 2};
  const Result<HfModel> llama = ReadHfConfig(json, "config.json");
  ASSERT_TRUE(llama.ok()) << llama.status().message();
  EXPECT_EQ(llama->config.head_dim, 16);
  EXPECT_EQ(llama->config.kv_heads, 4);
  EXPECT_FALSE(llama->config.qk_norm);
  EXPECT_TRUE(llama->config.mlp_bias);
  EXPECT_EQ(llama->config.residual, ResidualMode::kAdditive);
}

TEST(ReadHfConfig, ASlidingWindowBindsOnTheLayersThatTransformersSlides) {
  Json json = With(With(Good(), "use_sliding_window", true), "sliding_window", 32);
  json["max_window_layers"] = 2;
  const Result<HfModel> late = ReadHfConfig(json, "config.json");
  ASSERT_TRUE(late.ok()) << late.status().message();
  EXPECT_TRUE(late->sliding);
  EXPECT_TRUE(late->config.windows.at(1, 0).full());
  EXPECT_EQ(late->config.windows.at(2, 3).window, 32);
  json["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  const Result<HfModel> typed = ReadHfConfig(json, "config.json");
  ASSERT_TRUE(typed.ok());
  EXPECT_EQ(typed->config.windows.at(0, 0).window, 32);
  EXPECT_TRUE(typed->config.windows.at(2, 0).full());
  json["use_sliding_window"] = false;
  EXPECT_FALSE(ReadHfConfig(json, "config.json")->sliding);
  Json llama = With(With(Llama(), "use_sliding_window", true), "sliding_window", 32);
  llama["max_window_layers"] = 0;
  EXPECT_FALSE(ReadHfConfig(llama, "config.json")->sliding);
}

}  // namespace
}  // namespace lookback::tools
