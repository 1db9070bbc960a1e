#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "engine/sampler.h"
#include "engine/stop_matcher.h"
#include "engine/stream_writer.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/allocations.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::kNan;

std::shared_ptr<RequestStream> MakeStream(std::function<void()> notify = {}) {
  return std::make_shared<RequestStream>("id", 7, std::move(notify));
}

std::string TextOf(const StreamBatch& batch, const TokenEvent& event) {
  return batch.text.substr(event.text_begin, event.text_bytes);
}

TEST(StreamTest, NothingIsVisibleBeforePublish) {
  int notified = 0;
  const auto stream = MakeStream([&] { ++notified; });
  StreamWriter writer(stream);
  StreamBatch batch;
  writer.AddToken(0, {5, kNan}, "a", {});
  EXPECT_FALSE(stream->Take(batch));
  EXPECT_EQ(notified, 0);
  writer.Publish();
  EXPECT_EQ(notified, 1);
  writer.Publish();  // nothing new
  EXPECT_EQ(notified, 1);
  ASSERT_TRUE(stream->Take(batch));
  ASSERT_EQ(batch.tokens.size(), 1U);
  EXPECT_EQ(batch.tokens[0].id, 5);
  EXPECT_TRUE(std::isnan(batch.tokens[0].logprob));
  EXPECT_EQ(batch.text, "a");
  EXPECT_FALSE(batch.done);
  EXPECT_FALSE(stream->Take(batch));
  EXPECT_TRUE(batch.tokens.empty());
}

TEST(StreamTest, RangesStayRightWhenStepsGather) {
  const auto stream = MakeStream();
  StreamWriter writer(stream);
  const std::vector<TokenLogprob> top = {{1, -0.5F}, {2, -1.5F}};
  writer.AddToken(0, {1, -0.5F}, "héllo", top);
  writer.AddToken(1, {2, -1.5F}, "", {});
  writer.Publish();
  writer.AddToken(0, {3, -2.0F}, " world", {top.data(), 1});
  writer.AddFinish(0, FinishReason::kStop, "###", std::nullopt, "!", 2);
  writer.AddFinish(1, FinishReason::kLength, "", 9, "", 1);
  writer.SetTimings(1.0, 2.0, 3.0);
  writer.SetKvBytesPeak(4096);
  writer.SetDone();
  writer.Publish();
  EXPECT_TRUE(writer.done());
  StreamBatch batch;
  ASSERT_TRUE(stream->WaitAndTake(batch));
  ASSERT_EQ(batch.tokens.size(), 3U);
  EXPECT_EQ(TextOf(batch, batch.tokens[0]), "héllo");
  EXPECT_EQ(TextOf(batch, batch.tokens[1]), "");
  EXPECT_EQ(TextOf(batch, batch.tokens[2]), " world");
  EXPECT_EQ(batch.tokens[2].top_begin, 2U);
  EXPECT_EQ(batch.tokens[2].top_count, 1U);
  ASSERT_EQ(batch.top.size(), 3U);
  ASSERT_EQ(batch.finishes.size(), 2U);
  EXPECT_EQ(batch.text.substr(batch.finishes[0].text_begin, batch.finishes[0].text_bytes), "!");
  EXPECT_EQ(batch.finishes[0].matched_stop, "###");
  EXPECT_EQ(batch.finishes[1].stop_id, 9);
  EXPECT_TRUE(batch.done);
  EXPECT_EQ(batch.decode_ms, 3.0);
  EXPECT_EQ(batch.kv_bytes_peak, 4096);
  EXPECT_FALSE(stream->WaitAndTake(batch));  // returns at once after the end
  EXPECT_TRUE(batch.done);
}

TEST(StreamTest, PromptLogprobsWaitForTheFirstToken) {
  const auto stream = MakeStream();
  StreamWriter writer(stream);
  StreamBatch batch;
  const std::vector<TokenLogprob> top = {{1, -0.5F}};
  for (int chunk = 0; chunk < 3; ++chunk) {
    writer.AddPromptLogprob({chunk, -1.0F}, top);
    writer.Publish();
    EXPECT_FALSE(stream->Take(batch));
  }
  writer.AddToken(0, {5, -1.0F}, "x", {});
  writer.Publish();
  ASSERT_TRUE(stream->Take(batch));
  EXPECT_EQ(batch.prompt_logprobs.size(), 3U);
  EXPECT_EQ(batch.prompt_top.size(), 3U);
  writer.AddToken(0, {5, -1.0F}, "x", {});
  writer.Publish();
  ASSERT_TRUE(stream->Take(batch));
  EXPECT_TRUE(batch.prompt_logprobs.empty());
}

TEST(StreamTest, AnErrorComesWithTheEnd) {
  const auto stream = MakeStream();
  StreamWriter writer(stream);
  writer.AddFinish(0, FinishReason::kError, "", std::nullopt, "", 0);
  writer.SetDone({StatusCode::kInternal, "step failed"});
  writer.Publish();
  StreamBatch batch;
  ASSERT_TRUE(stream->Take(batch));
  EXPECT_EQ(batch.error.message(), "step failed");
  batch.Clear();
  EXPECT_TRUE(batch.error.ok());
  EXPECT_FALSE(batch.done);
}

TEST(StreamTest, BuffersAreReusedWhenTheConsumerKeepsUp) {
  const auto stream = MakeStream();
  StreamWriter writer(stream);
  StreamBatch batch;
  std::vector<const void*> seen;
  for (int step = 0; step < 100; ++step) {
    writer.AddToken(0, {1, kNan}, "token ", {});
    writer.Publish();
    ASSERT_TRUE(stream->Take(batch));
    if (std::find(seen.begin(), seen.end(), batch.text.data()) == seen.end()) {
      seen.push_back(batch.text.data());
    }
  }
  EXPECT_LE(seen.size(), 2U);  // the consumer's and the stream's storage, swapped back and forth
}

TEST(StreamTest, AConsumerThreadSeesEverythingInOrder) {
  const auto stream = MakeStream();
  constexpr int kTokens = 20000;
  std::thread producer([&] {
    StreamWriter writer(stream);
    for (int32_t i = 0; i < kTokens; ++i) {
      writer.AddToken(0, {i, kNan}, std::to_string(i % 10), {});
      if (i % 3 == 0) writer.Publish();
    }
    writer.SetDone();
    writer.Publish();
  });
  StreamBatch batch;
  int32_t next = 0;
  bool in_order = true;
  while (stream->WaitAndTake(batch)) {
    for (const TokenEvent& event : batch.tokens) {
      in_order = in_order && event.id == next && TextOf(batch, event) == std::to_string(next % 10);
      ++next;
    }
  }
  producer.join();
  EXPECT_TRUE(in_order);
  EXPECT_EQ(next, kTokens);
}

// Choosing a token, turning it into text, looking for stops, handing it over and taking it.
TEST(StreamTest, ATokensWholeWayAllocatesNothingInTheSteadyState) {
  const std::string bytes =
      testing::ReadFile(testing::GoldenPath("tokenizers/sp_bpe/tokenizer.model"));
  auto tokenizer = MakeSentencePieceTokenizer(bytes, {});
  if (tokenizer.status().code() == StatusCode::kFailedPrecondition) GTEST_SKIP();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  SamplingParams params;
  params.top_k = 50;
  params.typical_p = 0.95;
  params.top_p = 0.9;
  params.min_p = 0.01;
  params.repetition_penalty = 1.1;
  params.frequency_penalty = 0.5;
  params.logit_bias = {{5, 1.0F}};
  Sampler sampler(2000);
  std::vector<float> logits(2000);
  for (size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>((i * 7919) % 2000) / 300;
  const std::vector<int32_t> prompt = {1, 400, 500}, output = {400, 7}, banned = {2};
  StopMatcher stops(std::vector<std::string>{"never to be found", "e qu"}, false);
  const auto stream = MakeStream();
  StreamWriter writer(stream);
  StreamBatch batch;
  DecodeState state;
  std::vector<TokenLogprob> top;
  std::string text, certain;
  top.reserve(20);
  text.reserve(256);
  certain.reserve(1024);
  int64_t before = 0;
  for (int64_t step = 0; step < 400; ++step) {
    if (step == 10) before = testing::Allocations();
    top.clear();
    text.clear();
    certain.clear();
    const auto token = sampler.Sample(params, logits, prompt, output, banned, 0, step, 20, &top);
    (*tokenizer)->DecodeNext(state, token.id, true, text);
    stops.Feed(text, certain, /*may_stop=*/false);
    writer.AddToken(0, token, certain, top);
    writer.Publish();
    ASSERT_TRUE(stream->Take(batch));
  }
  EXPECT_EQ(testing::Allocations() - before, 0);
}

}  // namespace
}  // namespace lookback
