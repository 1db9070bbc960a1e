// The engine as its users see it: batched equals isolated, cancels free memory, limits hold.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "engine/cpus.h"
#include "tests/support/random_model.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::RandomIds;
using testing::RandomModel;
using testing::TinyConfig;
using namespace std::chrono_literals;

std::shared_ptr<const LoadedModel> MixedWindowModel(
    kernels::Element matrices = kernels::Element::kF32) {
  ModelConfig config = testing::QuantizableConfig();
  Json rows = Json::array();
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    rows.push_back({1, 33, 7, 64 + layer, nullptr, 31});
  }
  config.windows =
      WindowTable::FromJson({{"windows", rows}, {"sinks", 3}}, config.layers, config.heads, "test")
          .value();
  return RandomModel(config, 5, matrices);
}

EngineOptions SmallOptions() {
  EngineOptions options;
  options.threads = 2;
  options.max_chunk = 24;
  options.max_step_rows = 96;
  options.limits.max_requests = 64;
  return options;
}

std::unique_ptr<Engine> MakeEngine(const std::shared_ptr<const LoadedModel>& model,
                                   const EngineOptions& options = SmallOptions()) {
  auto engine = Engine::Create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return std::move(engine).value();
}

GenerateRequest Greedy(std::vector<int32_t> prompt, int64_t new_tokens) {
  GenerateRequest request;
  request.prompt_ids = std::move(prompt);
  request.temperature = 0.0;
  request.max_new_tokens = new_tokens;
  return request;
}

std::shared_ptr<RequestStream> MustSubmit(Engine& engine, GenerateRequest request) {
  auto params = engine.Resolve(std::move(request));
  EXPECT_TRUE(params.ok()) << params.status().message();
  auto stream = engine.Submit(std::move(params).value());
  EXPECT_TRUE(stream.ok()) << stream.status().message();
  return *stream;
}

struct Answer {
  std::vector<std::vector<int32_t>> tokens;  // [choice]
  std::vector<float> logprobs;               // of choice 0
  std::vector<FinishEvent> finishes;
  std::vector<TokenLogprob> prompt_logprobs;
  StreamBatch last;
};

Answer Collect(RequestStream& stream) {
  Answer answer;
  StreamBatch batch;
  do {
    stream.WaitAndTake(batch);
    for (const TokenEvent& token : batch.tokens) {
      const auto choice = static_cast<size_t>(token.choice);
      if (answer.tokens.size() <= choice) answer.tokens.resize(choice + 1);
      answer.tokens[choice].push_back(token.id);
      if (choice == 0) answer.logprobs.push_back(token.logprob);
    }
    answer.finishes.insert(answer.finishes.end(), batch.finishes.begin(), batch.finishes.end());
    answer.prompt_logprobs.insert(answer.prompt_logprobs.end(), batch.prompt_logprobs.begin(),
                                  batch.prompt_logprobs.end());
  } while (!batch.done);
  answer.last = batch;
  return answer;
}

Answer RunAlone(const std::shared_ptr<const LoadedModel>& model, GenerateRequest request,
                EngineOptions options = SmallOptions()) {
  options.limits.max_requests = 8;
  options.threads = 1;
  options.max_chunk = 17;
  const auto engine = MakeEngine(model, options);
  return Collect(*MustSubmit(*engine, std::move(request)));
}

void ExpectNothingHeld(Engine& engine) {
  EXPECT_TRUE(engine.WaitIdle(20s));
  const EngineLoad load = engine.load();
  EXPECT_EQ(load.running, 0);
  EXPECT_EQ(load.waiting, 0);
  EXPECT_EQ(load.kv_blocks_held, 0);
  EXPECT_EQ(load.kv_blocks_promised, 0);
}

GenerateRequest RandomRequest(std::mt19937& random, int64_t vocab) {
  const auto draw = [&](uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random()) % (high - low + 1);
  };
  GenerateRequest request = Greedy(RandomIds(draw(1, 120), vocab, draw(0, 1000000)), draw(1, 60));
  switch (draw(0, 3)) {
    case 0:
      request.temperature = 0.9;
      request.seed = random();
      request.top_k = draw(0, 20);
      request.top_p = 0.95;
      break;
    case 1:
      request.temperature = 1.3;
      request.seed = random();
      request.repetition_penalty = 1.2;
      request.frequency_penalty = 0.3;
      request.typical_p = 0.9;
      break;
    case 2:
      request.top_logprobs = 2;
      break;
    default:
      break;
  }
  return request;
}

/// So many streams at once, submitted and cancelled at random: each is what it is alone.
void ExpectStreamsEqualTheirIsolatedRuns(const std::shared_ptr<const LoadedModel>& model,
                                         const EngineOptions& options, size_t streams) {
  const auto engine = MakeEngine(model, options);
  std::mt19937 random(17);
  std::vector<GenerateRequest> requests;
  for (size_t i = 0; i < streams; ++i) {
    requests.push_back(RandomRequest(random, model->config().vocab_size));
    requests.back().request_id = StrCat("r", i);
  }
  std::vector<Answer> answers(streams);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < streams; ++i) {
    const auto delay = static_cast<unsigned>(random() % 50);
    const bool cancel = i % 4 == 3;
    clients.emplace_back([&, i, delay, cancel] {
      std::this_thread::sleep_for(std::chrono::milliseconds(delay));
      const auto stream = MustSubmit(*engine, requests[i]);
      if (cancel) {
        std::this_thread::sleep_for(std::chrono::milliseconds(delay));
        engine->Abort(requests[i].request_id);
      }
      answers[i] = Collect(*stream);
    });
  }
  for (std::thread& client : clients) client.join();
  ExpectNothingHeld(*engine);
  size_t finished = 0;
  for (size_t i = 0; i < streams; ++i) {
    ASSERT_EQ(answers[i].finishes.size(), 1U);
    Answer alone = RunAlone(model, requests[i], options);
    if (answers[i].finishes[0].reason == FinishReason::kCancelled) {
      // What came before the cancel is a prefix of the isolated run.
      if (answers[i].tokens.empty()) continue;
      alone.tokens[0].resize(answers[i].tokens[0].size());
      EXPECT_EQ(answers[i].tokens, alone.tokens) << "request " << i;
      continue;
    }
    ++finished;
    EXPECT_EQ(answers[i].tokens, alone.tokens) << "request " << i;
    for (size_t t = 0; t < alone.logprobs.size(); ++t) {
      const float a = answers[i].logprobs[t], b = alone.logprobs[t];
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << "request " << i << ", token " << t;
    }
  }
  EXPECT_GT(finished, streams / 2);
}

TEST(Engine, SixtyFourConcurrentStreamsEqualTheirIsolatedRuns) {
  ExpectStreamsEqualTheirIsolatedRuns(MixedWindowModel(), SmallOptions(), 64);
}

TEST(Engine, WithWeightsOfEveryTypeStreamsEqualTheirIsolatedRuns) {
  using kernels::Element;
  for (const Element type : {Element::kF32, Element::kBF16, Element::kQ8, Element::kQ4}) {
    const auto model = MixedWindowModel(type);
    for (const ComputeMode compute : {ComputeMode::kExact, ComputeMode::kFast}) {
      for (const auto* const* set = kernels::UsableKernels(); *set != nullptr; ++set) {
        EngineOptions options = SmallOptions();
        options.compute = compute;
        options.kernels = (*set)->name;
        SCOPED_TRACE(StrCat("weights ", static_cast<int>(type), ", ", ComputeModeName(compute),
                            ", ", options.kernels));
        ExpectStreamsEqualTheirIsolatedRuns(model, options, testing::kSanitized ? 4 : 20);
        if (testing::kSanitized) break;  // the best set alone
      }
    }
  }
}

TEST(Engine, AChoiceDoesNotDependOnHowManyThereAre) {
  const auto model = MixedWindowModel();
  GenerateRequest request = Greedy(RandomIds(20, model->config().vocab_size, 1), 20);
  request.temperature = 1.0;
  request.seed = 99;
  request.n = 1;
  const Answer one = RunAlone(model, request);
  request.n = 5;
  const Answer five = RunAlone(model, request);
  ASSERT_EQ(five.tokens.size(), 5U);
  ASSERT_EQ(five.finishes.size(), 5U);
  EXPECT_EQ(five.tokens[0], one.tokens[0]);
  EXPECT_NE(five.tokens[1], five.tokens[0]);
}

TEST(Engine, ACancelFreesItsBlocks) {
  const auto model = MixedWindowModel();
  const auto engine = MakeEngine(model);
  GenerateRequest request = Greedy(RandomIds(10, model->config().vocab_size, 1), 500);
  request.request_id = "long";
  request.ignore_eos = true;
  const auto stream = MustSubmit(*engine, request);
  StreamBatch batch;
  stream->WaitAndTake(batch);
  EXPECT_TRUE(engine->Abort("long"));
  const Answer answer = Collect(*stream);
  EXPECT_EQ(answer.finishes.at(0).reason, FinishReason::kCancelled);
  ExpectNothingHeld(*engine);
  EXPECT_FALSE(engine->Abort("long")) << "idempotent: nothing of that name is left";
  EXPECT_FALSE(engine->Abort("never seen"));
}

TEST(Engine, ADeadlineEndsARequestWhereverItIs) {
  const auto model = MixedWindowModel();
  EngineOptions options = SmallOptions();
  options.limits.max_requests = 1;
  const auto engine = MakeEngine(model, options);
  GenerateRequest running = Greedy(RandomIds(10, model->config().vocab_size, 1), 500);
  running.deadline = std::chrono::steady_clock::now() + 60ms;
  GenerateRequest queued = running;
  const auto a = MustSubmit(*engine, running), b = MustSubmit(*engine, queued);
  const Answer first = Collect(*a), second = Collect(*b);
  // A fast machine may finish the first in time; neither may run past its deadline.
  EXPECT_TRUE(first.finishes.at(0).reason == FinishReason::kDeadline ||
              first.finishes.at(0).reason == FinishReason::kLength);
  EXPECT_TRUE(second.finishes.at(0).reason == FinishReason::kDeadline ||
              second.finishes.at(0).reason == FinishReason::kLength);
  GenerateRequest expired = Greedy({1, 2, 3}, 5);
  expired.deadline = std::chrono::steady_clock::now() - 1s;
  EXPECT_EQ(Collect(*MustSubmit(*engine, expired)).finishes.at(0).reason, FinishReason::kDeadline);
  ExpectNothingHeld(*engine);
}

TEST(Engine, AFullQueueRefusesAndLosesNothing) {
  const auto model = MixedWindowModel();
  EngineOptions options = SmallOptions();
  options.limits.max_requests = 1;
  options.limits.max_queue = 2;
  const auto engine = MakeEngine(model, options);
  std::vector<std::shared_ptr<RequestStream>> accepted;
  Status refused;
  for (int i = 0; i < 8; ++i) {
    GenerateRequest request = Greedy(RandomIds(5, model->config().vocab_size, 1), 200);
    request.ignore_eos = true;
    auto stream = engine->Submit(engine->Resolve(std::move(request)).value());
    if (stream.ok()) {
      accepted.push_back(*stream);
    } else {
      refused = stream.status();
    }
  }
  EXPECT_EQ(refused.code(), StatusCode::kBusy) << refused.message();
  EXPECT_GE(accepted.size(), 2U);
  for (const auto& stream : accepted) {
    EXPECT_EQ(Collect(*stream).finishes.at(0).reason, FinishReason::kLength);
  }
  ExpectNothingHeld(*engine);
}

TEST(Engine, ARequestIdIsUniqueWhileItRuns) {
  const auto model = MixedWindowModel();
  const auto engine = MakeEngine(model);
  GenerateRequest request = Greedy(RandomIds(5, model->config().vocab_size, 1), 300);
  request.request_id = "same";
  const auto stream = MustSubmit(*engine, request);
  const auto second = engine->Submit(engine->Resolve(request).value());
  EXPECT_EQ(second.status().code(), StatusCode::kInvalidArgument);
}

TEST(Engine, WhoReadsTheEndFindsTheIdFreeAndNothingHeld) {
  const auto model = MixedWindowModel();
  const auto engine = MakeEngine(model);
  GenerateRequest request = Greedy(RandomIds(5, model->config().vocab_size, 1), 2);
  request.request_id = "same";
  for (int i = 0; i < 200; ++i) {
    Collect(*MustSubmit(*engine, request));
    const EngineLoad load = engine->load();
    ASSERT_EQ(load.running + load.waiting + load.kv_blocks_held, 0) << i;
    ASSERT_EQ(engine->counters().generated_tokens, 2 * (i + 1));
  }
}

TEST(Engine, ARequestLargerThanThePoolIsRefusedWithTheNumbers) {
  const auto model = RandomModel(TinyConfig(), 2);
  EngineOptions options = SmallOptions();
  options.kv_memory_bytes = 1000;
  const auto engine = Engine::Create(model, options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(engine.status().message().find("1000 bytes"), std::string::npos)
      << engine.status().message();
}

TEST(Engine, APoolLargerThanTheMachineIsRefusedWithTheNumbers) {
  const auto model = RandomModel(TinyConfig(), 2);
  EngineOptions options = SmallOptions();
  options.kv_memory_bytes = int64_t{1} << 50;
  const auto engine = Engine::Create(model, options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
  const std::string message = engine.status().message();
  EXPECT_NE(message.find("1125899906842624 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("leave"), std::string::npos) << message;
}

TEST(Engine, DrainRefusesNewWorkAndLetsTheOldFinish) {
  const auto model = MixedWindowModel();
  const auto engine = MakeEngine(model);
  const auto stream = MustSubmit(*engine, Greedy(RandomIds(5, model->config().vocab_size, 1), 100));
  engine->BeginDrain();
  EXPECT_TRUE(engine->load().draining);
  const auto late = engine->Submit(engine->Resolve(Greedy({1}, 5)).value());
  EXPECT_EQ(late.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Collect(*stream).finishes.at(0).reason, FinishReason::kLength);
  EXPECT_TRUE(engine->WaitIdle(10s));
}

TEST(Engine, DestructionEndsEveryStream) {
  const auto model = MixedWindowModel();
  EngineOptions options = SmallOptions();
  options.limits.max_requests = 2;
  auto engine = MakeEngine(model, options);
  std::vector<std::shared_ptr<RequestStream>> streams;
  for (int i = 0; i < 6; ++i) {
    GenerateRequest request = Greedy(RandomIds(5, model->config().vocab_size, 1), 400);
    request.n = 2;
    streams.push_back(MustSubmit(*engine, request));
  }
  engine.reset();
  for (const auto& stream : streams) {
    const Answer answer = Collect(*stream);
    EXPECT_EQ(answer.finishes.size(), 2U);
  }
}

TEST(Engine, PromptLogprobsAreThoseOfTheLogits) {
  const auto model = MixedWindowModel();
  const int64_t vocab = model->config().vocab_size;
  const auto ids = RandomIds(70, vocab, 4);
  GenerateRequest request = Greedy(ids, 0);
  request.prompt_logprobs = 3;
  const Answer answer = RunAlone(model, request);
  ASSERT_EQ(answer.prompt_logprobs.size(), ids.size() - 1);
  EXPECT_TRUE(answer.tokens.empty());
  const auto evaluator = Evaluator::Create(model, {}).value();
  const Status status = evaluator->Run(ids, [&](int64_t position, std::span<const float> logits) {
    const auto next = static_cast<size_t>(position + 1);
    if (next == ids.size()) return Status();
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    const double expected =
        static_cast<double>(logits[static_cast<size_t>(ids[next])]) - std::log(sum);
    EXPECT_NEAR(answer.prompt_logprobs[next - 1].logprob, expected, 1e-5);
    EXPECT_EQ(answer.prompt_logprobs[next - 1].id, ids[next]);
    return Status();
  });
  EXPECT_TRUE(status.ok());
}

TEST(Engine, CountersOfADecodeStepEqualTheFormula) {
  const auto model = MixedWindowModel();
  const ModelConfig& config = model->config();
  for (const KvType kv : {KvType::kF32, KvType::kBF16}) {
    const int64_t value_bytes = kv == KvType::kF32 ? 4 : 2;
    for (const int64_t context : {0, 1, 30, 31, 63, 64, 200, 511}) {
      EngineOptions options;
      options.kv = kv;
      const auto evaluator = Evaluator::Create(model, options).value();
      const EngineCounters before = evaluator->counters();
      ASSERT_TRUE(evaluator->TimeDecode(context, 1).ok());
      const EngineCounters after = evaluator->counters();
      int64_t products = 0, bytes = 0;
      for (int64_t layer = 0; layer < config.layers; ++layer) {
        for (int64_t head = 0; head < config.heads; ++head) {
          products += VisibleKeys(config.windows.at(layer, head), context + 1);
        }
        for (int64_t head = 0; head < config.kv_heads; ++head) {
          bytes += VisibleKeys(config.windows.KvHead(layer, head, config.group()), context + 1) *
                   config.head_dim * 2 * value_bytes;
        }
      }
      EXPECT_EQ(after.attention_products - before.attention_products, products) << context;
      EXPECT_EQ(after.kv_bytes_read - before.kv_bytes_read, bytes) << context;
      EXPECT_EQ(after.attention_products_full - before.attention_products_full,
                config.layers * config.heads * (context + 1));
    }
  }
}

TEST(Engine, WithoutSinksTheMeasuredRatioOfADecodeStepIsTheAcr) {
  ModelConfig config = TinyConfig();
  config.windows =
      WindowTable::FromJson(
          {{"windows",
            {{32, 64, 128, 256, 512, 1}, {7, 7, 7, 7, 7, 7}, {400, 300, 200, 100, 50, 25}}}},
          config.layers, config.heads, "test")
          .value();
  const auto model = RandomModel(config, 2);
  for (const int64_t context : {10, 100, 511}) {
    const auto evaluator = Evaluator::Create(model, {}).value();
    ASSERT_TRUE(evaluator->TimeDecode(context, 1).ok());
    const EngineCounters counters = evaluator->counters();
    EXPECT_DOUBLE_EQ(static_cast<double>(counters.attention_products) /
                         static_cast<double>(counters.attention_products_full),
                     config.windows.Acr(context + 1));
  }
}

/// Of 90 tokens.
std::vector<float> Logits(const ModelConfig& config, const EngineOptions& options) {
  const auto evaluator = Evaluator::Create(RandomModel(config, 4), options).value();
  std::vector<float> all;
  EXPECT_TRUE(evaluator
                  ->Run(RandomIds(90, config.vocab_size, 3),
                        [&](int64_t, std::span<const float> row) {
                          all.insert(all.end(), row.begin(), row.end());
                          return Status();
                        })
                  .ok());
  return all;
}

TEST(Evaluator, FullWindowsAreThoseOfAModelWithoutAny) {
  ModelConfig config = TinyConfig();
  const std::vector<float> full = Logits(config, {});
  config.windows = WindowTable::Uniform(config.layers, config.heads, 5, 0, "test").value();
  EngineOptions options;
  EXPECT_NE(Logits(config, options), full);
  options.full_windows = true;
  EXPECT_EQ(Logits(config, options), full);
}

TEST(Evaluator, AdditiveIsTheModelWithoutItsResidualMode) {
  const std::vector<float> plain = Logits(TinyConfig(ResidualMode::kAdditive), {});
  for (const ResidualMode mode : {ResidualMode::kFullMh, ResidualMode::kFullHw,
                                  ResidualMode::kDeltaMh, ResidualMode::kHyperConnection}) {
    EngineOptions options;
    EXPECT_NE(Logits(TinyConfig(mode), options), plain);
    options.additive = true;
    EXPECT_EQ(Logits(TinyConfig(mode), options), plain);
  }
}

TEST(Evaluator, TimesNoMoreSequencesThanThePoolHolds) {
  const auto model = RandomModel(TinyConfig(), 2);
  EngineOptions options;
  options.kv_memory_bytes = 3 << 20;
  const auto evaluator = Evaluator::Create(model, options, 64).value();
  EXPECT_GT(evaluator->TimeDecode(3, 2, 4).value(), 0.0);
  const Status status = evaluator->TimeDecode(500, 2, 64).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find(" sequences of 502 tokens, expected 64"), std::string::npos)
      << status.message();
  EXPECT_GT(evaluator->TimeDecode(500, 2, 1).value(), 0.0) << "all were closed again";
}

TEST(Evaluator, NamesIdsAndLengthsOutOfRange) {
  const auto model = RandomModel(TinyConfig(), 2);
  const auto evaluator = Evaluator::Create(model, {}).value();
  const auto sink = [](int64_t, std::span<const float>) { return Status(); };
  const std::vector<int32_t> bad = {1, 2, 97};
  EXPECT_EQ(evaluator->Run(bad, sink).message(), "id at position 2: got 97, expected 0 to 96");
  EXPECT_FALSE(evaluator->Run({}, sink).ok());
  EXPECT_FALSE(evaluator->Run(RandomIds(513, 97, 1), sink).ok());
  EXPECT_TRUE(evaluator->Run(RandomIds(512, 97, 1), sink).ok());
}

TEST(Evaluator, PinnedThreadsComputeTheSameBitsAndLeaveTheirCaller) {
  const auto model = MixedWindowModel();
  const std::vector<int> usable = UsableCpus();
  const auto logits = [&](const std::vector<int>& cpus) {
    EngineOptions options = SmallOptions();
    options.cpus = cpus;
    const auto evaluator = Evaluator::Create(model, options).value();
    std::vector<float> all;
    const Status status =
        evaluator->Run(RandomIds(90, 97, 3), [&](int64_t, std::span<const float> row) {
          all.insert(all.end(), row.begin(), row.end());
          EXPECT_EQ(UsableCpus(), cpus.empty() ? usable : std::vector<int>{cpus.front()});
          return Status();
        });
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(UsableCpus(), usable);
    return all;
  };
  EXPECT_EQ(logits({usable.back(), usable.front()}), logits({}));
}

TEST(Engine, PinsItsOwnThreadAndNotThatOfItsMaker) {
  const auto model = MixedWindowModel();
  const std::vector<int> usable = UsableCpus();
  EngineOptions options = SmallOptions();
  options.threads = 0;
  options.cpus = {usable.back()};
  const auto engine = MakeEngine(model, options);
  EXPECT_EQ(engine->info().threads, 1);
  std::atomic<bool> pinned{true};
  auto params = engine->Resolve(Greedy(RandomIds(20, 97, 1), 8)).value();
  const auto stream = engine->Submit(std::move(params), [&] {
    if (UsableCpus() != options.cpus) pinned = false;
  });
  ASSERT_TRUE(stream.ok()) << stream.status().message();
  EXPECT_EQ(Collect(**stream).tokens, RunAlone(model, Greedy(RandomIds(20, 97, 1), 8)).tokens);
  EXPECT_TRUE(pinned);
  EXPECT_EQ(UsableCpus(), usable);
}

TEST(Engine, OptionsOutOfRangeAreRefusedByName) {
  const auto model = RandomModel(TinyConfig(), 2);
  const auto message = [&](auto change) {
    EngineOptions options = SmallOptions();
    change(options);
    return Engine::Create(model, options).status().message();
  };
  EXPECT_EQ(message([](EngineOptions& o) { o.block_tokens = 24; }),
            "block_tokens: got 24, expected 16 or 32");
  EXPECT_EQ(message([](EngineOptions& o) { o.threads = -1; }),
            "threads: got -1, expected 1 to 1024");
  EXPECT_EQ(message([](EngineOptions& o) { o.cpus = {0}; }),
            "threads: got 2, expected at most 1, one for each of the CPUs 0");
  EXPECT_EQ(message([](EngineOptions& o) { o.max_chunk = 1000; }),
            "max_chunk: got 1000, expected 1 to 96");
  for (const double slowdown : {0.5, -1.0, std::nan("")}) {
    EXPECT_NE(message([&](EngineOptions& o) {
                o.prompt_slowdown = slowdown;
              }).find("expected 0, or 1 and more"),
              std::string::npos);
  }
  EXPECT_NE(message([](EngineOptions& o) { o.max_step_rows = 30; }).find("max_step_rows: got 30"),
            std::string::npos);
}

}  // namespace
}  // namespace lookback
