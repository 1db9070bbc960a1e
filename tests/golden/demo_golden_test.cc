// The bundled model against what its trainer's code computed.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "engine/kv_cache.h"
#include "engine/safetensors.h"
#include "tests/golden/golden.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::ReadFloats;
using testing::ReadInts;

using testing::ConvertAndOpen;
using testing::GreedyIds;
using testing::LogitsOf;

std::string DemoExpected() { return testing::DemoDir() + "/expected.safetensors"; }

const std::shared_ptr<const LoadedModel>& Demo() {
  static const auto* model =
      new std::shared_ptr<const LoadedModel>(ConvertAndOpen(testing::DemoDir()));
  return *model;
}

const std::shared_ptr<const LoadedModel>& DemoWithFullWindows() {
  static const auto* model =
      new std::shared_ptr<const LoadedModel>(ConvertAndOpen(testing::DemoDir(), "full"));
  return *model;
}

/// Largest error of the demo's golden rows, over the range of the golden logits.
double DemoLogitError(const std::shared_ptr<const LoadedModel>& model, const std::string& tensor) {
  const auto ids = ReadInts(DemoExpected(), "input_ids");
  const auto positions = ReadInts(DemoExpected(), "logit_positions");
  const auto expected = ReadFloats(DemoExpected(), tensor);
  const auto logits = LogitsOf(model, ids);
  const auto vocab = static_cast<size_t>(model->config().vocab_size);
  std::vector<float> rows;
  for (const int32_t position : positions) {
    const auto begin =
        logits.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(position) * vocab);
    rows.insert(rows.end(), begin, begin + static_cast<std::ptrdiff_t>(vocab));
  }
  const auto [low, high] = std::minmax_element(expected.begin(), expected.end());
  const testing::Worst worst = testing::WorstError(rows, expected);
  std::printf("%s: worst error %.3g at row %zu, id %zu; range %.3f\n", tensor.c_str(), worst.error,
              worst.index / vocab, worst.index % vocab, static_cast<double>(*high - *low));
  return worst.error / static_cast<double>(*high - *low);
}

TEST(DemoGolden, LogitsAgreeWithTheReference) {
  EXPECT_TRUE(DemoLogitError(Demo(), "logits") <= 1e-4);
}

TEST(DemoGolden, WithEveryWindowFullTheLogitsAreThoseOfFullAttention) {
  EXPECT_TRUE(DemoLogitError(DemoWithFullWindows(), "logits_full_attention") <= 1e-4);
  EXPECT_GT(DemoLogitError(DemoWithFullWindows(), "logits"), 1e-3);
}

TEST(DemoGolden, GreedyIdsOfEveryPromptAreEqual) {
  for (int i = 0; i < 3; ++i) {
    const auto prompt = ReadInts(DemoExpected(), StrCat("prompt_", i, "_ids"));
    const auto expected = ReadInts(DemoExpected(), StrCat("greedy_", i, "_ids"));
    EXPECT_EQ(GreedyIds(Demo(), prompt, std::ssize(expected)), expected) << "prompt " << i;
  }
}

TEST(DemoGolden, PromptsTokenizeToTheReferenceIds) {
  const auto file = SafetensorsFile::Open(DemoExpected()).value();
  if (Demo()->tokenizer == nullptr) GTEST_SKIP() << Demo()->no_tokenizer_reason;
  for (int i = 0; i < 3; ++i) {
    const std::string prompt = file->metadata().find(StrCat("prompt_", i))->second;
    const std::string text = file->metadata().find(StrCat("greedy_", i, "_text"))->second;
    const auto ids = ReadInts(DemoExpected(), StrCat("prompt_", i, "_ids"));
    EXPECT_EQ(Demo()->tokenizer->Encode(prompt, true).value(), ids);
    // The answer is decoded with its prompt as context.
    auto all = ids;
    const auto greedy = ReadInts(DemoExpected(), StrCat("greedy_", i, "_ids"));
    all.insert(all.end(), greedy.begin(), greedy.end());
    EXPECT_EQ(Demo()->tokenizer->Decode(all, true), prompt + text);
  }
}

/// Mean negative log-likelihood a token over the first `chunks` of the 16 chunks of nll_ids.
double DemoNll(const std::shared_ptr<const LoadedModel>& model, size_t chunks,
               const EngineOptions& options = {}) {
  constexpr size_t kLength = 512;
  auto ids = ReadInts(DemoExpected(), "nll_ids");
  ids.resize(chunks * kLength);
  const auto vocab = static_cast<size_t>(model->config().vocab_size);
  double sum = 0.0;
  size_t count = 0;
  for (size_t begin = 0; begin < ids.size(); begin += kLength) {
    const std::span<const int32_t> chunk = std::span(ids).subspan(begin, kLength);
    const auto logits = LogitsOf(model, chunk, options);
    for (size_t t = 0; t + 1 < kLength; ++t) {
      const float* row = logits.data() + t * vocab;
      double total = 0.0;
      const double highest = *std::max_element(row, row + vocab);
      for (size_t i = 0; i < vocab; ++i) total += std::exp(row[i] - highest);
      sum += highest + std::log(total) - row[chunk[t + 1]];
      ++count;
    }
  }
  return sum / static_cast<double>(count);
}

TEST(DemoGolden, MeanNllAgreesAndIsClearlyWorseWithEveryWindowFull) {
  if (testing::kSanitized) GTEST_SKIP() << "8,192 tokens twice: too slow under a sanitizer";
  const double windowed = DemoNll(Demo(), 16), full = DemoNll(DemoWithFullWindows(), 16);
  std::printf("NLL %.6f windowed, %.6f full\n", windowed, full);
  EXPECT_NEAR(windowed, ReadFloats(DemoExpected(), "nll_mean")[0], 1e-4);
  EXPECT_NEAR(full, ReadFloats(DemoExpected(), "nll_mean_full_attention")[0], 1e-4);
  EXPECT_GT(full, windowed + 0.4);
}

TEST(DemoGolden, QuantizedWeightsCostLittle) {
  if (testing::kSanitized) GTEST_SKIP() << "10,240 tokens: too slow under a sanitizer";
  const double kept = DemoNll(Demo(), 4);
  for (const auto& [type, most] :
       {std::pair{tools::WeightType::kQ8, 0.005}, std::pair{tools::WeightType::kQ4, 0.05}}) {
    tools::ConvertOptions options;
    options.source = testing::DemoDir();
    options.weights = type;
    const auto model = ConvertAndOpen(options);
    EngineOptions fast;
    fast.compute = ComputeMode::kFast;
    const double exact_loss = DemoNll(model, 4), fast_loss = DemoNll(model, 4, fast);
    std::printf("NLL %.6f kept, %.6f quantized (%+.3f %%), %.6f with --compute fast (%+.3f %%)\n",
                kept, exact_loss, 100.0 * (exact_loss / kept - 1.0), fast_loss,
                100.0 * (fast_loss / kept - 1.0));
    EXPECT_NE(exact_loss, kept);
    EXPECT_NE(fast_loss, exact_loss);
    EXPECT_LE(exact_loss, (1.0 + most) * kept);
    EXPECT_LE(fast_loss, (1.0 + most) * kept);
  }
}

TEST(DemoGolden, NllWithABf16CacheStaysClose) {
  if (testing::kSanitized) GTEST_SKIP() << "2,048 tokens: too slow under a sanitizer";
  EngineOptions options;
  options.compute = ComputeMode::kFast;
  const double fast = DemoNll(Demo(), 2, options), exact = DemoNll(Demo(), 2);
  std::printf("NLL %.6f with --compute fast, %.6f exact\n", fast, exact);
  EXPECT_NE(fast, exact);
  EXPECT_NEAR(fast, exact, 2e-3);
}

TEST(DemoGolden, HeldBlocksObeyTheBoundUpToFourTimesTheLargestWindow) {
  const ModelConfig& config = Demo()->config();
  for (const int64_t block : {16, 32}) {
    const KvLayout layout = KvLayout::For(config, block, kernels::Element::kF32);
    for (const int64_t chunk : {1, 7, 33, 63}) {
      constexpr int64_t kTokens = 2048;
      const int64_t blocks = WorstCaseBlocks(layout, kTokens, kTokens, chunk);
      KvCache cache(layout, Buffer(blocks * layout.block_bytes()), 1);
      const int32_t slot = cache.Open(kTokens, kTokens, chunk);
      ASSERT_GE(slot, 0);
      for (int64_t length = 0; length < kTokens;) {
        const int64_t tokens = std::min(chunk, kTokens - length);
        cache.Reserve(slot, tokens);
        length += tokens;
        for (int64_t layer = 0; layer < config.layers; ++layer) {
          for (int64_t head = 0; head < config.kv_heads; ++head) {
            const int64_t window = config.windows.KvHead(layer, head, config.group()).window;
            const int64_t up =
                (std::min(length, window + chunk - 1) + block - 1 + block - 1) / block;
            ASSERT_LE(cache.blocks_of(slot, layer, head),
                      std::min((length + block - 1) / block, up));
          }
        }
        cache.Commit(slot);
      }
      cache.Close(slot);
      EXPECT_EQ(cache.blocks_held(), 0);
    }
  }
}

TEST(DemoGolden, ContextBeyondTrainingRunsInTheSameMemory) {
  EngineOptions options;
  options.max_context = 2048;
  const auto evaluator = Evaluator::Create(Demo(), options).value();
  ASSERT_TRUE(evaluator->TimeDecode(2047, 1).ok());
  const MemoryReport memory = evaluator->memory();
  // Every window is finite: four times the context costs no more blocks than the windows hold.
  const auto at_512 = Evaluator::Create(Demo(), {}).value();
  EXPECT_LE(memory.kv_full_context_bytes, at_512->memory().kv_full_context_bytes * 13 / 10);
  EXPECT_GT(memory.kv_full_attention_bytes, at_512->memory().kv_full_attention_bytes * 3);
}

}  // namespace
}  // namespace lookback
