#include "tools/convert/aah_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/json.h"
#include "engine/sha256.h"
#include "tests/support/support.h"
#include "tools/convert/yaml_reader.h"

namespace lookback::tools {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;

/// A run with `model_keys` ("key: value" lines) in its model block.
std::string Yaml(const std::vector<std::string>& model_keys) {
  std::string text =
      "experiment: {name: tiny, seed: 7, variant: v}\n"
      "data:\n  seq_len: 96\n  tokenizer: gpt2\n"
      "model:\n  n_layer: 2\n  n_head: 6\n  n_embd: 48\n  n_ff: 64\n";
  for (const std::string& line : model_keys) text += "  " + line + "\n";
  return text;
}

AahRun Must(const std::string& text) {
  Result<AahRun> run = ParseAahRun(text, "config.yaml");
  EXPECT_TRUE(run.ok()) << run.status().message();
  return run.ok() ? *std::move(run) : AahRun();
}

void ExpectRefused(const std::string& text, const std::string& says) {
  const Result<AahRun> run = ParseAahRun(text, "config.yaml");
  ASSERT_FALSE(run.ok()) << says;
  EXPECT_NE(run.status().message().find(says), std::string::npos)
      << run.status().message() << "\nshould say: " << says;
  EXPECT_NE(run.status().message().find("config.yaml"), std::string::npos);
}

TEST(AahRun, GivesMissingKeysTheLoadersDefaults) {
  const AahRun run = Must(Yaml({"aah_v3_enabled: true"}));
  EXPECT_EQ(run.layers, 2);
  EXPECT_EQ(run.heads, 6);
  EXPECT_EQ(run.width, 48);
  EXPECT_EQ(run.ffn, 64);
  EXPECT_EQ(run.seq_len, 96);
  EXPECT_EQ(run.name, "tiny");
  EXPECT_EQ(run.tokenizer, "gpt2");
  EXPECT_TRUE(run.enabled && run.build_hierarchy && run.apply_window_control);
  EXPECT_FALSE(run.reuse_group_hierarchy);
  EXPECT_TRUE(run.parent_constraint);
  EXPECT_EQ(run.windows, (std::vector<int64_t>{64, 128, 256, 96}));
  EXPECT_EQ(run.control_dim, 16);
  EXPECT_EQ(run.control_interval, 100);
  EXPECT_EQ(run.max_depth, 6);
  EXPECT_EQ(run.min_group_size, 1);
  EXPECT_EQ(run.w_min_gpu, 64);
  EXPECT_EQ(run.joint_hidden_dim, 0);
  EXPECT_EQ(run.sim_threshold, 0.7);
  EXPECT_EQ(run.super_threshold, 0.7);
  EXPECT_EQ(run.ema_alpha, 0.9);
  EXPECT_EQ(run.resolution_ema_alpha, 0.0);
  EXPECT_EQ(run.churn_penalty, 0.05);
  EXPECT_EQ(run.cosine_normdiff_scale, 16.0);
  EXPECT_EQ(run.controller_input_mode, AahInput::kBase);
  EXPECT_EQ(run.upper_cluster_metric, AahMetric::kCosine);
  EXPECT_EQ(run.fixed_hierarchy_seed, 7);  // experiment.seed
  EXPECT_EQ(run.config_hash, Sha256Hex(Yaml({"aah_v3_enabled: true"})));
  EXPECT_FALSE(FixedWindows(run).has_value());
}

TEST(AahRun, ReadsEveryKeyOfTheController) {
  const AahRun run = Must(Yaml({"aah_v3_enabled: yes",
                                "aah_v3_windows: [16, 32]",
                                "aah_v3_build_hierarchy: off",
                                "aah_v3_reuse_group_hierarchy: true",
                                "aah_v3_parent_constraint: false",
                                "aah_v3_hierarchy_ablation_mode: fixed_random",
                                "aah_v3_controller_choice_mode: oracle_alternating",
                                "aah_v3_controller_pairwise_mode: sibling_bias",
                                "aah_v3_group_feature_mode: mean_global_offset",
                                "aah_v3_upper_cluster_metric: centered_cosine",
                                "aah_v3_controller_input_mode: 'position_aware'",
                                "aah_v3_controller_arch: deep_mlp",
                                "aah_v3_control_dim: 17",
                                "aah_v3_joint_hidden_dim: 18",
                                "aah_v3_control_interval: 5",
                                "aah_v3_max_depth: 4",
                                "aah_v3_min_group_size: 3",
                                "aah_v3_warmup_steps: 100",
                                "aah_v3_post_warmup_ramp_steps: 9",
                                "aah_v3_W_min_gpu: 1",
                                "aah_v3_fixed_hierarchy_seed: 1338",
                                "aah_v3_sim_threshold: -0.5",
                                "aah_v3_super_threshold: 0.76",
                                "aah_v3_ema_alpha: 0",
                                "aah_v3_resolution_ema_alpha: 0.15",
                                "aah_v3_churn_penalty: 2e-2",
                                "aah_v3_upper_l2_threshold: -0.8",
                                "aah_v3_cosine_normdiff_scale: 1.0",
                                "aah_v3_controller_logit_scale: -0.6",
                                "aah_v3_pairwise_bias_scale: 1.4",
                                "aah_v3_joint_output_scale: .5",
                                "aah_v3_diagnostic_detail: full",
                                "aah_v3_of_tomorrow: 1"}));
  EXPECT_EQ(run.windows, (std::vector<int64_t>{16, 32}));
  EXPECT_FALSE(run.build_hierarchy);
  EXPECT_TRUE(run.reuse_group_hierarchy);
  EXPECT_FALSE(run.parent_constraint);
  EXPECT_EQ(run.hierarchy_ablation_mode, AahHierarchy::kFixedRandom);
  EXPECT_EQ(run.controller_choice_mode, AahChoice::kOracleAlternating);
  EXPECT_EQ(run.controller_pairwise_mode, AahPairwise::kSiblingBias);
  EXPECT_EQ(run.group_feature_mode, AahAggregation::kMeanGlobalOffset);
  EXPECT_EQ(run.upper_cluster_metric, AahMetric::kCenteredCosine);
  EXPECT_EQ(run.controller_input_mode, AahInput::kPositionAware);
  EXPECT_EQ(run.controller_arch, AahArch::kDeepMlp);
  const std::vector<int64_t> ints = {
      run.control_dim,         run.joint_hidden_dim, run.control_interval,       run.max_depth,
      run.min_group_size,      run.warmup_steps,     run.post_warmup_ramp_steps, run.w_min_gpu,
      run.fixed_hierarchy_seed};
  EXPECT_EQ(ints, (std::vector<int64_t>{17, 18, 5, 4, 3, 100, 9, 1, 1338}));
  const std::vector<double> reals = {
      run.sim_threshold,         run.super_threshold,        run.ema_alpha,
      run.resolution_ema_alpha,  run.churn_penalty,          run.upper_l2_threshold,
      run.cosine_normdiff_scale, run.controller_logit_scale, run.pairwise_bias_scale,
      run.joint_output_scale};
  EXPECT_EQ(reals, (std::vector<double>{-0.5, 0.76, 0.0, 0.15, 0.02, -0.8, 1.0, -0.6, 1.4, 0.5}));
  EXPECT_EQ(run.unknown_keys, std::vector<std::string>{"aah_v3_of_tomorrow"});
}

TEST(AahRun, TakesTheOlderNamesOfTheFlags) {
  const AahRun old = Must(Yaml(
      {"aah_v3_enabled: true", "aah_v3_grouping_enabled: false", "aah_v3_control_enabled: false"}));
  EXPECT_FALSE(old.build_hierarchy || old.apply_window_control);
  const AahRun both =
      Must(Yaml({"aah_v3_grouping_enabled: false", "aah_v3_build_hierarchy: true"}));
  EXPECT_TRUE(both.build_hierarchy);
}

TEST(AahRun, RefusesVersion2ByName) {
  ExpectRefused(Yaml({"aah_v2_enabled: true"}), "aah_v2_enabled in config.yaml: got true");
  ExpectRefused(Yaml({"aah_v2_strides: [1, 2]"}), "aah_v2_strides in config.yaml");
  Must(Yaml({"aah_v2_enabled: false", "aah_v2_strides: [1, 2]"}));
}

TEST(AahRun, NamesKeyGotAndExpected) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"aah_v3_controller_choice_mode: greedy",
       "aah_v3_controller_choice_mode in model of config.yaml: got \"greedy\", expected learned"},
      {"aah_v3_controller_choice_mode: fixed_window_", "got \"fixed_window_\""},
      {"aah_v3_controller_choice_mode: fixed_window_0", "got \"fixed_window_0\""},
      {"aah_v3_controller_choice_mode: fixed_window_12x", "got \"fixed_window_12x\""},
      {"aah_v3_controller_choice_mode: fixed_window_99999999999999999999", "got \"fixed_window_9"},
      {"aah_v3_hierarchy_ablation_mode: frozen", "got \"frozen\", expected one of adaptive, "},
      {"aah_v3_controller_pairwise_mode: 3", "got 3, expected a string"},
      {"aah_v3_upper_cluster_metric: dot", "got \"dot\", expected one of cosine, "},
      {"aah_v3_windows: 512", "aah_v3_windows in model of config.yaml: got 512, expected a list"},
      {"aah_v3_windows: []", "got an array of 0"},
      {"aah_v3_windows: [512, 0]", "got 0, expected windows from 1"},
      {"aah_v3_windows: [512, 1024.5]", "got 1024.5"},
      {"aah_v3_windows: [.nan]", "got \".nan\""},
      {"aah_v3_windows: [99999999999]", "got 99999999999"},
      {"aah_v3_enabled: 1", "got 1, expected true or false"},
      {"aah_v3_max_depth: 0", "aah_v3_max_depth in model of config.yaml: got 0"},
      {"aah_v3_ema_alpha: 1.5", "got 1.5, expected a number from 0 to 1"},
      {"aah_v3_sim_threshold: .inf", "got \".inf\", expected a number"},
      {"aah_v3_control_dim: 1_000", "got \"1_000\""},
      {"aah_v3_control_dim: 010", "got \"010\""}};
  for (const auto& [line, says] : cases) ExpectRefused(Yaml({line}), says);
  ExpectRefused("data: {seq_len: 8}\n", "model in config.yaml: got nothing");
  ExpectRefused("model: 3\ndata: {seq_len: 8}\n", "model of config.yaml: got 3");
  ExpectRefused("[1]", "got an array of 1");
  ExpectRefused("data: {seq_len: 8}\nmodel: {n_layer: 1, n_head: 5, n_embd: 8, n_ff: 8}\n",
                "n_head in model of config.yaml: got 5, expected a divisor of n_embd 8");
  ExpectRefused("data: {seq_len: 8}\nmodel: {n_layer: 99999999999, n_head: 1, n_embd: 8}\n",
                "n_layer in model of config.yaml: got 99999999999");
  ExpectRefused("data: {}\nmodel: {}\n", "seq_len in data of config.yaml: got nothing");
}

TEST(FixedWindows, GivesWhatTheRunFixes) {
  const auto windows = [](const std::vector<std::string>& keys) -> std::optional<int32_t> {
    std::vector<std::string> all = {"aah_v3_windows: [24, 12, 48, 36]"};
    all.insert(all.end(), keys.begin(), keys.end());
    const std::optional<WindowTable> table = FixedWindows(Must(Yaml(all)));
    if (!table) return std::nullopt;
    EXPECT_EQ(table->layers(), 2);
    EXPECT_EQ(table->heads(), 6);
    EXPECT_EQ(table->train_context(), 96);
    EXPECT_EQ(table->at(1, 5), table->at(0, 0));
    return table->at(0, 0).window;
  };
  const std::string on = "aah_v3_enabled: true";
  const std::string no_control = "aah_v3_apply_window_control: false";
  EXPECT_EQ(windows({}), kFullWindow);
  EXPECT_EQ(windows({"aah_v3_enabled: false"}), kFullWindow);
  EXPECT_EQ(windows({on, no_control, "aah_v3_build_hierarchy: false"}), kFullWindow);
  EXPECT_EQ(windows({on, no_control}), 12);  // T is no choice: the smallest
  EXPECT_EQ(windows({on}), std::nullopt);
  EXPECT_EQ(windows({on, "aah_v3_build_hierarchy: false"}), std::nullopt);
  const std::string mode = "aah_v3_controller_choice_mode: ";
  EXPECT_EQ(windows({on, mode + "oracle_alternating"}), std::nullopt);
  EXPECT_EQ(windows({on, mode + "fixed_window_40"}), 36);
  EXPECT_EQ(windows({on, mode + "fixed_window_18"}), 24);  // a tie: the first
  EXPECT_EQ(windows({on, mode + "fixed_window_9223372036854775807"}), 48);
  EXPECT_EQ(windows({on, mode + "fixed_window_idx_1"}), 12);
  EXPECT_EQ(windows({on, mode + "fixed_window_idx_9"}), 36);
  EXPECT_EQ(windows({on, mode + "fixed_window_idx_-3"}), 24);
  EXPECT_EQ(windows({on, no_control, mode + "fixed_window_40"}), 12);
  const std::optional<WindowTable> full_size =
      FixedWindows(Must(Yaml({on, no_control, "aah_v3_windows: [32, 96]"})));
  ASSERT_TRUE(full_size.has_value());
  EXPECT_EQ(full_size->at(0, 0).window, 96);
  EXPECT_EQ(FixedWindows(Must(Yaml({on, no_control, "aah_v3_windows: [32, 96]"})), 80)->at(0, 0),
            (HeadWindow{32, 0}));
}

TEST(AahSidecar, ChecksHashAndRole) {
  const TempDir dir;
  const AahRun run = Must(Yaml({}));
  const auto read = [&](const std::string& text) {
    testing::WriteFile(dir / "m.json", text);
    return ReadAahSidecar(dir / "m.json", run);
  };
  const auto good = read("{\"config_hash\": \"" + run.config_hash +
                         "\", \"checkpoint_role\": \"near_end\", \"step\": 110}");
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ(good->role, "near_end");
  EXPECT_EQ(good->step, 110);
  const auto refused = [&](const std::string& text, const std::string& says) {
    const auto sidecar = read(text);
    ASSERT_FALSE(sidecar.ok()) << says;
    EXPECT_NE(sidecar.status().message().find(says), std::string::npos)
        << sidecar.status().message();
  };
  refused("{\"config_hash\": \"00\", \"checkpoint_role\": \"final\"}",
          "got \"00\", expected that of config.yaml, " + run.config_hash);
  refused("{\"config_hash\": \"" + run.config_hash + "\", \"checkpoint_role\": \"best\"}",
          "got \"best\", expected final or near_end");
  refused("{}", "config_hash in ");
  refused("[]", "expected a JSON object");
}

TEST(ParseYaml, RefusesWhatIsNotPlain) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a: &x 1\nb: 2", "line 1 of f: got an anchor"},
      {"a: 1\nb: *x", "line 2 of f: got a syntax error"},
      {"a: &x 1\nb: *x", "got an anchor"},
      {"a: !!python/object/apply:os.system [ls]", "got the tag "},
      {"a: !!str 3", "got the tag \"tag:yaml.org,2002:str\""},
      {"a: 1\na: 2", "line 2 of f: got key \"a\" twice"},
      {"a: 1\n---\nb: 2", "got several documents"},
      {"<<: {a: 1}", "got a merge key"},
      {"? [a]\n: 1", "got a container as a key"},
      {std::string(17, '[') + std::string(17, ']'), "got more than 16 levels"},
      {std::string(100000, '['), "line 1 of f: got "},
      {"a: [1", "got a syntax error"},
      {"a: \xFF", "got bytes that are not UTF-8"},
      {std::string("a: 1\0", 5), "got a NUL byte"},
      {std::string(300000, ' '), "got 300000 bytes, expected at most 262144"},
      {"", "got no document"}};
  for (const auto& [text, says] : cases) {
    const Result<Json> json = ParseYaml(text, "f");
    ASSERT_FALSE(json.ok()) << says;
    EXPECT_NE(json.status().message().find(says), std::string::npos)
        << json.status().message() << "\nshould say: " << says;
    EXPECT_EQ(json.status().message().find('\n'), std::string::npos);
  }
}

TEST(ParseYaml, ReadsScalarsAsPyYamlDoes) {
  const Result<Json> json = ParseYaml(
      "a: [1, -2, +3, 1.5, 1e-3, .5, ~, null, yes, Off, TRUE, \"1\", 'no', text, 1_0, .inf, 0x10]\n"
      "b: {c: , d: []}\n# a comment\n",
      "f");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(*json, Json::parse(R"({"a": [1, -2, 3, 1.5, 0.001, 0.5, null, null, true, false, true,
      "1", "no", "text", "1_0", ".inf", "0x10"], "b": {"c": null, "d": []}})"));
}

TEST(AahRun, ReadsTheReleasesRuns) {
  const auto fixtures = testing::FixturesDir();
  if (!fixtures) GTEST_SKIP() << "LOOKBACK_FIXTURES is not set";
  int cases = 0;
  int fixed = 0;
  for (const auto& entry : fs::directory_iterator(*fixtures + "/aah")) {
    const std::string folder = entry.path().string();
    if (!fs::exists(folder + "/config.yaml")) continue;
    ++cases;
    const auto run = ReadAahRun(folder + "/config.yaml");
    ASSERT_TRUE(run.ok()) << run.status().message();
    EXPECT_TRUE(run->unknown_keys.empty()) << run->unknown_keys[0];
    const auto sidecar = ReadAahSidecar(folder + "/model.pt.meta.json", *run);
    ASSERT_TRUE(sidecar.ok()) << sidecar.status().message();
    EXPECT_EQ(sidecar->variant, run->variant);
    // The length of the forwards that the expected table was made with.
    const Result<Json> facts = ReadJsonFile(folder + "/case.json");
    ASSERT_TRUE(facts.ok());
    const std::optional<WindowTable> table = FixedWindows(*run, *JsonInt((*facts)["T"]));
    if (!table) continue;
    ++fixed;
    const auto expected = testing::ReadInts(folder + "/expected.safetensors", "window_table");
    for (int64_t i = 0; i < run->layers * run->heads; ++i) {
      const HeadWindow head = table->at(i / run->heads, i % run->heads);
      EXPECT_EQ(head.full() ? run->seq_len : head.window, expected[static_cast<size_t>(i)])
          << folder;
    }
  }
  EXPECT_EQ(cases, 24);
  EXPECT_EQ(fixed, 3);
}

}  // namespace
}  // namespace lookback::tools
