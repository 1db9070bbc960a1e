// A decode step allocates nothing: counted through the global operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/engine.h"
#include "tests/support/random_model.h"

namespace {
std::atomic<int64_t> allocations{0};

void* Count(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
}  // namespace

void* operator new(size_t bytes) { return Count(bytes); }
void* operator new[](size_t bytes) { return Count(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace lookback {
namespace {

TEST(Engine, ADecodeStepAllocatesNothing) {
  ModelConfig config = testing::TinyConfig();
  config.windows = WindowTable::Uniform(config.layers, config.heads, 40, 3, "test").value();
  const auto model = testing::RandomModel(config, 5);
  EngineOptions options;
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
    if (taken < 3 * 60) before = allocations.load();  // buffers have reached their size by then
  }
  const int64_t after = allocations.load();
  EXPECT_EQ(after - before, 0) << "allocations in about 240 steps";
  EXPECT_GT(before, 0);
}

}  // namespace
}  // namespace lookback
