// The parts that need no engine: command line, stall detector, pump, response messages.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <cctype>
#include <sstream>
#include <thread>

#include "engine/cpus.h"
#include "server/options.h"
#include "server/pump.h"
#include "server/response.h"
#include "server/watchdog.h"

namespace lookback::server {
namespace {

Result<CommandLine> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "lookback-server");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

TEST(Options, DefaultsAreThoseOfTheServer) {
  const auto line = Parse({"--model", "m"});
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_EQ(line->options.model_path, "m");
  EXPECT_EQ(line->options.listen, "127.0.0.1:50051");
  EXPECT_EQ(line->options.engine.compute, ComputeMode::kFast);
  EXPECT_EQ(line->options.drain_timeout_ms, 90'000);
  EXPECT_EQ(line->options.engine.limits.max_queue, 256);
  EXPECT_EQ(Parse({"other"})->options.model_path, "other");
}

TEST(Options, FlagsAndEnvironmentSetThem) {
  setenv("LOOKBACK_MAX_QUEUE", "7", 1);
  setenv("LOOKBACK_LOG_REQUESTS", "1", 1);
  const auto line =
      Parse({"--model", "m", "--kv-memory", "3M", "--compute", "exact", "--kv", "bf16",
             "--block-tokens", "16", "--drain-timeout", "0.5", "--max-requests", "3"});
  unsetenv("LOOKBACK_MAX_QUEUE");
  unsetenv("LOOKBACK_LOG_REQUESTS");
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_EQ(line->options.engine.limits.max_queue, 7);
  EXPECT_TRUE(line->options.log_requests);
  EXPECT_EQ(line->options.engine.kv_memory_bytes, 3 << 20);
  EXPECT_EQ(line->options.engine.compute, ComputeMode::kExact);
  EXPECT_EQ(line->options.engine.kv, KvType::kBF16);
  EXPECT_EQ(line->options.engine.block_tokens, 16);
  EXPECT_EQ(line->options.drain_timeout_ms, 500);
}

TEST(Options, EveryFlagHasItsNameInTheEnvironment) {
  ::testing::internal::CaptureStdout();
  EXPECT_TRUE(Parse({"--help"})->exit_code);
  std::istringstream help(::testing::internal::GetCapturedStdout());
  int flags = 0;
  for (std::string line; std::getline(help, line);) {
    const size_t begin = line.find("--");
    if (line.find_first_not_of(' ') != 2 || begin == std::string::npos) continue;
    const std::string flag = line.substr(begin, line.find_first_of(" ,", begin) - begin);
    if (flag == "--help" || flag == "--version") continue;
    std::string name = "(Env:LOOKBACK_" + flag.substr(2) + ")";
    for (char& c : name) c = c == '-' ? '_' : c;
    for (size_t i = 5; i < name.size(); ++i) {
      name[i] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[i])));
    }
    EXPECT_NE(line.find(name), std::string::npos) << line;
    ++flags;
  }
  EXPECT_GE(flags, 30);
}

TEST(Options, CpusAreThoseOfTheListInItsOrder) {
  const std::vector<int> usable = UsableCpus();
  const std::vector<int> backwards(usable.rbegin(), usable.rend());
  const std::string list = CpuList(backwards);
  const auto line = Parse({"m", "--cpus", list.c_str()});
  ASSERT_TRUE(line.ok()) << line.status().message();
  EXPECT_EQ(line->options.engine.cpus, backwards);
  const std::string twice = list + "," + list;
  EXPECT_EQ(Parse({"m", "--cpus", twice.c_str()}).status().message(),
            StrCat("--cpus: got ", backwards[0], " twice, expected each CPU once (see --help)"));
  setenv("LOOKBACK_CPUS", "3-1", 1);
  EXPECT_EQ(Parse({"m"}).status().message(),
            "--cpus: got \"3-1\", expected CPUs from 0 to 1023, as in 0-3,8 (see --help)");
  unsetenv("LOOKBACK_CPUS");
}

TEST(Options, WrongOnesAreRefusedByName) {
  EXPECT_FALSE(Parse({}).ok());
  for (const auto& [flag, value] :
       std::vector<std::pair<const char*, const char*>>{{"--compute", "quick"},
                                                        {"--kv", "f16"},
                                                        {"--block-tokens", "24"},
                                                        {"--cpus", ""},
                                                        {"--cpus", "3-1"},
                                                        {"--cpus", "x"},
                                                        {"--cpus", "1024"},
                                                        {"--max-queue", "0"},
                                                        {"--max-queue", "-3"},
                                                        {"--max-context", "many"},
                                                        {"--kv-memory", "-1"},
                                                        {"--drain-timeout", "nan"},
                                                        {"--max-step-rows", "4"}}) {
    const auto line = Parse({"--model", "m", flag, value});
    ASSERT_FALSE(line.ok()) << flag << " " << value;
    EXPECT_NE(line.status().message().find(flag), std::string::npos) << line.status().message();
    EXPECT_EQ(line.status().message().find('\n'), std::string::npos);
  }
}

TEST(StallDetector, IsHealthyWhileIdleOrMoving) {
  using std::chrono::seconds;
  StallDetector detector{seconds(30)};
  const StallDetector::Clock::time_point t{};
  EXPECT_TRUE(detector.Observe(t, true, 5));
  EXPECT_TRUE(detector.Observe(t + seconds(29), true, 5));
  EXPECT_FALSE(detector.Observe(t + seconds(30), true, 5));
  EXPECT_TRUE(detector.Observe(t + seconds(31), true, 6));
  EXPECT_TRUE(detector.Observe(t + seconds(60), true, 6));
  EXPECT_TRUE(detector.Observe(t + seconds(100), false, 6));
  EXPECT_TRUE(detector.Observe(t + seconds(129), true, 6));
}

class Counter : public PumpTarget {
 public:
  std::atomic<int> wanted{0};
  std::atomic<int> seen{0};

 private:
  void Run() override { seen.store(wanted.load()); }
};

TEST(Pump, NoWakeIsLostAndTargetsAreReleased) {
  auto counter = std::make_shared<Counter>();
  {
    Pump pump;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 5000; ++i) {
          ++counter->wanted;
          pump.Wake(counter);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(counter->seen.load(), 20'000);
  EXPECT_EQ(counter.use_count(), 1);
}

StreamBatch Tokens(int32_t choices, int32_t each, uint32_t top) {
  StreamBatch batch;
  for (int32_t i = 0; i < each; ++i) {
    for (int32_t c = 0; c < choices; ++c) {
      TokenEvent event;
      event.choice = c;
      event.id = i;
      event.text_begin = static_cast<uint32_t>(batch.text.size());
      event.text_bytes = 1;
      event.top_begin = static_cast<uint32_t>(batch.top.size());
      event.top_count = top;
      batch.text += static_cast<char>('a' + c);
      batch.top.resize(batch.top.size() + top);
      batch.tokens.push_back(event);
    }
  }
  return batch;
}

TEST(ResponseBuilder, CutsWhatASlowReaderLeftAndJoinsToTheSame) {
  const ModelIdentity identity{"demo", "hash", "table", "source"};
  ResponseContext context;
  context.request_id = "r";
  context.prompt = {1, 2, 3};
  context.n = 2;
  context.top_logprobs = 20;
  context.echo = true;
  context.echo_text = "P:";
  ResponseBuilder builder(context, identity);
  std::deque<v1::GenerateResponse> out;
  StreamBatch batch = Tokens(2, 3000, 20);
  batch.done = true;
  for (int32_t c = 0; c < 2; ++c) {
    FinishEvent finish;
    finish.choice = c;
    finish.reason = FinishReason::kLength;
    finish.completion_tokens = 3000;
    batch.finishes.push_back(finish);
  }
  builder.Append(batch, out);
  EXPECT_TRUE(builder.done());
  EXPECT_TRUE(builder.final_status().ok());
  EXPECT_GT(out.size(), 4U);
  EXPECT_TRUE(out.front().has_prompt());
  EXPECT_TRUE(out.back().has_usage());
  EXPECT_EQ(out.back().usage().completion_tokens(), 6000);
  ResponseGatherer gatherer(2);
  for (v1::GenerateResponse& message : out) {
    EXPECT_LT(message.ByteSizeLong(), size_t{512} << 10);
    gatherer.Add(std::move(message));
  }
  const v1::GenerateResponse whole = gatherer.Finish();
  EXPECT_EQ(whole.text(), "P:" + std::string(3000, 'a'));
  EXPECT_EQ(whole.token_ids_size(), 3003);
  EXPECT_EQ(whole.logprobs_size(), 3000);
  EXPECT_EQ(whole.prompt().tokens(), 3);
  EXPECT_EQ(whole.usage().completion_tokens(), 6000);
  ASSERT_EQ(whole.more_choices_size(), 1);
  EXPECT_EQ(whole.more_choices(0).text(), "P:" + std::string(3000, 'b'));
  EXPECT_FALSE(whole.more_choices(0).has_usage());
  EXPECT_TRUE(whole.more_choices(0).model_hash().empty());
}

TEST(ResponseBuilder, SaysHowTheRequestEnded) {
  const ModelIdentity identity{"demo", "hash", "table", "source"};
  for (const auto& [reason, code] :
       {std::pair{FinishReason::kStop, grpc::StatusCode::OK},
        std::pair{FinishReason::kCancelled, grpc::StatusCode::CANCELLED},
        std::pair{FinishReason::kDeadline, grpc::StatusCode::DEADLINE_EXCEEDED}}) {
    ResponseContext context;
    context.prompt = {1};
    ResponseBuilder builder(context, identity);
    std::deque<v1::GenerateResponse> out;
    StreamBatch batch;
    FinishEvent finish;
    finish.reason = reason;
    batch.finishes.push_back(finish);
    batch.done = true;
    builder.Append(batch, out);
    ASSERT_EQ(out.size(), 1U);
    EXPECT_TRUE(out[0].has_finish());
    EXPECT_TRUE(out[0].has_prompt());
    EXPECT_EQ(builder.final_status().error_code(), code);
  }
}

}  // namespace
}  // namespace lookback::server
