// How calls end: cancelled, aborted, expired, drained, refused.
#include <array>
#include <future>

#include "tests/server/fixture.h"
#include "tests/support/support.h"

namespace lookback::server::testing {
namespace {

using std::chrono::milliseconds;
using v1::GenerateRequest;
using v1::GenerateResponse;

/// A stream that has delivered its first message.
struct OpenStream {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<GenerateResponse>> reader;

  OpenStream(TestServer& server, const GenerateRequest& request) {
    reader = server.inference().GenerateStream(&context, request);
    GenerateResponse first;
    EXPECT_TRUE(reader->Read(&first));
  }
};

bool NothingHeld(TestServer& server) {
  return Eventually([&] {
    const EngineLoad load = server.engine().load();
    return load.running + load.waiting == 0 && server.engine().memory().kv_held_bytes == 0;
  });
}

TEST(Lifecycle, ACancelledStreamGivesItsKvBackAndStops) {
  TestServer server;
  OpenStream stream(server, LongRequest(4000));
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext context;
    v1::MemoryReport memory;
    return server.control().GetMemoryReport(&context, {}, &memory).ok() &&
           memory.kv_held_bytes() > 0;
  }));
  stream.context.TryCancel();
  EXPECT_TRUE(NothingHeld(server));
  EXPECT_LT(server.engine().counters().generated_tokens, 4000);
  EXPECT_EQ(Drain(*stream.reader).status.error_code(), grpc::StatusCode::CANCELLED);
}

TEST(Lifecycle, ACancelledUnaryCallGivesItsKvBack) {
  TestServer server;
  grpc::ClientContext context;
  auto call = std::async(std::launch::async, [&] {
    GenerateResponse response;
    return server.inference().Generate(&context, LongRequest(4000), &response);
  });
  ASSERT_TRUE(Eventually([&] { return server.engine().memory().kv_held_bytes > 0; }));
  context.TryCancel();
  EXPECT_EQ(call.get().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(NothingHeld(server));
}

TEST(Lifecycle, AClientThatVanishesGivesItsKvBack) {
  TestServer server;
  {
    auto channel = grpc::CreateCustomChannel(server.server().address(),
                                             grpc::InsecureChannelCredentials(), [] {
                                               grpc::ChannelArguments own;
                                               own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
                                               return own;
                                             }());
    auto stub = v1::Inference::NewStub(channel);
    grpc::ClientContext context;
    auto reader = stub->GenerateStream(&context, LongRequest(4000));
    GenerateResponse first;
    ASSERT_TRUE(reader->Read(&first));
    EXPECT_TRUE(Eventually([&] { return server.engine().load().running > 0; }));
  }  // context and channel go without a word
  EXPECT_TRUE(NothingHeld(server));
}

TEST(Lifecycle, AnExpiredDeadlineEndsTheCallAndGivesItsKvBack) {
  TestServer server;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(150));
  GenerateResponse response;
  const grpc::Status status = server.inference().Generate(&context, LongRequest(4000), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(NothingHeld(server));
  EXPECT_LT(server.engine().counters().generated_tokens, 4000);
}

TEST(Lifecycle, AbortIsIdempotentAndTheStreamSaysCancelled) {
  TestServer server;
  GenerateRequest request = LongRequest(4000);
  request.set_request_id("mine");
  OpenStream stream(server, request);
  v1::AbortRequest abort;
  abort.set_request_id("mine");
  v1::AbortResponse response;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(server.control().Abort(&context, abort, &response).ok());
    EXPECT_TRUE(response.found());
  }
  const Gathered rest = Drain(*stream.reader);
  EXPECT_EQ(rest.status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(rest.finish[0].reason(), v1::Finish::CANCELLED);
  EXPECT_TRUE(rest.messages.back().has_usage());
  ASSERT_TRUE(NothingHeld(server));
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    ASSERT_TRUE(server.control().Abort(&context, abort, &response).ok());
    EXPECT_FALSE(response.found());
  }
  grpc::ClientContext context;
  EXPECT_EQ(server.control().Abort(&context, {}, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(Lifecycle, ARequestIdIsRefusedWhileInUseAndFreeAfterwards) {
  TestServer server;
  GenerateRequest request = LongRequest(4000);
  request.set_request_id("mine");
  OpenStream stream(server, request);
  request.set_max_new_tokens(2);
  const grpc::Status refused = server.Stream(request).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.error_message().rfind("request_id", 0), 0U) << refused.error_message();
  stream.context.TryCancel();
  ASSERT_TRUE(NothingHeld(server));
  EXPECT_TRUE(server.Stream(request).status.ok());
}

TEST(Lifecycle, AReaderThatDoesNotReadSlowsNobodyAndLosesNothing) {
  TestServer server;
  const int tokens = lookback::testing::kSanitized ? 400 : 1500;
  GenerateRequest request = LongRequest(tokens);
  request.set_top_logprobs(20);
  grpc::ClientContext context;
  auto lazy = server.inference().GenerateStream(&context, request);
  const Gathered brisk = server.Stream(LongRequest(100));
  EXPECT_TRUE(brisk.status.ok());
  // The engine finishes the lazy reader's request too, although nobody has read a byte.
  EXPECT_TRUE(server.engine().WaitIdle(std::chrono::seconds(120)));
  EXPECT_TRUE(NothingHeld(server));
  const Gathered late = Drain(*lazy);
  EXPECT_TRUE(late.status.ok()) << late.status.error_message();
  ASSERT_EQ(std::ssize(late.token_ids[0]), tokens);
  EXPECT_TRUE(
      std::equal(brisk.token_ids[0].begin(), brisk.token_ids[0].end(), late.token_ids[0].begin()));
  int logprobs = 0;
  for (const GenerateResponse& message : late.messages) {
    logprobs += message.logprobs_size();
    EXPECT_LT(message.ByteSizeLong(), size_t{1} << 20);
  }
  EXPECT_EQ(logprobs, tokens);
}

TEST(Lifecycle, AFullQueueIsRefusedWithARetryHint) {
  ServerOptions options = DemoOptions();
  options.engine.limits.max_requests = 1;
  options.engine.limits.max_queue = 1;
  TestServer server(options);
  OpenStream running(server, LongRequest(4000));
  grpc::ClientContext waiting_context;
  auto waiting = server.inference().GenerateStream(&waiting_context, LongRequest(1));
  ASSERT_TRUE(Eventually([&] { return server.engine().load().waiting == 1; }));
  grpc::ClientContext context;
  GenerateResponse response;
  const grpc::Status status = server.inference().Generate(&context, LongRequest(1), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(context.GetServerTrailingMetadata().count("retry-after-ms"), 1U);
  running.context.TryCancel();
  EXPECT_TRUE(Drain(*waiting).status.ok());
}

TEST(Lifecycle, ADrainLetsRunningRequestsFinish) {
  TestServer server;
  EXPECT_EQ(server.Health(), "SERVING");
  EXPECT_EQ(server.Health(""), "SERVING");
  OpenStream stream(server, LongRequest(300));
  ASSERT_TRUE(Eventually([&] { return server.engine().load().running == 1; }));
  grpc::ClientContext context;
  v1::DrainResponse response;
  ASSERT_TRUE(server.control().Drain(&context, {}, &response).ok());
  EXPECT_EQ(response.running(), 1);
  EXPECT_EQ(server.Health(), "NOT_SERVING");
  EXPECT_EQ(server.Health(""), "NOT_SERVING");
  const grpc::Status refused = server.Stream(LongRequest(1)).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE) << refused.error_message();
  auto drained = std::async(std::launch::async, [&] { server.server().WaitDrained(); });
  const Gathered rest = Drain(*stream.reader);
  EXPECT_TRUE(rest.status.ok()) << rest.status.error_message();
  EXPECT_EQ(rest.messages.back().usage().completion_tokens(), 300);
  drained.get();
  EXPECT_TRUE(NothingHeld(server));
}

TEST(Lifecycle, ADrainThatRunsOutOfTimeCancelsWithUnavailable) {
  TestServer server;
  OpenStream stream(server, LongRequest(4000));
  server.server().BeginDrain(milliseconds(50));
  auto drained = std::async(std::launch::async, [&] { server.server().WaitDrained(); });
  const Gathered rest = Drain(*stream.reader);
  EXPECT_EQ(rest.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(rest.finish[0].reason(), v1::Finish::CANCELLED);
  drained.get();
}

TEST(Lifecycle, ManyStreamsWithRandomCancelsLeaveNothingBehind) {
  ServerOptions options = DemoOptions();
  options.log_requests = false;
  TestServer server(options);
  const int tokens = lookback::testing::kSanitized ? 20 : 60;
  const Gathered isolated = server.Stream(LongRequest(tokens));
  ASSERT_TRUE(isolated.status.ok());
  std::vector<std::future<void>> clients;
  for (int client = 0; client < 16; ++client) {
    clients.push_back(std::async(std::launch::async, [&, client] {
      for (int round = 0; round < 4; ++round) {
        grpc::ClientContext context;
        auto reader = server.inference().GenerateStream(&context, LongRequest(tokens));
        if ((client + round) % 3 == 0) {
          GenerateResponse message;
          for (int i = 0; i < client % 5; ++i) reader->Read(&message);
          context.TryCancel();
          reader->Finish();
          continue;
        }
        const Gathered all = Drain(*reader);
        EXPECT_TRUE(all.status.ok()) << all.status.error_message();
        EXPECT_EQ(all.token_ids[0], isolated.token_ids[0]);
        EXPECT_EQ(all.text[0], isolated.text[0]);
      }
    }));
  }
  for (std::future<void>& client : clients) client.get();
  EXPECT_TRUE(NothingHeld(server));
}

TEST(Lifecycle, ServersThatCannotStartSayWhy) {
  TestServer server;
  ServerOptions options = DemoOptions();
  options.listen = server.server().address();
  const auto taken = Server::Start(options);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(taken.status().message().rfind("--listen", 0), 0U) << taken.status().message();
  options.model_path = "/nonexistent/model";
  EXPECT_FALSE(Server::Start(options).ok());
}

TEST(Lifecycle, ControlMovesToItsOwnAddress) {
  ServerOptions options = DemoOptions();
  options.control_listen = "127.0.0.1:0";
  TestServer server(options);
  grpc::ClientContext context;
  v1::Load load;
  EXPECT_EQ(server.control().GetLoad(&context, {}, &load).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  const auto control = v1::Control::NewStub(
      grpc::CreateChannel(server.server().control_address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext second;
  EXPECT_TRUE(control->GetLoad(&second, {}, &load).ok());
}

}  // namespace
}  // namespace lookback::server::testing
