// Settings of an AAH controller, from a run's keys and from a converted file.
#include <gtest/gtest.h>

#include "engine/controller/config.h"

namespace lookback::controller {
namespace {

Result<NativeConfig> Read(const Json& json, std::string_view prefix = "") {
  NativeConfig defaults;
  defaults.windows = {64, 128};
  const auto object = JsonObject::From(json, "settings");
  return ReadNativeConfig(*object, prefix, defaults);
}

void ExpectRefused(const Json& json, const std::string& says) {
  const auto config = Read(json);
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.status().message().find(says), std::string::npos) << config.status().message();
}

TEST(NativeConfig, ComesBackFromItsJsonAsItWas) {
  NativeConfig config;
  config.enabled = true;
  config.windows = {512, 96, 4096};
  config.reuse_group_hierarchy = true;
  config.parent_constraint = false;
  config.controller_choice_mode = ChoiceMode::kFixedIndex;
  config.fixed_choice = 2;
  config.hierarchy_ablation_mode = HierarchyMode::kFreezeAfterWarmup;
  config.controller_pairwise_mode = PairwiseMode::kSiblingBias;
  config.group_feature_mode = Aggregation::kMeanVar;
  config.upper_cluster_metric = Metric::kL2;
  config.controller_input_mode = InputMode::kPositionAware;
  config.controller_arch = Arch::kDeepMlp;
  config.fixed_hierarchy_seed = -7;
  config.ema_alpha = 0.25;
  config.upper_l2_threshold = -0.45;
  const Json json = config.ToJson();
  const auto back = Read(json);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->ToJson(), json);
  EXPECT_EQ(back->windows, config.windows);
  EXPECT_EQ(back->fixed_choice, 2);
  EXPECT_EQ(back->hierarchy_ablation_mode, HierarchyMode::kFreezeAfterWarmup);
}

TEST(NativeConfig, RefusesUnknownModesByKeyAndListsTheKnown) {
  ExpectRefused({{"hierarchy_ablation_mode", "frozen"}},
                "hierarchy_ablation_mode in settings: got \"frozen\", expected one of adaptive, ");
  ExpectRefused({{"controller_choice_mode", "lerned"}}, "controller_choice_mode in settings");
  ExpectRefused({{"controller_choice_mode", "17"}}, "controller_choice_mode in settings");
  ExpectRefused({{"controller_choice_mode", "fixed_window_0"}}, "fixed_window_TOKENS");
  ExpectRefused({{"upper_cluster_metric", "dot"}}, "upper_cluster_metric in settings");
  ExpectRefused({{"parent_constraint", "yes"}}, "parent_constraint in settings");
  ExpectRefused({{"max_depth", 0}}, "max_depth in settings");
  ExpectRefused({{"ema_alpha", 1.5}}, "ema_alpha in settings");
  ExpectRefused({{"windows", Json::array()}}, "windows in settings");
  ExpectRefused({{"windows", {16, -1}}}, "windows in settings: got -1");
}

void ExpectNotRunnable(const Json& json, const std::string& says) {
  const auto config = Read(json, "aah_v3_");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const Status status = CheckRunnable(*config, "aah_v3_", "settings");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(says), std::string::npos) << status.message();
}

TEST(NativeConfig, DoesNotRunWithGroupsToKeepThatAreNotBuilt) {
  Json json = {{"aah_v3_enabled", true}, {"aah_v3_build_hierarchy", false}};
  EXPECT_TRUE(CheckRunnable(*Read(json, "aah_v3_"), "aah_v3_", "settings").ok());
  json["aah_v3_hierarchy_ablation_mode"] = "freeze_learned_topology";
  ExpectNotRunnable(json,
                    "aah_v3_hierarchy_ablation_mode in settings: got freeze_learned_topology");
  json["aah_v3_reuse_group_hierarchy"] = true;
  ExpectNotRunnable(json, "aah_v3_reuse_group_hierarchy in settings: got true, expected false");
}

TEST(NativeConfig, DoesNotRunWithKeysThatItDoesNotKnow) {
  ExpectNotRunnable({{"aah_v3_of_tomorrow", 1}}, "the unknown aah_v3_of_tomorrow");
}

TEST(NativeConfig, CollectsKeysOfItsPrefixThatItDoesNotKnow) {
  const auto config =
      Read({{"aah_v3_of_tomorrow", 1}, {"aah_v3_max_depth", 3}, {"other", 2}}, "aah_v3_");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->unknown_keys, std::vector<std::string>{"aah_v3_of_tomorrow"});
  EXPECT_EQ(config->max_depth, 3);
}

TEST(AdapterConfig, NeedsARegimeItKnows) {
  const auto read = [](const Json& json) {
    const auto object = JsonObject::From(json, "metadata");
    return ReadAdapterConfig(*object);
  };
  const auto good = read({{"regime", "shallow_freeze"}, {"seq_len", 96}, {"steps", 110}});
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ(good->windows, (std::vector<int64_t>{512, 1024, 2048, 4096}));
  EXPECT_EQ(good->control_interval, 5);
  EXPECT_EQ(good->seq_len, 96);
  for (const Json& bad : {Json::object(), Json{{"regime", "adaptive"}}, Json{{"regime", 3}},
                          Json{{"regime", "grouping_off"}, {"control_interval", 0}}}) {
    const auto config = read(bad);
    ASSERT_FALSE(config.ok());
    EXPECT_NE(config.status().message().find("in metadata"), std::string::npos)
        << config.status().message();
  }
}

TEST(WindowChoices, AreNumbersWithCommas) {
  EXPECT_EQ(ParseWindowChoices("512,96,4096", "--window-choices").value(),
            (std::vector<int64_t>{512, 96, 4096}));
  EXPECT_EQ(ParseWindowChoices("1", "x").value(), std::vector<int64_t>{1});
  for (const char* bad :
       {"", ",", "12,", ",12", "12,,3", "0", "-5", "12 ,3", "1.5", "9999999999"}) {
    const auto choices = ParseWindowChoices(bad, "--window-choices");
    ASSERT_FALSE(choices.ok()) << bad;
    EXPECT_NE(choices.status().message().find("--window-choices"), std::string::npos);
  }
}

}  // namespace
}  // namespace lookback::controller
