#include "engine/request.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::kInf;
using testing::kNan;
constexpr int64_t kContext = 512;

ModelConfig Config() {
  ModelConfig config;
  config.vocab_size = 4096;
  return config;
}

TokenizerInfo Info() {
  TokenizerInfo info;
  info.stop_ids = {2, 5, 70000};
  return info;
}

GenerateRequest Request() {
  GenerateRequest request;
  request.prompt_ids = {1, 2, 3};
  return request;
}

Result<GenerateParams> Resolve(GenerateRequest request, const GenerationDefaults& defaults = {}) {
  return ResolveRequest(std::move(request), Config(), Info(), defaults, Limits(), kContext);
}

struct BadCase {
  const char* name;
  void (*change)(GenerateRequest&);
  const char* message;
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.name; }

class BadRequestTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadRequestTest, IsRefusedByName) {
  GenerateRequest request = Request();
  GetParam().change(request);
  const auto result = Resolve(std::move(request));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(result.status().message(), GetParam().message);
}

const BadCase kBadNumbers[] = {
    {"TemperatureNegative", [](GenerateRequest& r) { r.temperature = -1; },
     "temperature: got -1, expected a finite number from 0 to 100"},
    {"TemperatureNan", [](GenerateRequest& r) { r.temperature = kNan; },
     "temperature: got nan, expected a finite number from 0 to 100"},
    {"TemperatureInfinite", [](GenerateRequest& r) { r.temperature = kInf; },
     "temperature: got inf, expected a finite number from 0 to 100"},
    {"TemperatureHigh", [](GenerateRequest& r) { r.temperature = 101; },
     "temperature: got 101, expected a finite number from 0 to 100"},
    {"TopKNegative", [](GenerateRequest& r) { r.top_k = -1; },
     "top_k: got -1, expected 0 to 2147483647"},
    {"TopKHigh", [](GenerateRequest& r) { r.top_k = std::numeric_limits<int64_t>::max(); },
     "top_k: got 9223372036854775807, expected 0 to 2147483647"},
    {"TopPZero", [](GenerateRequest& r) { r.top_p = 0; },
     "top_p: got 0, expected a finite number above 0, up to 1"},
    {"TopPNan", [](GenerateRequest& r) { r.top_p = kNan; },
     "top_p: got nan, expected a finite number above 0, up to 1"},
    {"TopPHigh", [](GenerateRequest& r) { r.top_p = 1.5; },
     "top_p: got 1.5, expected a finite number above 0, up to 1"},
    {"MinPNegative", [](GenerateRequest& r) { r.min_p = -0.1; },
     "min_p: got -0.1, expected a finite number from 0 to 1"},
    {"MinPNan", [](GenerateRequest& r) { r.min_p = kNan; },
     "min_p: got nan, expected a finite number from 0 to 1"},
    {"TypicalPZero", [](GenerateRequest& r) { r.typical_p = 0; },
     "typical_p: got 0, expected a finite number above 0, up to 1"},
    {"TypicalPInfinite", [](GenerateRequest& r) { r.typical_p = -kInf; },
     "typical_p: got -inf, expected a finite number above 0, up to 1"},
    {"RepetitionZero", [](GenerateRequest& r) { r.repetition_penalty = 0; },
     "repetition_penalty: got 0, expected a finite number above 0, up to 100"},
    {"RepetitionNan", [](GenerateRequest& r) { r.repetition_penalty = kNan; },
     "repetition_penalty: got nan, expected a finite number above 0, up to 100"},
    {"PresenceHigh", [](GenerateRequest& r) { r.presence_penalty = 2.5; },
     "presence_penalty: got 2.5, expected a finite number from -2 to 2"},
    {"FrequencyNan", [](GenerateRequest& r) { r.frequency_penalty = kNan; },
     "frequency_penalty: got nan, expected a finite number from -2 to 2"},
    {"FrequencyLow", [](GenerateRequest& r) { r.frequency_penalty = -2.5; },
     "frequency_penalty: got -2.5, expected a finite number from -2 to 2"},
    {"BiasId",
     [](GenerateRequest& r) {
       r.logit_bias = {{1, 1.0}, {4096, 1.0}};
     },
     "logit_bias[1]: got 4096, expected 0 to 4095"},
    {"BiasHigh",
     [](GenerateRequest& r) {
       r.logit_bias = {{1, 100.5}};
     },
     "logit_bias[0]: got 100.5, expected a finite number from -100 to 100"},
    {"BiasNan",
     [](GenerateRequest& r) {
       r.logit_bias = {{1, kNan}};
     },
     "logit_bias[0]: got nan, expected a finite number from -100 to 100"},
    {"BiasTwice",
     [](GenerateRequest& r) {
       r.logit_bias = {{7, 1.0}, {3, 0.0}, {7, 1.0}};
     },
     "logit_bias: got id 7 twice, expected every id once"},
    {"BiasMany",
     [](GenerateRequest& r) {
       r.logit_bias.assign(1025, {1, 1.0});
     },
     "logit_bias: got 1025 entries, expected at most 1024"},
    {"NZero", [](GenerateRequest& r) { r.n = 0; }, "n: got 0, expected 1 to 8"},
    {"NHigh", [](GenerateRequest& r) { r.n = 9; }, "n: got 9, expected 1 to 8"},
    {"TopLogprobsNegative", [](GenerateRequest& r) { r.top_logprobs = -1; },
     "top_logprobs: got -1, expected 0 to 20"},
    {"TopLogprobsHigh", [](GenerateRequest& r) { r.top_logprobs = 21; },
     "top_logprobs: got 21, expected 0 to 20"},
    {"PromptLogprobsHigh", [](GenerateRequest& r) { r.prompt_logprobs = 21; },
     "prompt_logprobs: got 21, expected 0 to 20"},
};
INSTANTIATE_TEST_SUITE_P(Numbers, BadRequestTest, ::testing::ValuesIn(kBadNumbers),
                         [](const auto& info) { return std::string(info.param.name); });

const BadCase kBadTexts[] = {
    {"PromptEmpty", [](GenerateRequest& r) { r.prompt_ids.clear(); },
     "prompt_ids: got an empty prompt, expected at least 1 token"},
    {"PromptId",
     [](GenerateRequest& r) {
       r.prompt_ids = {1, 2, 3, 999999};
     },
     "prompt_ids[3]: got 999999, expected 0 to 4095"},
    {"PromptIdNegative", [](GenerateRequest& r) { r.prompt_ids = {-1}; },
     "prompt_ids[0]: got -1, expected 0 to 4095"},
    {"PromptLong", [](GenerateRequest& r) { r.prompt_ids.assign(512, 1); },
     "prompt_ids: got 512 tokens, expected at most 511 (the context is 512 tokens, one at least "
     "for the answer)"},
    {"PromptLongScoring",
     [](GenerateRequest& r) {
       r.prompt_ids.assign(513, 1);
       r.prompt_logprobs = 0;
       r.max_new_tokens = 0;
     },
     "prompt_ids: got 513 tokens, expected at most 512 (the context is 512 tokens)"},
    {"NewTokensNegative", [](GenerateRequest& r) { r.max_new_tokens = -1; },
     "max_new_tokens: got -1, expected 1 to 509 (a context of 512 tokens less a prompt of 3)"},
    {"NewTokensBeyondTheContext", [](GenerateRequest& r) { r.max_new_tokens = 510; },
     "max_new_tokens: got 510, expected 1 to 509 (a context of 512 tokens less a prompt of 3)"},
    {"NewTokensAbsurd",
     [](GenerateRequest& r) { r.max_new_tokens = std::numeric_limits<int64_t>::max(); },
     "max_new_tokens: got 9223372036854775807, expected 1 to 509 (a context of 512 tokens less a "
     "prompt of 3)"},
    {"NewTokensZero", [](GenerateRequest& r) { r.max_new_tokens = 0; },
     "max_new_tokens: got 0, expected at least 1 (0 only together with prompt_logprobs)"},
    {"MinNewTokensNegative", [](GenerateRequest& r) { r.min_new_tokens = -1; },
     "min_new_tokens: got -1, expected 0 to 256 (max_new_tokens)"},
    {"MinNewTokensHigh",
     [](GenerateRequest& r) {
       r.max_new_tokens = 4;
       r.min_new_tokens = 5;
     },
     "min_new_tokens: got 5, expected 0 to 4 (max_new_tokens)"},
    {"StopEmpty",
     [](GenerateRequest& r) {
       r.stop = {"a", ""};
     },
     "stop[1]: got 0 bytes, expected 1 to 256 bytes"},
    {"StopLong", [](GenerateRequest& r) { r.stop = {std::string(257, 'a')}; },
     "stop[0]: got 257 bytes, expected 1 to 256 bytes"},
    {"StopMany", [](GenerateRequest& r) { r.stop.assign(17, "a"); },
     "stop: got 17 entries, expected at most 16"},
    {"StopNotUtf8", [](GenerateRequest& r) { r.stop = {"a\xFF"}; },
     "stop[0]: got \"a\\xFF\", expected valid UTF-8"},
    {"StopIdHigh",
     [](GenerateRequest& r) {
       r.stop_token_ids = {1, 4096};
     },
     "stop_token_ids[1]: got 4096, expected 0 to 4095"},
    {"StopIdsMany", [](GenerateRequest& r) { r.stop_token_ids.assign(65, 1); },
     "stop_token_ids: got 65 entries, expected at most 64"},
    {"RequestIdLong", [](GenerateRequest& r) { r.request_id.assign(257, 'x'); },
     "request_id: got 257 bytes, expected at most 256"},
    {"RequestIdControl", [](GenerateRequest& r) { r.request_id = "a\nb"; },
     "request_id: got \"a\\x0Ab\", expected printable ASCII"},
    {"RequestIdNotAscii", [](GenerateRequest& r) { r.request_id = "\xC3\xA9"; },
     "request_id: got \"\xC3\xA9\", expected printable ASCII"},
};
INSTANTIATE_TEST_SUITE_P(Texts, BadRequestTest, ::testing::ValuesIn(kBadTexts),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RequestTest, UnsetFieldsAreOffWithoutDefaults) {
  const auto params = Resolve(Request());
  ASSERT_TRUE(params.ok()) << params.status().message();
  EXPECT_EQ(params->sampling.temperature, 1.0);
  EXPECT_EQ(params->sampling.top_k, 0);
  EXPECT_EQ(params->sampling.top_p, 1.0);
  EXPECT_EQ(params->sampling.repetition_penalty, 1.0);
  EXPECT_EQ(params->n, 1);
  EXPECT_EQ(params->max_new_tokens, 256);
  EXPECT_EQ(params->top_logprobs, -1);
  EXPECT_EQ(params->prompt_logprobs, -1);
  EXPECT_EQ(params->stop_ids, (std::vector<int32_t>{2, 5}));  // 70000 is outside the vocabulary
  EXPECT_EQ(params->request_id.size(), 32U);
}

TEST(RequestTest, TheModelsDefaultsFillUnsetFieldsAndTheRequestWins) {
  GenerationDefaults defaults;
  defaults.temperature = 0.8;
  defaults.top_k = 40;
  defaults.top_p = 0.95;
  GenerateRequest request = Request();
  request.top_k = 0;  // explicit zero is not "unset"
  request.temperature = 0;
  const auto params = Resolve(request, defaults);
  ASSERT_TRUE(params.ok()) << params.status().message();
  EXPECT_EQ(params->sampling.temperature, 0.0);
  EXPECT_EQ(params->sampling.top_k, 0);
  EXPECT_EQ(params->sampling.top_p, 0.95);
  defaults.top_p = kNan;
  EXPECT_EQ(Resolve(Request(), defaults).status().message(),
            "the model's default top_p: got nan, expected a finite number above 0, up to 1");
}

TEST(RequestTest, NewTokensAreWhatTheContextLeaves) {
  GenerateRequest request = Request();
  request.prompt_ids.assign(500, 1);
  EXPECT_EQ(Resolve(request)->max_new_tokens, 12);
  request.prompt_ids.assign(511, 1);
  EXPECT_EQ(Resolve(request)->max_new_tokens, 1);
  request = Request();
  request.max_new_tokens = 509;
  EXPECT_EQ(Resolve(request)->max_new_tokens, 509);
}

TEST(RequestTest, ScoringTakesAPromptOfTheWholeContextAndNoNewToken) {
  GenerateRequest request = Request();
  request.prompt_ids.assign(512, 1);
  request.max_new_tokens = 0;
  request.prompt_logprobs = 3;
  const auto params = Resolve(request);
  ASSERT_TRUE(params.ok()) << params.status().message();
  EXPECT_EQ(params->max_new_tokens, 0);
  EXPECT_EQ(params->prompt_logprobs, 3);
}

TEST(RequestTest, StopIdsAreJoinedAndEosCanBeIgnored) {
  GenerateRequest request = Request();
  request.stop_token_ids = {9, 2, 9};
  EXPECT_EQ(Resolve(request)->stop_ids, (std::vector<int32_t>{2, 5, 9}));
  request.ignore_eos = true;
  EXPECT_EQ(Resolve(request)->stop_ids, (std::vector<int32_t>{2, 9}));
}

TEST(RequestTest, LogprobsAloneAskForTheChosenTokens) {
  GenerateRequest request = Request();
  request.logprobs = true;
  EXPECT_EQ(Resolve(request)->top_logprobs, 0);
  request.top_logprobs = 5;
  EXPECT_EQ(Resolve(request)->top_logprobs, 5);
  request.logprobs = false;
  EXPECT_EQ(Resolve(request)->top_logprobs, 5);
}

TEST(RequestTest, SeedsAndIdsAreKeptOrDrawnAfresh) {
  GenerateRequest request = Request();
  const auto first = Resolve(request), second = Resolve(request);
  EXPECT_NE(first->sampling.seed, second->sampling.seed);
  EXPECT_NE(first->request_id, second->request_id);
  request.seed = 0;
  request.request_id = "mine";
  EXPECT_EQ(Resolve(request)->sampling.seed, 0U);
  EXPECT_EQ(Resolve(request)->request_id, "mine");
}

TEST(RequestTest, ASmallVocabularyLimitsTheAlternatives) {
  GenerateRequest request = Request();
  request.top_logprobs = 5;
  ModelConfig config = Config();
  config.vocab_size = 4;
  const auto result = ResolveRequest(request, config, Info(), {}, Limits(), kContext);
  EXPECT_EQ(result.status().message(), "top_logprobs: got 5, expected 0 to 4");
}

}  // namespace
}  // namespace lookback
