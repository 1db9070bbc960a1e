// The stages of the AAH controller, one by one, against numbers worked out by hand or by a plainer
// formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "engine/controller/attention_stats.h"
#include "engine/controller/controller.h"
#include "engine/controller/features.h"
#include "engine/controller/grouping.h"
#include "engine/controller/hierarchy.h"
#include "engine/controller/inputs.h"
#include "engine/controller/selection.h"

namespace lookback::controller {
namespace {

using Ints = std::vector<int64_t>;

/// Features that are zero but for the first few.
Features Of(std::initializer_list<float> values) {
  Features features{};
  std::copy(values.begin(), values.end(), features.begin());
  return features;
}

std::vector<float> RandomFloats(size_t count, uint32_t seed, float offset = 0.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator) + offset;
  return values;
}

TEST(ControllerFeatures, StdIsTheUnbiasedOneAndTheMeanIsOfAbsoluteValues) {
  // Rows of 5 of which the first 2 count.
  const std::vector<float> x = {1, -1, 9, 9, 9, 3, -5, 9, 9, 9};
  const Moments moments = MomentsOf(x.data(), 2, 5, 2);
  EXPECT_EQ(moments.count, 4);
  EXPECT_DOUBLE_EQ(moments.mean_abs, 2.5);
  EXPECT_DOUBLE_EQ(moments.mean, -0.5);
  EXPECT_DOUBLE_EQ(moments.std(), std::sqrt(35.0 / 3.0));
}

TEST(ControllerFeatures, TheStdOfAGroupIsThatOfAllItsNumbers) {
  const auto x = RandomFloats(3 * 7, 1, 100.0F);
  std::vector<Moments> parts;
  for (int64_t i = 0; i < 3; ++i) parts.push_back(MomentsOf(x.data() + 7 * i, 1, 7, 7));
  const Moments all = MomentsOf(x.data(), 1, 21, 21), joined = Union(parts);
  EXPECT_EQ(joined.count, all.count);
  EXPECT_NEAR(joined.mean, all.mean, 1e-12);
  EXPECT_NEAR(joined.mean_abs, all.mean_abs, 1e-12);
  EXPECT_NEAR(joined.std(), all.std(), 1e-12);
  EXPECT_GT(std::abs(all.std() - parts[0].std()), 1e-3);  // the parts do differ
}

TEST(ControllerFeatures, TheFirstValueOfTheEmaIsTakenAsItIs) {
  FeatureEma<kFeatures> ema;
  EXPECT_TRUE(ema.values().empty());
  EXPECT_EQ(ema.Update({Of({4.0F})}, 0.75)[0][0], 4.0F);
  EXPECT_EQ(ema.Update({Of({8.0F})}, 0.75)[0][0], 5.0F);
  EXPECT_EQ(ema.Update({Of({1.0F})}, 0.0)[0][0], 1.0F);
}

TEST(ControllerFeatures, AnAdapterSeesWhereAHeadIs) {
  const HeadMoments moments;
  const auto features = FreshAdapterFeatures(std::vector<HeadMoments>(3, moments), 7);
  EXPECT_EQ(features[1][6], 0.5F);
  EXPECT_EQ(features[2][6], 1.0F);
  EXPECT_EQ(features[2][7], 0.07F);
  EXPECT_EQ(FreshAdapterFeatures(std::vector<HeadMoments>(1, moments), 0)[0][6], 0.0F);
}

TEST(ControllerAttention, AWindowIsThatManyKeysAndTheLastKeyIsUsedByTheLastRowAlone) {
  // Equal scores: every visible key weighs the same.
  const std::vector<float> zeros(6 * 2, 0.0F), out = {3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  const HeadView head = {.q = zeros.data(),
                         .q_stride = 2,
                         .k = zeros.data(),
                         .k_stride = 2,
                         .out = out.data(),
                         .out_stride = 2,
                         .tokens = 6,
                         .head_dim = 2,
                         .window = 4};
  std::vector<float> scratch(6);
  std::vector<RowStats> rows;
  for (int64_t row = 0; row < 6; ++row) rows.push_back(StatsOfRow(head, row, scratch));
  for (int64_t row = 0; row < 6; ++row) {
    const double keys = std::min<double>(4.0, static_cast<double>(row + 1));
    EXPECT_NEAR(rows[static_cast<size_t>(row)].entropy, std::log(keys), 1e-7) << row;
  }
  EXPECT_EQ(rows[4].usage, 0.0);
  EXPECT_DOUBLE_EQ(rows[5].usage, 0.25);
  EXPECT_DOUBLE_EQ(rows[0].norm, 5.0);
  const AttentionStats stats = MeanStats(rows, 6);
  EXPECT_NEAR(stats.entropy, (std::log(2.0) + std::log(3.0) + 3 * std::log(4.0)) / 6 / std::log(6),
              1e-6);
  EXPECT_NEAR(stats.usage, 0.25 / 6, 1e-7);
  EXPECT_NEAR(stats.norm, 5.0 / 6, 1e-6);
  EXPECT_NEAR(MeanStats(rows, 2).entropy, stats.entropy * std::log(6), 1e-6) << "max(1, ln T)";
}

TEST(ControllerGrouping, ItemsJoinTheLikeliestGroupOrOpenOne) {
  const std::vector<Features> items = {Of({1, 0}), Of({0, 2}), Of({3, 0.1F}), Of({1, 1})};
  const auto scores = ScoresOf(items, Metric::kCosine);
  EXPECT_EQ(GreedyGroups(items, scores, {Metric::kCosine, 0.9}), (Groups{{0, 2}, {1}, {3}}));
  EXPECT_EQ(GreedyGroups(items, scores, {Metric::kCosine, 0.5}), (Groups{{0, 2, 3}, {1}}));
}

TEST(ControllerGrouping, TheNormdiffMetricTellsLengthsApart) {
  const std::vector<Features> items = {Of({1}), Of({2}), Of({1.01F})};
  const auto scores = ScoresOf(items, Metric::kCosineNormdiff);
  EXPECT_EQ(GreedyGroups(items, scores, {Metric::kCosineNormdiff, 0.76, 16.0}),
            (Groups{{0, 2}, {1}}));
  EXPECT_EQ(GreedyGroups(items, scores, {Metric::kCosineNormdiff, 0.76, 0.1}), (Groups{{0, 1, 2}}));
}

TEST(ControllerGrouping, L2IsTheDistanceAndCentredItemsAreComparedAroundTheirMean) {
  const std::vector<Features> items = {Of({0}), Of({0.6F}), Of({3})};
  // The square of 0.6 would pass −0.5.
  const auto raw = ScoresOf(items, Metric::kL2);
  EXPECT_EQ(GreedyGroups(items, raw, {Metric::kL2, -0.5}), (Groups{{0}, {1}, {2}}));
  EXPECT_EQ(GreedyGroups(items, raw, {Metric::kL2, -0.7}), (Groups{{0, 1}, {2}}));
  const std::vector<Features> alike = {Of({5, 1}), Of({5, 2}), Of({5, 3.5F})};
  const auto centred = ScoresOf(alike, Metric::kCenteredCosine);
  EXPECT_EQ(GreedyGroups(alike, centred, {Metric::kCenteredCosine, 0.5}), (Groups{{0, 1}, {2}}));
  EXPECT_EQ(GreedyGroups(alike, ScoresOf(alike, Metric::kCosine), {Metric::kCosine, 0.5}),
            (Groups{{0, 1, 2}}));
}

TEST(ControllerGrouping, AForcedSplitTakesTheFirstLeastAlikePairAndTiesGoToTheSmallerSide) {
  // Pairs (0,1), (0,2) and (1,2) are equally unlike; 3 and 4 are as near to 0 as to 1.
  const std::vector<Features> items = {Of({1, 0, 0}), Of({0, 1, 0}), Of({0, 0, 1}), Of({1, 1, 0}),
                                       Of({2, 2, 0})};
  const auto scores = ScoresOf(items, Metric::kCosine);
  EXPECT_EQ(ForceSplit(scores, {}, 0.0), (Groups{{0, 2, 4}, {1, 3}}));
  // Heads of one former group count as more alike: now (0,2) comes first.
  EXPECT_EQ(ForceSplit(scores, Ints{0, 0, 1, 1, 1}, 0.1), (Groups{{0, 1, 3, 4}, {2}}));
}

TEST(ControllerGrouping, OnlyLevelZeroIsSplitByForce) {
  const std::vector<Features> items = {Of({1}), Of({1.1F}), Of({1, 0.1F})};
  const ClusterRules rules = {Metric::kCosine, 0.5, 0.0, 3};
  const Clustering heads = ClusterHeads(items, rules, {}, 0.0);
  EXPECT_TRUE(heads.forced);
  EXPECT_EQ(heads.groups.size(), 2U) << "and a forced split is not merged again";
  EXPECT_EQ(ClusterNodes(items, rules).groups, (Groups{{0, 1, 2}}));
  EXPECT_EQ(ClusterHeads(std::span(items).first(1), rules, {}, 0.0).groups, (Groups{{0}}));
}

TEST(ControllerGrouping, SmallGroupsMergeInOrderUntilTwoAreLeft) {
  const std::vector<Features> items = {Of({1, 0}), Of({1, 0.2F}), Of({1, 0.4F}), Of({0, 1})};
  const auto scores = ScoresOf(items, Metric::kCosine);
  const Groups single = {{0}, {1}, {2}, {3}};
  EXPECT_EQ(MergeSmallGroups(single, scores, {Metric::kCosine, 0.0, 0.0, 3}),
            (Groups{{0, 1, 2}, {3}}));
  EXPECT_EQ(MergeSmallGroups(single, scores, {Metric::kCosine, 0.99, 0.0, 3}), single)
      << "nothing is alike enough";
  EXPECT_EQ(MergeSmallGroups(single, scores, {Metric::kCosine, 0.0, 0.0, 1}), single);
  // 0 goes to 1, which is then large enough and stays; 2 goes to {0, 1}; two are left.
  EXPECT_EQ(MergeSmallGroups(single, scores, {Metric::kCosine, 0.9, 0.0, 2}),
            (Groups{{0, 1, 2}, {3}}));
}

TEST(ControllerGrouping, AnEmptiedGroupCanBeRevived) {
  // At 10, 0, 0 and 25 degrees: the first joins those at 0, and what it was is what the last is
  // likest to.
  const std::vector<Features> items = {Of({0.985F, 0.174F}), Of({1, 0}),    Of({1, 0}),
                                       Of({0.906F, 0.423F}), Of({0, 0, 1}), Of({0, 0, 1})};
  const auto scores = ScoresOf(items, Metric::kCosine);
  EXPECT_EQ(MergeSmallGroups({{0}, {1, 2}, {3}, {4, 5}}, scores, {Metric::kCosine, 0.9, 0.0, 2}),
            (Groups{{3}, {0, 1, 2}, {4, 5}}));
}

TEST(ControllerGrouping, FixedGroupsFollowRuleAndSeed) {
  EXPECT_EQ(AlternatingGroups(5), (Groups{{0, 2, 4}, {1, 3}}));
  EXPECT_EQ(AlternatingGroups(1), (Groups{{0}}));
  // torch.randperm(8) with torch.Generator().manual_seed(20260), as the golden fixed_random has it.
  EXPECT_EQ(RandomGroups(8, 20260), (Groups{{2, 5, 6, 7}, {0, 1, 3, 4}}));
  EXPECT_EQ(RandomGroups(8, 20260 + (int64_t{1} << 32)), RandomGroups(8, 20260));
  EXPECT_EQ(RandomGroups(1, 3), (Groups{{0}}));
  EXPECT_EQ(RandomGroups(5, 3)[0].size(), 2U);
}

TEST(ControllerHierarchy, AggregationsAreTheFourOfTheRelease) {
  const std::vector<Features> below = {Of({1}), Of({3}), Of({8})};
  const Groups groups = {{0, 1}, {2}};
  const auto value = [&](Aggregation mode, size_t group) {
    return Aggregate(below, groups, mode)[group][0];
  };
  EXPECT_EQ(value(Aggregation::kMean, 0), 2.0F);
  EXPECT_EQ(value(Aggregation::kMeanStd, 0), 3.0F);
  EXPECT_EQ(value(Aggregation::kMeanStd, 1), 8.0F);
  EXPECT_EQ(value(Aggregation::kMeanVar, 0), 3.0F);
  EXPECT_EQ(value(Aggregation::kMeanGlobalOffset, 0), 0.0F);
  EXPECT_EQ(value(Aggregation::kMeanGlobalOffset, 1), 12.0F);
}

TEST(ControllerHierarchy, ALevelThatCollapsesIsDroppedAndOneThatDoesNotShrinkIsKept) {
  NativeConfig config;
  config.max_depth = 4;
  config.super_threshold = 0.9;
  std::vector<LevelClustering> clusterings;
  const Level apart = {{{0}, {1, 2}}, {Of({1, 0}), Of({0, 1})}};
  const Hierarchy kept = Grow(apart, config, clusterings);
  EXPECT_EQ(kept.size(), 4U);
  EXPECT_EQ(kept[3].children, (Groups{{0}, {1}}));
  EXPECT_EQ(clusterings.size(), 3U);
  EXPECT_EQ(NodeOfHead(kept, 3, 3), (Ints{0, 1, 1}));
  clusterings.clear();
  const Level alike = {{{0}, {1, 2}}, {Of({1, 0}), Of({1, 0.1F})}};
  EXPECT_EQ(Grow(alike, config, clusterings).size(), 1U);
  ASSERT_EQ(clusterings.size(), 1U);
  EXPECT_EQ(clusterings[0].after_merge, 1);
}

TEST(ControllerHierarchy, PassThroughRepeatsLevelZeroAndRefillKeepsTheTree) {
  NativeConfig config;
  config.max_depth = 3;
  config.group_feature_mode = Aggregation::kMeanGlobalOffset;
  const Level bottom = {{{0, 2}, {1}}, {Of({1}), Of({3})}};
  const Hierarchy hierarchy = PassThrough(bottom, config);
  ASSERT_EQ(hierarchy.size(), 3U);
  EXPECT_EQ(hierarchy[2].children, (Groups{{0}, {1}}));
  EXPECT_EQ(hierarchy[1].features[0][0], 0.0F) << "2 · 1 − 2";
  EXPECT_EQ(hierarchy[2].features[0][0], -2.0F);
  const Hierarchy frozen = {bottom, {{{0, 1}}, {Of({9})}}};
  const Hierarchy refilled = Refill(frozen, bottom, Aggregation::kMean);
  EXPECT_EQ(refilled[1].features[0][0], 2.0F);
  EXPECT_EQ(FamiliesOf(refilled, 0), (Groups{{0, 1}}));
  EXPECT_EQ(FamiliesOf(hierarchy, 2), (Groups{{0, 1}}));
  EXPECT_EQ(FamiliesOf(hierarchy, 0), (Groups{{0}, {1}}));
}

/// Three nodes below one with two children and one with one; five heads.
Hierarchy SmallTree() {
  return {{{{0}, {1, 2, 3}, {4}}, {Of({1}), Of({2}), Of({6})}},
          {{{0, 2}, {1}}, {Of({10}), Of({20})}}};
}

TEST(ControllerInputs, HaveTheWidthsAndPartsOfTheirMode) {
  const Hierarchy tree = SmallTree();
  for (const auto& [name, mode] : NamesOf(InputMode::kBase)) {
    for (size_t level = 0; level < 2; ++level) {
      for (const auto& row : ControllerInputs(tree, level, mode, 5)) {
        EXPECT_EQ(std::ssize(row), InputWidth(mode)) << name;
      }
    }
  }
  const auto low = ControllerInputs(tree, 0, InputMode::kContrastive, 5);
  EXPECT_EQ(low[1][0], 2.0F);
  EXPECT_EQ(low[1][9], 0.0F) << "level";
  EXPECT_EQ(low[1][10], 2.0F - 20.0F) << "from the parent";
  EXPECT_EQ(low[1][19], 2.0F - 3.0F) << "from the level's mean";
  EXPECT_EQ(low[1][28], 0.6F) << "heads";
  EXPECT_EQ(low[1][29], 0.0F) << "an only child has no siblings";
  EXPECT_EQ(low[0][29], 1.0F - 6.0F) << "the other child of node 0 is node 2";
  const auto top = ControllerInputs(tree, 1, InputMode::kContrastive, 5);
  EXPECT_EQ(top[0][9], 1.0F);
  EXPECT_EQ(top[0][10], 0.0F) << "no parent";
  EXPECT_EQ(top[0][28], 2.0F / 3.0F) << "children of the level below";
  EXPECT_EQ(top[0][29], -10.0F) << "at the top all others are siblings";
  const auto relative = ControllerInputs(tree, 0, InputMode::kRelativeSiblingMean, 5);
  EXPECT_EQ(relative[2][9], 5.0F);
  EXPECT_EQ(relative[2][18], -4.0F);
  EXPECT_EQ(relative[2][27], 0.0F);
}

TEST(ControllerInputs, PositionsCountAmongTheChildrenOfOneParent) {
  const auto position = [](const std::vector<float>& row) {
    return std::vector<float>(row.end() - 3, row.end());
  };
  const auto low = ControllerInputs(SmallTree(), 0, InputMode::kPositionAware, 5);
  EXPECT_EQ(position(low[0]), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(position(low[2]), (std::vector<float>{1, 0, 1}));
  EXPECT_EQ(position(low[1]), (std::vector<float>{0, 1, 0})) << "an only child";
  const Hierarchy one = {{{{0, 1}}, {Of({1})}}};
  EXPECT_EQ(position(ControllerInputs(one, 0, InputMode::kPositionAware, 2)[0]),
            (std::vector<float>{0, 0, 0}));
}

/// y = weight · x (+ bias), [out][in] given row by row.
Mlp Linear(int64_t out, int64_t in, std::vector<float> weight, std::vector<float> bias) {
  return {{Dense{out, in, std::move(weight), std::move(bias)}}};
}

TEST(ControllerNetworks, GeluIsTheExactOne) {
  Mlp mlp = Linear(1, 1, {1}, {0});
  mlp.layers.push_back({1, 1, {1}, {0}});
  for (const float x : {-3.0F, -0.7F, 0.0F, 0.4F, 2.0F}) {
    const double want = 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
    EXPECT_NEAR(mlp({{x}})[0], want, 1e-7) << x;
  }
}

TEST(ControllerSelection, JointScoresReplaceLogitsAndAnOddNodeKeepsItsOwn) {
  NativeConfig config;
  config.controller_logit_scale = 10.0;
  config.joint_output_scale = 2.0;
  Networks networks;
  networks.controller = Linear(2, 1, {1, -1}, {0, 0});
  // Logits of a: (a, b); of b: (a − b, b − a).
  networks.joint = Linear(4, 4, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, {0, 0, 0, 0});
  const Rows logits = LevelLogits(networks, config, {{5}, {7}, {9}}, {{0, 2, 1}});
  EXPECT_EQ(logits[0], (std::vector<float>{10, 18}));
  EXPECT_EQ(logits[2], (std::vector<float>{-8, 8}));
  EXPECT_EQ(logits[1], (std::vector<float>{70, -70}));
}

TEST(ControllerSelection, SiblingBiasAddsEvenWhereThereAreNoSiblings) {
  NativeConfig config;
  config.pairwise_bias_scale = 0.5;
  Networks networks;
  networks.controller = Linear(2, 1, {0, 0}, {0, 0});
  networks.sibling_bias = Linear(2, 1, {1, 0}, {0, 4});
  const Rows logits = LevelLogits(networks, config, {{5}, {7}, {12}}, {{0, 1}, {2}});
  EXPECT_EQ(logits[0], (std::vector<float>{-1, 2}));
  EXPECT_EQ(logits[1], (std::vector<float>{1, 2}));
  EXPECT_EQ(logits[2], (std::vector<float>{0, 2}));
}

TEST(ControllerSelection, TiesGoToTheFirstAndHalvesToEven) {
  EXPECT_EQ(Argmax(std::vector<float>{1, 3, 3}), 1);
  EXPECT_EQ(Margin(std::vector<float>{1, 3, 2.5F}), 0.5);
  EXPECT_TRUE(std::isinf(Margin(std::vector<float>{1})));
  EXPECT_EQ(RoundedChoice(0.5F, 4), 0);
  EXPECT_EQ(RoundedChoice(1.5F, 4), 2);
  EXPECT_EQ(RoundedChoice(2.5F, 4), 2);
  EXPECT_EQ(RoundedChoice(3.4F, 3), 2);
}

TEST(ControllerSelection, NoNodePassesItsParent) {
  Ints choices = {3, 0, 2};
  ConstrainToParents({{0, 1}, {2}}, Ints{1, 3}, choices);
  EXPECT_EQ(choices, (Ints{1, 0, 2}));
}

TEST(ControllerSelection, RulesWithoutANetwork) {
  EXPECT_EQ(OracleChoice(0, 4), 1);
  EXPECT_EQ(OracleChoice(3, 4), 2);
  EXPECT_EQ(OracleChoice(3, 2), 1);
  EXPECT_EQ(OracleChoice(2, 1), 0);
  const Ints windows = {64, 128, 256, 96};
  EXPECT_EQ(NearestChoice(windows, 112), 1) << "the first of equals";
  EXPECT_EQ(NearestChoice(windows, 100), 3);
  EXPECT_EQ(UncontrolledChoice(windows, 96), 3);
  EXPECT_EQ(UncontrolledChoice(windows, 97), 0) << "the shortest";
}

TEST(ControllerSelection, TheResolutionEmaStartsAtTheFirstChoiceAndStaysUnrounded) {
  std::vector<float> mean;
  UpdateResolution(Ints{3, 1}, 0.5, mean);
  EXPECT_EQ(mean, (std::vector<float>{3, 1}));
  UpdateResolution(Ints{0, 2}, 0.5, mean);
  EXPECT_EQ(mean, (std::vector<float>{1.5F, 1.5F}));
  UpdateResolution(Ints{0, 2}, 0.5, mean);
  EXPECT_EQ(mean, (std::vector<float>{0.75F, 1.75F}));
}

TEST(AdapterStages, ChoicesMoveFromZeroEveryIntervalAndNeighboursStayClose) {
  AdapterConfig config;
  config.regime = AdapterRegime::kFullAdaptive;
  config.windows = {16, 32, 64, 128};
  config.control_interval = 2;
  // The place of a head decides: the later, the further.
  Mlp network = Linear(4, 8, std::vector<float>(32, 0.0F), {0, 0, 0, -0.5F});
  network.layers[0].weight[3 * 8 + 6] = 1.0F;
  const auto controller = MakeAdapterController(config, network, 5, 0, false);
  const std::vector<HeadMoments> moments(5);
  const Update& first = controller->Choose(moments, 8);
  EXPECT_EQ(first.levels[0].heads, (Groups{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(first.levels[0].raw_index, (Ints{0, 3, 3}));
  EXPECT_EQ(first.levels[0].index, (Ints{0, 1, 2}));
  EXPECT_EQ(first.chosen, (Ints{0, 0, 1, 1, 2}));
  EXPECT_EQ(first.index, (Ints{0, 0, 0, 0, 0})) << "the EMA starts at zero";
  EXPECT_FALSE(first.cached);
  EXPECT_TRUE(controller->Choose(moments, 8).cached);
  for (int update = 1; update < 25; ++update) {
    EXPECT_FALSE(controller->Choose(moments, 8).cached);
    controller->Choose(moments, 8);
  }
  const Update& last = controller->Choose(moments, 8);
  EXPECT_EQ(last.index, (Ints{0, 0, 1, 1, 2}));
  EXPECT_NEAR(last.mean[4], 2.0 * (1.0 - std::pow(0.85, 26)), 1e-5);
}

TEST(AdapterStages, Bf16FeaturesAreRoundedBeforeTheNetwork) {
  AdapterConfig config;
  config.regime = AdapterRegime::kGroupingOff;
  config.windows = {16, 32};
  const Mlp network = Linear(2, 8, std::vector<float>(16, 1.0F), {0, 0});
  for (const bool rounded : {false, true}) {
    const auto controller = MakeAdapterController(config, network, 4, 1, rounded);
    const Update& update = controller->Choose(std::vector<HeadMoments>(4), 8);
    EXPECT_EQ(update.levels[0].heads.size(), 4U);
    EXPECT_EQ(update.levels[0].inputs[0][7], rounded ? 0.010009765625F : 0.01F);
  }
}

}  // namespace
}  // namespace lookback::controller
