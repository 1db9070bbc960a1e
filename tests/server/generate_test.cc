#include <numeric>

#include "tests/server/fixture.h"

namespace lookback::server::testing {
namespace {

using v1::GenerateRequest;
using v1::GenerateResponse;

/// The same request straight through the engine.
std::vector<int32_t> EngineIds(Engine& engine, const GenerateRequest& request) {
  lookback::GenerateRequest direct;
  direct.prompt_ids.assign(request.token_ids().ids().begin(), request.token_ids().ids().end());
  direct.temperature = 0.0;
  direct.ignore_eos = true;
  direct.max_new_tokens = request.max_new_tokens();
  auto params = engine.Resolve(std::move(direct));
  EXPECT_TRUE(params.ok()) << params.status().message();
  auto stream = engine.Submit(std::move(params).value());
  EXPECT_TRUE(stream.ok()) << stream.status().message();
  std::vector<int32_t> ids;
  StreamBatch batch;
  do {
    (*stream)->WaitAndTake(batch);
    for (const TokenEvent& token : batch.tokens) ids.push_back(token.id);
  } while (!batch.done);
  return ids;
}

TEST(Generate, StreamEqualsTheEngineAndSaysWhatItShould) {
  TestServer server;
  const GenerateRequest request = LongRequest(40);
  const Gathered stream = server.Stream(request);
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  EXPECT_EQ(stream.token_ids[0], EngineIds(server.engine(), request));
  const GenerateResponse& first = stream.messages.front();
  const GenerateResponse& last = stream.messages.back();
  EXPECT_EQ(first.prompt().tokens(), 4);
  EXPECT_TRUE(first.has_seed());
  EXPECT_EQ(first.model_hash(), server.engine().model().checkpoint->hash());
  EXPECT_EQ(first.window_table_hash(), server.engine().model().config().windows.Hash());
  EXPECT_EQ(last.finish().reason(), v1::Finish::LENGTH);
  EXPECT_EQ(last.finish().completion_tokens(), 40);
  EXPECT_EQ(last.usage().prompt_tokens(), 4);
  EXPECT_EQ(last.usage().completion_tokens(), 40);
  EXPECT_GT(last.kv_bytes_held_peak(), 0);
  EXPECT_GT(last.timings().decode_ms(), 0.0);
  EXPECT_EQ(last.window_source(), server.engine().model().config().windows.source());
  for (const GenerateResponse& message : stream.messages) {
    EXPECT_EQ(message.request_id(), first.request_id());
    EXPECT_EQ(message.logprobs_size(), 0);
  }
}

TEST(Generate, UnaryJoinsTheStream) {
  TestServer server;
  GenerateRequest request = LongRequest(30);
  request.mutable_token_ids()->clear_ids();
  request.set_text("The LORD is my");
  request.set_logprobs(true);
  request.set_top_logprobs(3);
  request.set_prompt_logprobs(2);
  request.set_echo(true);
  const Gathered stream = server.Stream(request);
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  GenerateResponse whole;
  const grpc::Status status = server.Generate(request, &whole);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(whole.text(), stream.text[0]);
  EXPECT_EQ(whole.text().rfind("The LORD is my", 0), 0U) << whole.text();
  EXPECT_EQ(std::vector<int32_t>(whole.token_ids().begin(), whole.token_ids().end()),
            stream.token_ids[0]);
  const int64_t prompt = whole.prompt().tokens();
  EXPECT_EQ(whole.token_ids_size(), prompt + 30);
  ASSERT_EQ(whole.logprobs_size(), 30);
  ASSERT_EQ(whole.prompt().logprobs_size(), prompt - 1);
  for (int i = 0; i < 30; ++i) {
    const v1::TokenLogprobs& entry = whole.logprobs(i);
    EXPECT_EQ(entry.id(), whole.token_ids(static_cast<int>(prompt) + i));
    ASSERT_EQ(entry.top_size(), 3);
    EXPECT_EQ(entry.top(0).id(), entry.id());  // greedy
    EXPECT_EQ(entry.top(0).logprob(), entry.logprob());
  }
  for (int i = 0; i + 1 < prompt; ++i) {
    EXPECT_EQ(whole.prompt().logprobs(i).id(), whole.token_ids(i + 1));
    EXPECT_EQ(whole.prompt().logprobs(i).top_size(), 2);
  }
}

TEST(Generate, ChoicesComeApartAndTheSeedReproducesThem) {
  TestServer server;
  GenerateRequest request = LongRequest(20);
  request.mutable_sampling()->set_temperature(1.5);
  request.mutable_sampling()->set_seed(7);
  request.set_n(3);
  const Gathered stream = server.Stream(request);
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  GenerateResponse whole;
  ASSERT_TRUE(server.Generate(request, &whole).ok());
  ASSERT_EQ(whole.more_choices_size(), 2);
  EXPECT_EQ(whole.usage().completion_tokens(), 60);
  EXPECT_EQ(whole.seed(), 7U);
  EXPECT_EQ(whole.prompt().tokens(), 4);
  EXPECT_NE(stream.token_ids[0], stream.token_ids[1]);
  for (int choice = 0; choice < 3; ++choice) {
    const GenerateResponse& one = choice == 0 ? whole : whole.more_choices(choice - 1);
    EXPECT_EQ(one.index(), choice);
    EXPECT_EQ(one.text(), stream.text[static_cast<size_t>(choice)]);
    EXPECT_EQ(std::vector<int32_t>(one.token_ids().begin(), one.token_ids().end()),
              stream.token_ids[static_cast<size_t>(choice)]);
    EXPECT_EQ(one.finish().reason(), v1::Finish::LENGTH);
    EXPECT_EQ(one.has_usage(), choice == 0);
  }
}

TEST(Generate, StopTextAndStopIdAreNamed) {
  TestServer server;
  GenerateRequest request = LongRequest(40);
  const Gathered free = server.Stream(request);
  ASSERT_TRUE(free.status.ok());
  request.add_stop_token_ids(free.token_ids[0][10]);
  const Gathered by_id = server.Stream(request);
  ASSERT_TRUE(by_id.status.ok());
  EXPECT_EQ(by_id.finish[0].reason(), v1::Finish::STOP);
  EXPECT_EQ(by_id.finish[0].stop_id(), free.token_ids[0][10]);
  request.clear_stop_token_ids();
  const std::string stop = free.text[0].substr(free.text[0].size() / 2, 3);
  request.add_stop(stop);
  const Gathered by_text = server.Stream(request);
  ASSERT_TRUE(by_text.status.ok());
  EXPECT_EQ(by_text.finish[0].reason(), v1::Finish::STOP);
  EXPECT_EQ(by_text.finish[0].matched_stop(), stop);
  EXPECT_EQ(by_text.text[0].find(stop), std::string::npos);
}

TEST(Generate, TextGetsOneBosAndComesBack) {
  TestServer server;
  v1::TokenizeRequest request;
  v1::TokenizeResponse response;
  request.set_text("In the beginning");
  grpc::ClientContext context;
  ASSERT_TRUE(server.inference().Tokenize(&context, request, &response).ok());
  const TokenizerInfo& info = server.engine().model().checkpoint->tokenizer();
  const auto bos = info.bos_id.value_or(-1);
  EXPECT_EQ(std::count(response.token_ids().begin(), response.token_ids().end(), bos),
            info.add_bos ? 1 : 0);
  EXPECT_EQ(response.pieces_size(), response.token_ids_size());
  v1::DetokenizeRequest back;
  v1::DetokenizeResponse text;
  *back.mutable_token_ids() = response.token_ids();
  grpc::ClientContext second;
  ASSERT_TRUE(server.inference().Detokenize(&second, back, &text).ok());
  EXPECT_EQ(text.text(), "In the beginning");
}

TEST(Generate, ScoreSumsThePromptsLogprobs) {
  TestServer server;
  v1::ScoreRequest request;
  v1::ScoreResponse response;
  request.set_text("In the beginning God created the heaven and the earth.");
  request.set_top_logprobs(1);
  grpc::ClientContext context;
  const grpc::Status status = server.inference().Score(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.logprobs_size(), response.token_ids_size() - 1);
  double total = 0.0;
  for (int i = 0; i < response.logprobs_size(); ++i) {
    EXPECT_EQ(response.logprobs(i).id(), response.token_ids(i + 1));
    EXPECT_LE(response.logprobs(i).logprob(), response.logprobs(i).top(0).logprob());
    total += static_cast<double>(response.logprobs(i).logprob());
  }
  EXPECT_DOUBLE_EQ(response.total_logprob(), total);
  EXPECT_EQ(response.usage().completion_tokens(), 0);
  EXPECT_EQ(server.engine().memory().kv_held_bytes, 0);
}

TEST(Generate, ControlReportsWhatRuns) {
  TestServer server;
  ASSERT_TRUE(server.Stream(LongRequest(8)).status.ok());
  ASSERT_EQ(server.engine().load().running, 0);
  grpc::ClientContext a, b, c, d, e;
  v1::ServerInfo info;
  ASSERT_TRUE(server.control().GetServerInfo(&a, {}, &info).ok());
  EXPECT_EQ(info.model(), "demo");
  EXPECT_EQ(info.compute(), "exact");
  EXPECT_EQ(info.max_context(), 4096);
  EXPECT_EQ(info.limits().max_choices(), 8);
  v1::ModelInfo model;
  ASSERT_TRUE(server.control().GetModelInfo(&b, {}, &model).ok());
  EXPECT_EQ(model.config().layers(), 6);
  EXPECT_EQ(model.tokenizer(), "sentencepiece");
  EXPECT_GT(model.acr(), 0.0);
  EXPECT_LT(model.acr(), 1.0);
  v1::Windows windows;
  ASSERT_TRUE(server.control().GetWindows(&c, {}, &windows).ok());
  const WindowTable& table = server.engine().model().config().windows;
  ASSERT_EQ(windows.layers_size(), table.layers());
  for (int64_t layer = 0; layer < table.layers(); ++layer) {
    for (int64_t head = 0; head < table.heads(); ++head) {
      const v1::HeadWindow& got =
          windows.layers(static_cast<int>(layer)).heads(static_cast<int>(head));
      EXPECT_EQ(got.has_window(), !table.at(layer, head).full());
      EXPECT_EQ(got.has_window() ? got.window() : kFullWindow, table.at(layer, head).window);
    }
  }
  EXPECT_LT(windows.kv_full_context_bytes(), windows.kv_full_attention_bytes());
  v1::Load load;
  ASSERT_TRUE(server.control().GetLoad(&d, {}, &load).ok());
  EXPECT_EQ(load.running(), 0);
  EXPECT_GT(load.steps(), 0);
  EXPECT_GT(load.generated_tokens(), 8);  // and the warm-up
  EXPECT_TRUE(load.has_attention_measured_ratio());
  v1::MemoryReport memory;
  ASSERT_TRUE(server.control().GetMemoryReport(&e, {}, &memory).ok());
  EXPECT_EQ(memory.kv_held_bytes(), 0);
  EXPECT_GT(memory.weight_bytes(), 0);
  EXPECT_EQ(memory.kv_held_size(), 6);
}

}  // namespace
}  // namespace lookback::server::testing
