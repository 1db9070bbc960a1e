// A decode step allocates nothing: counted in the global operator new.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/support/allocations.h"
#include "tests/support/random_model.h"

namespace lookback {
namespace {

void ExpectADecodeStepAllocatesNothing(kernels::Element weights, ComputeMode compute) {
  ModelConfig config = testing::QuantizableConfig();
  config.windows = WindowTable::Uniform(config.layers, config.heads, 40, 3, "test").value();
  const auto model = testing::RandomModel(config, 5, weights);
  EngineOptions options;
  options.compute = compute;
  options.threads = 2;
  const auto engine = Engine::Create(model, options).value();
  std::vector<std::shared_ptr<RequestStream>> streams;
  for (int i = 0; i < 3; ++i) {
    GenerateRequest request;
    request.prompt_ids = testing::RandomIds(20, config.vocab_size, 3);
    request.max_new_tokens = 400;
    request.ignore_eos = true;
    request.top_logprobs = 4;
    request.top_k = 20;
    request.top_p = 0.9;
    request.repetition_penalty = 1.1;
    request.stop = {"never"};
    streams.push_back(*engine->Submit(engine->Resolve(std::move(request)).value()));
  }
  // Blocks come and go (window 40) and every batch is taken while this counts.
  std::vector<StreamBatch> batches(streams.size());
  int64_t taken = 0, before = 0;
  while (taken < 3 * 300) {
    for (size_t i = 0; i < streams.size(); ++i) {
      streams[i]->WaitAndTake(batches[i]);
      taken += std::ssize(batches[i].tokens);
    }
    if (taken < 3 * 60) before = testing::Allocations();  // buffers have reached their size by then
  }
  const int64_t after = testing::Allocations();
  EXPECT_EQ(after - before, 0) << "allocations in about 240 steps";
  EXPECT_GT(before, 0);
}

TEST(Engine, ADecodeStepAllocatesNothing) {
  ExpectADecodeStepAllocatesNothing(kernels::Element::kF32, ComputeMode::kExact);
}

TEST(Engine, ADecodeStepWithQuantizedActivationsAllocatesNothing) {
  ExpectADecodeStepAllocatesNothing(kernels::Element::kQ4, ComputeMode::kFast);
}

}  // namespace
}  // namespace lookback
