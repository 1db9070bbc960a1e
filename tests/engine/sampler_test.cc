#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::kInf;
using testing::kNan;

std::vector<float> RandomLogits(std::mt19937& random, size_t size, float scale) {
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// The rules as one would write them first: maps, full sorts, doubles. Gives id -> probability.
using Distribution = std::map<int32_t, double>;

void Normalize(Distribution& p) {
  double sum = 0.0;
  for (const auto& entry : p) sum += entry.second;
  for (auto& entry : p) entry.second /= sum;
}

// Keeps the first ids of `order` until their probability reaches `mass`.
void KeepUntil(Distribution& p, const std::vector<int32_t>& order, double mass) {
  Distribution kept;
  double sum = 0.0;
  for (const int32_t id : order) {
    if (sum >= mass) break;
    sum += p[id];
    kept[id] = p[id];
  }
  p = kept;
  Normalize(p);
}

std::vector<int32_t> OrderBy(const Distribution& p, const std::map<int32_t, double>& key) {
  std::vector<int32_t> ids;
  for (const auto& entry : p) ids.push_back(entry.first);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return key.at(a) < key.at(b); });
  return ids;
}

Distribution SlowDistribution(const SamplingParams& params, const std::vector<float>& logits,
                              const std::vector<int32_t>& prompt,
                              const std::vector<int32_t>& output,
                              const std::vector<int32_t>& banned) {
  std::map<int32_t, double> x;
  for (size_t i = 0; i < logits.size(); ++i) x[static_cast<int32_t>(i)] = logits[i];
  for (const auto& [id, bias] : params.logit_bias) x[id] += bias;
  for (auto& [id, value] : x) {
    const auto count = std::count(output.begin(), output.end(), id);
    if (count > 0 || std::count(prompt.begin(), prompt.end(), id) > 0) {
      value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
    }
    value -= params.frequency_penalty * static_cast<double>(count);
    if (count > 0) value -= params.presence_penalty;
  }
  for (const int32_t id : banned) x.erase(id);
  for (auto& entry : x) entry.second /= params.temperature;
  std::map<int32_t, double> negative;
  for (const auto& [id, value] : x) negative[id] = -value;
  if (params.top_k > 0) {
    const auto order = OrderBy(x, negative);
    for (size_t i = static_cast<size_t>(params.top_k); i < order.size(); ++i) x.erase(order[i]);
  }
  double max = -1e300;
  for (const auto& entry : x) max = std::max(max, entry.second);
  Distribution p;
  for (const auto& [id, value] : x) p[id] = std::exp(value - max);
  Normalize(p);
  if (params.typical_p < 1.0) {
    double entropy = 0.0;
    for (const auto& entry : p) entropy -= entry.second * std::log(entry.second);
    std::map<int32_t, double> deviation;
    for (const auto& [id, value] : p) deviation[id] = std::abs(-std::log(value) - entropy);
    KeepUntil(p, OrderBy(p, deviation), params.typical_p);
  }
  if (params.top_p < 1.0) KeepUntil(p, OrderBy(p, negative), params.top_p);
  double likeliest = 0.0;
  for (const auto& entry : p) likeliest = std::max(likeliest, entry.second);
  std::erase_if(p, [&](const auto& entry) { return entry.second < params.min_p * likeliest; });
  Normalize(p);
  return p;
}

int32_t SampleId(Sampler& sampler, const SamplingParams& params, const std::vector<float>& logits,
                 int64_t position = 0, const std::vector<int32_t>& prompt = {},
                 const std::vector<int32_t>& output = {}, const std::vector<int32_t>& banned = {}) {
  return sampler.Sample(params, logits, prompt, output, banned, 0, position, -1, nullptr).id;
}

// Draws `draws` times: every id must be one of `expected`, and the counts must fit it by
// chi-square.
void ExpectDistribution(Sampler& sampler, const SamplingParams& params,
                        const std::vector<float>& logits, const std::vector<int32_t>& prompt,
                        const std::vector<int32_t>& output, const std::vector<int32_t>& banned,
                        const Distribution& expected, int draws) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) {
    ++counts[SampleId(sampler, params, logits, i, prompt, output, banned)];
  }
  for (const auto& [id, count] : counts) {
    ASSERT_TRUE(expected.contains(id)) << "id " << id << " drawn " << count << " times";
  }
  double chi_square = 0.0;
  double degrees = -1.0;
  double rare_expected = 0.0, rare_drawn = 0.0;
  for (const auto& [id, p] : expected) {
    if (p * draws < 5) {
      rare_expected += p * draws;
      rare_drawn += counts[id];
      continue;
    }
    const double difference = counts[id] - p * draws;
    chi_square += difference * difference / (p * draws);
    ++degrees;
  }
  if (rare_expected >= 5) {
    chi_square += std::pow(rare_drawn - rare_expected, 2) / rare_expected;
    ++degrees;
  }
  // Mean `degrees`, variance 2·degrees: five standard deviations.
  EXPECT_LE(chi_square, degrees + 5 * std::sqrt(2 * std::max(degrees, 1.0)) + 5);
}

TEST(PhiloxTest, GivesThePublishedVectors) {
  // Random123, tests/kat_vectors, lines "philox4x32 10".
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SamplerTest, GreedyTakesTheLowestIdOnATie) {
  Sampler sampler(5);
  SamplingParams params;
  params.temperature = 0.0;
  EXPECT_EQ(SampleId(sampler, params, {1, 3, 2, 3, 3}), 1);
  EXPECT_EQ(SampleId(sampler, params, {1, 3, 2, 3, 3}, 0, {}, {}, {1}), 3);
  EXPECT_EQ(SampleId(sampler, params, {-1, -3, -2, -3, -0.5}), 4);
}

TEST(SamplerTest, GreedyLooksAtLogitsAfterBiasAndPenalties) {
  Sampler sampler(3);
  SamplingParams params;
  params.temperature = 0.0;
  params.logit_bias = {{2, 5.0F}};
  EXPECT_EQ(SampleId(sampler, params, {1, 2, 0}), 2);
  params.logit_bias.clear();
  params.repetition_penalty = 4.0;
  EXPECT_EQ(SampleId(sampler, params, {1, 2, 0}, 0, {1}), 0);     // 2 / 4 < 1
  EXPECT_EQ(SampleId(sampler, params, {-1, -2, -9}, 0, {0}), 1);  // −1 · 4 < −2
  // Once for an id, however often it was there.
  EXPECT_EQ(SampleId(sampler, params, {1, 8, 0}, 0, {1, 1}, {1, 1}), 1);
}

TEST(SamplerTest, PresenceAndFrequencyCountTheOutputAlone) {
  Sampler sampler(3);
  SamplingParams params;
  params.temperature = 0.0;
  params.presence_penalty = 1.5;
  EXPECT_EQ(SampleId(sampler, params, {1, 2, 0}, 0, {1}), 1);
  EXPECT_EQ(SampleId(sampler, params, {1, 2, 0}, 0, {}, {1}), 0);
  params.presence_penalty = 0.0;
  params.frequency_penalty = 0.4;
  EXPECT_EQ(SampleId(sampler, params, {1, 2, 0}, 0, {1, 1, 1}, {1, 1}), 1);
  EXPECT_EQ(SampleId(sampler, params, {1, 2, 0}, 0, {}, {1, 1, 1}), 0);
  // Scratch is clean again.
  EXPECT_EQ(SampleId(sampler, params, {1, 2, 0}), 1);
}

TEST(SamplerTest, BiasComesBeforeTheRepetitionPenalty) {
  Sampler sampler(2);
  SamplingParams params;
  params.temperature = 0.0;
  params.logit_bias = {{0, 3.0F}};
  params.repetition_penalty = 2.0;
  // (−0.5 + 3) / 2 = 1.25; the other way round it would be −0.5 · 2 + 3 = 2.
  EXPECT_EQ(SampleId(sampler, params, {-0.5F, 1.1F}, 0, {0}), 0);
  EXPECT_EQ(SampleId(sampler, params, {-0.5F, 1.5F}, 0, {0}), 1);
}

TEST(SamplerTest, FollowsTheSlowTwinOverRandomRules) {
  std::mt19937 random(7);
  Sampler sampler(37);
  for (int trial = 0; trial < testing::Trials(60); ++trial) {
    SCOPED_TRACE(trial);
    std::vector<float> logits = RandomLogits(random, 37, 2.0F);
    if (trial % 3 == 0) logits[5] = logits[20] = logits[11];  // ties
    SamplingParams params;
    const auto coin = [&] { return random() % 2 == 0; };
    std::uniform_real_distribution<double> unit(0.05, 1.0);
    params.temperature = 0.3 + unit(random) * 1.5;
    if (coin()) params.top_k = 1 + static_cast<int64_t>(random() % 36);
    if (coin()) params.typical_p = unit(random);
    if (coin()) params.top_p = unit(random);
    if (coin()) params.min_p = unit(random) * 0.3;
    if (coin()) params.repetition_penalty = 0.5 + unit(random) * 2;
    if (coin()) params.presence_penalty = unit(random) * 2 - 1;
    if (coin()) params.frequency_penalty = unit(random) * 2 - 1;
    if (coin()) params.logit_bias = {{3, 1.5F}, {30, -2.0F}};
    params.seed = random();
    const std::vector<int32_t> prompt = {0, 3, 3, 7}, output = {7, 9, 9, 36};
    const std::vector<int32_t> banned =
        coin() ? std::vector<int32_t>{1, 9} : std::vector<int32_t>{};
    const auto expected = SlowDistribution(params, logits, prompt, output, banned);
    ExpectDistribution(sampler, params, logits, prompt, output, banned, expected, 2000);
  }
}

TEST(SamplerTest, PlainSamplingFollowsSoftmax) {
  Sampler sampler(4);
  SamplingParams params;
  params.seed = 99;
  const std::vector<float> logits = {std::log(0.1F), std::log(0.2F), std::log(0.3F),
                                     std::log(0.4F)};
  ExpectDistribution(sampler, params, logits, {}, {}, {}, {{0, 0.1}, {1, 0.2}, {2, 0.3}, {3, 0.4}},
                     100000);
}

TEST(SamplerTest, FiltersWorkOnTheRenormalisedSurvivorsInOrder) {
  Sampler sampler(4);
  SamplingParams params;
  const std::vector<float> logits = {std::log(0.4F), std::log(0.3F), std::log(0.2F),
                                     std::log(0.1F)};
  // Alone top_p 0.5 keeps {0, 1}; after top_k 2 (4/7, 3/7) id 0 is enough.
  params.top_p = 0.5;
  EXPECT_EQ(SlowDistribution(params, logits, {}, {}, {}).size(), 2U);
  params.top_k = 2;
  for (int i = 0; i < 200; ++i) EXPECT_EQ(SampleId(sampler, params, logits, i), 0);
}

TEST(SamplerTest, TiesAtAFilterKeepTheLowerIds) {
  Sampler sampler(6);
  SamplingParams params;
  params.top_k = 2;
  for (int i = 0; i < 200; ++i) {
    const int32_t id = SampleId(sampler, params, {0, 1, 1, 1, 1, 0}, i);
    EXPECT_TRUE(id == 1 || id == 2) << id;
  }
  params.top_k = 0;
  params.top_p = 0.4;  // of six equal ones: three
  for (int i = 0; i < 200; ++i) EXPECT_LT(SampleId(sampler, params, {1, 1, 1, 1, 1, 1}, i), 3);
}

TEST(SamplerTest, ADrawDependsOnSeedChoiceAndPositionAlone) {
  std::mt19937 random(3);
  const auto logits = RandomLogits(random, 500, 1.0F);
  const auto other = RandomLogits(random, 500, 1.0F);
  SamplingParams params;
  params.seed = 0x123456789ABCDEFULL;
  Sampler a(500), b(500);
  std::map<int32_t, int> by_position, by_choice, by_seed;
  for (int i = 0; i < 200; ++i) {
    const auto first = a.Sample(params, logits, {}, {}, {}, 1, i, -1, nullptr);
    SampleId(b, params, other, i * 7);  // something else in between
    EXPECT_EQ(b.Sample(params, logits, {}, {}, {}, 1, i, -1, nullptr).id, first.id);
    ++by_position[first.id];
    ++by_choice[a.Sample(params, logits, {}, {}, {}, i, 0, -1, nullptr).id];
    SamplingParams seeded = params;
    seeded.seed = static_cast<uint64_t>(i) << 32;  // the upper half of the seed counts too
    ++by_seed[SampleId(a, seeded, logits)];
  }
  EXPECT_GT(by_position.size(), 50U);
  EXPECT_GT(by_choice.size(), 50U);
  EXPECT_GT(by_seed.size(), 50U);
}

TEST(SamplerTest, LogitsThatAreNotFiniteAreNeverDrawn) {
  Sampler sampler(5);
  for (const double temperature : {0.0, 1.0, 1e-300, 100.0}) {
    for (const int64_t top_k : {0, 2}) {
      SamplingParams params;
      params.temperature = temperature;
      params.top_k = top_k;
      params.top_p = 0.9;
      params.typical_p = 0.9;
      params.min_p = 0.1;
      EXPECT_EQ(SampleId(sampler, params, {kNan, kInf, -kInf, -3e38F, kNan}), 3);
      EXPECT_EQ(SampleId(sampler, params, {kNan, kNan, kNan, kNan, kNan}), 0);
      EXPECT_EQ(SampleId(sampler, params, {kNan, kInf, kNan, kNan, kNan}, 0, {}, {}, {0, 1}), 2);
      EXPECT_EQ(SampleId(sampler, params, {1, 2, 3, 4, 5}, 0, {}, {}, {0, 1, 2, 3, 4}), 0);
    }
  }
}

TEST(SamplerTest, RulesThatOverflowFloatStillChoose) {
  Sampler sampler(3);
  SamplingParams params;
  params.repetition_penalty = 0.001;
  params.logit_bias = {{0, 100.0F}};
  params.temperature = 1e-6;
  EXPECT_EQ(SampleId(sampler, params, {3e38F, 1, 2}, 0, {0}), 0);
  params.repetition_penalty = 100;
  EXPECT_NE(SampleId(sampler, params, {-3e38F, 1, 2}, 0, {0}), 0);
}

TEST(LogprobTest, ComeFromTheRawLogitsBeforeAnyRule) {
  Sampler sampler(4);
  SamplingParams params;
  params.temperature = 0.0;
  params.logit_bias = {{0, 100.0F}};
  params.repetition_penalty = 3.0;
  const std::vector<float> logits = {std::log(0.1F), std::log(0.2F), std::log(0.3F),
                                     std::log(0.4F)};
  std::vector<TokenLogprob> top;
  const std::vector<int32_t> prompt = {3}, banned = {2};
  const auto token = sampler.Sample(params, logits, prompt, {}, banned, 0, 0, 2, &top);
  EXPECT_EQ(token.id, 0);
  EXPECT_NEAR(token.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(top.size(), 2U);
  EXPECT_EQ(top[0].id, 3);
  EXPECT_NEAR(top[0].logprob, std::log(0.4), 1e-6);
  EXPECT_EQ(top[1].id, 2);
  EXPECT_TRUE(std::isnan(sampler.Sample(params, logits, {}, {}, {}, 0, 0, -1, nullptr).logprob));
}

TEST(LogprobTest, TopIsWhatAFullSortGives) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 50; ++trial) {
    auto logits = RandomLogits(random, 101, 3.0F);
    for (size_t i = 0; i < 30; ++i) logits[random() % 101] = 1.0F;  // ties
    logits[7] = kNan;
    double sum = 0.0;
    for (const float logit : logits) sum += std::isnan(logit) ? 0.0 : std::exp(double{logit});
    std::vector<int32_t> order(101);
    std::iota(order.begin(), order.end(), 0);
    std::erase(order, 7);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    std::vector<TokenLogprob> top = {{-5, 0.0F}};  // what is there stays
    const auto token = TokenLogprobs(logits, 7, 20, &top);
    EXPECT_EQ(token.logprob, -kInf);
    ASSERT_EQ(top.size(), 21U);
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(top[i + 1].id, order[i]);
      const double expected = logits[static_cast<size_t>(order[i])] - std::log(sum);
      EXPECT_NEAR(top[i + 1].logprob, expected, 1e-5);
    }
  }
}

TEST(LogprobTest, NoMoreThanTheVocabularyAndMinusInfinityWithoutAnyFiniteLogit) {
  std::vector<TokenLogprob> top;
  const std::vector<float> logits = {kNan, kInf, -kInf};
  EXPECT_EQ(TokenLogprobs(logits, 1, 20, &top).logprob, -kInf);
  ASSERT_EQ(top.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(top[i].id, static_cast<int32_t>(i));
    EXPECT_EQ(top[i].logprob, -kInf);
  }
}

}  // namespace
}  // namespace lookback
