// The forward pass over the paged cache: eviction, chunking, threads and cache types change
// nothing.
#include "engine/model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "engine/executor.h"
#include "tests/support/random_model.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::RandomIds;
using testing::RandomModel;
using testing::TinyConfig;

constexpr int64_t kContext = 700;  // beyond the largest finite window (512) and a ragged block

/// Runs one sequence through hand-made parts, so that a test can choose the kernels and what the
/// cache keeps.
class Runner {
 public:
  struct Options {
    int64_t threads = 1;
    int64_t chunk = 64;
    int64_t block_tokens = 32;
    kernels::Element kv = kernels::Element::kF32;
    bool keep_everything = false;   ///< the cache evicts nothing
    bool masked_attention = false;  ///< and attention asks of every key whether it is seen
    InputTypes inputs = {};         ///< of products
    const char* kernels = "";       ///< best of this machine
  };

  Runner(const LoadedModel& model, const Options& options)
      : config_(model.config()),
        options_(options),
        kernels_(*kernels::FindKernels(options.kernels)) {
    if (options.masked_attention) kernels_.attention = kernels_.masked_attention;
    weights_ = Weights::Load(*model.checkpoint).value();
    threads_.emplace(options.threads);
    workspace_.emplace(config_, options.chunk, options.chunk, options.inputs);
    ops_.emplace(kernels_, *threads_, MaxRoutingSources(config_), workspace_->narrow);
    model_.emplace(config_, weights_, *ops_, *workspace_);
    KvLayout layout =
        KvLayout::For(config_, options.block_tokens, options.kv, options.keep_everything);
    const int64_t blocks = WorstCaseBlocks(layout, kContext, kContext, options.chunk);
    const int64_t bytes = blocks * layout.block_bytes();
    cache_.emplace(std::move(layout), Buffer(bytes), 1);
  }

  /// Logits of every position, [ids][vocab].
  std::vector<float> Run(std::span<const int32_t> ids) {
    std::vector<float> all;
    const int32_t slot = cache_->Open(std::ssize(ids), std::ssize(ids), options_.chunk);
    EXPECT_GE(slot, 0);
    for (size_t begin = 0; begin < ids.size();) {
      const size_t count = std::min(ids.size() - begin, static_cast<size_t>(options_.chunk));
      cache_->Reserve(slot, static_cast<int64_t>(count));
      std::vector<int64_t> rows;
      for (size_t i = 0; i < count; ++i) {
        workspace_->ids[i] = ids[begin + i];
        workspace_->row_sequence[i] = 0;
        workspace_->position[i] = static_cast<int64_t>(begin + i);
        rows.push_back(static_cast<int64_t>(i));
      }
      const kernels::BlockList* lists = cache_->lists(slot);
      model_->Forward({static_cast<int64_t>(count),
                       workspace_->ids,
                       {&lists, 0, workspace_->row_sequence, workspace_->position}},
                      cache_->pool());
      const std::span<const float> logits = model_->Logits(rows);
      all.insert(all.end(), logits.begin(), logits.end());
      cache_->Commit(slot);
      begin += count;
    }
    cache_->Close(slot);
    EXPECT_EQ(cache_->blocks_held(), 0);
    return all;
  }

 private:
  const ModelConfig& config_;
  Options options_;
  kernels::KernelTable kernels_;
  Weights weights_;
  std::optional<ThreadPool> threads_;
  std::optional<Workspace> workspace_;
  std::optional<Ops> ops_;
  std::optional<Model> model_;
  std::optional<KvCache> cache_;
};

/// The first position whose logits differ in any bit, or −1.
int64_t FirstDifference(const std::vector<float>& a, const std::vector<float>& b, int64_t vocab) {
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return static_cast<int64_t>(i) / vocab;
  }
  return -1;
}

WindowTable Table(const ModelConfig& config, const std::vector<int32_t>& windows, int32_t sinks) {
  Json rows = Json::array();
  size_t next = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    Json row = Json::array();
    for (int64_t head = 0; head < config.heads; ++head) {
      const int32_t window = windows[next++ % windows.size()];
      row.push_back(window == kFullWindow ? Json(nullptr) : Json(window));
    }
    rows.push_back(row);
  }
  const Json json = {{"windows", rows}, {"sinks", sinks}};
  return WindowTable::FromJson(json, config.layers, config.heads, "test").value();
}

struct Case {
  const char* name;
  std::vector<int32_t> windows;  // dealt to the heads in turn
  int32_t sinks;
};

void PrintTo(const Case& windows, std::ostream* out) { *out << windows.name; }

class WindowedModel : public ::testing::TestWithParam<Case> {
 protected:
  static std::shared_ptr<const LoadedModel> Make(ResidualMode mode) {
    ModelConfig config = TinyConfig(mode);
    config.windows = Table(config, GetParam().windows, GetParam().sinks);
    return RandomModel(config, 3);
  }
  // A sanitizer wants blocks that come and go; the bits of long windows are the other builds'.
  static constexpr int64_t kTokens = testing::kSanitized ? 100 : kContext;
};

TEST_P(WindowedModel, EvictionEqualsMaskingOverAFullCacheBitForBit) {
  const auto model = Make(ResidualMode::kFullMh);
  const int64_t vocab = model->config().vocab_size;
  const std::vector<int32_t> ids = RandomIds(kTokens, vocab, 5);
  for (const auto* const* set = kernels::UsableKernels(); *set != nullptr; ++set) {
    for (const int64_t block_tokens : {16, 32}) {
      for (const kernels::Element kv : {kernels::Element::kF32, kernels::Element::kBF16}) {
        Runner evicting(*model, {.block_tokens = block_tokens, .kv = kv, .kernels = (*set)->name});
        Runner masking(*model, {.block_tokens = block_tokens,
                                .kv = kv,
                                .keep_everything = true,
                                .masked_attention = true,
                                .kernels = (*set)->name});
        EXPECT_EQ(FirstDifference(evicting.Run(ids), masking.Run(ids), vocab), -1)
            << (*set)->name << ", " << block_tokens
            << " tokens a block, bf16: " << (kv == kernels::Element::kBF16);
      }
    }
  }
}

TEST(Model, InEveryModeWithEveryGateChunksAndThreadsChangeNoBit) {
  constexpr ResidualMode kModes[] = {ResidualMode::kFull,    ResidualMode::kFullHw,
                                     ResidualMode::kBlock,   ResidualMode::kBlockMh,
                                     ResidualMode::kDelta,   ResidualMode::kDeltaBlock,
                                     ResidualMode::kDeltaMh, ResidualMode::kHyperConnection};
  constexpr Gate kGates[] = {Gate::kNone, Gate::kAlpha, Gate::kSigmoidScalar, Gate::kSigmoidVector};
  for (const ResidualMode mode : kModes) {
    for (const Gate gate : kGates) {
      ModelConfig config = TinyConfig(mode);
      config.windows = Table(config, {1, 40, 33, 7, kFullWindow, 31}, 2);
      config.gate = gate;
      if (!config.Validate().ok()) continue;  // the mode has no gates
      const auto model = RandomModel(config, 11);
      const std::vector<int32_t> ids = RandomIds(90, config.vocab_size, 13);
      const std::vector<float> expected = Runner(*model, {.chunk = 90}).Run(ids);
      for (const int64_t chunk : {1, 7}) {
        Runner runner(*model, {.threads = chunk == 7 ? 2 : 1, .chunk = chunk});
        EXPECT_EQ(FirstDifference(runner.Run(ids), expected, config.vocab_size), -1)
            << ResidualModeName(mode) << " " << GateName(gate) << ", chunk " << chunk;
      }
    }
  }
}

TEST(Model, WithWeightsOfEveryTypeChunksAndThreadsChangeNoBit) {
  using kernels::Element;
  ModelConfig config = testing::QuantizableConfig();
  config.windows = Table(config, {1, 40, 33, 7, kFullWindow, 31}, 2);
  const std::vector<int32_t> ids = RandomIds(90, config.vocab_size, 13);
  for (const Element type : {Element::kF32, Element::kBF16, Element::kQ8, Element::kQ4}) {
    const auto model = RandomModel(config, 11, type);
    for (const auto* const* set = kernels::UsableKernels(); *set != nullptr; ++set) {
      std::vector<float> exact;
      for (const bool fast : {false, true}) {
        const char* name = (*set)->name;
        const InputTypes inputs = {.quantized = fast, .bf16 = fast && (*set)->multiplies_bf16};
        const auto expected =
            Runner(*model, {.chunk = 90, .inputs = inputs, .kernels = name}).Run(ids);
        for (const int64_t chunk : {1, 7}) {
          Runner runner(
              *model,
              {.threads = chunk == 7 ? 2 : 1, .chunk = chunk, .inputs = inputs, .kernels = name});
          EXPECT_EQ(FirstDifference(runner.Run(ids), expected, config.vocab_size), -1)
              << name << ", type " << static_cast<int>(type) << ", fast " << fast << ", chunk "
              << chunk;
        }
        // Inputs of f32 weights stay as they are.
        const bool narrows = (inputs.quantized && kernels::IsQuantized(type)) ||
                             (inputs.bf16 && type == Element::kBF16);
        if (!fast) exact = expected;
        EXPECT_EQ(exact == expected, !narrows);
      }
    }
  }
}

TEST(Model, ReadingAheadInADeepNetworkChunksAndThreadsChangeNoBit) {
  for (const ResidualMode mode :
       {ResidualMode::kFull, ResidualMode::kFullMh, ResidualMode::kFullHw, ResidualMode::kDelta}) {
    ModelConfig config = TinyConfig(mode);
    config.layers = 9;  // 18 or 19 sites, of which 8 are read ahead at once
    config.windows = WindowTable::Full(config.layers, config.heads);
    const auto model = RandomModel(config, 21);
    const std::vector<int32_t> ids = RandomIds(40, config.vocab_size, 22);
    const auto expected = Runner(*model, {.chunk = 40}).Run(ids);
    for (const int64_t chunk : {1, 7}) {
      Runner runner(*model, {.threads = chunk == 7 ? 2 : 1, .chunk = chunk});
      EXPECT_EQ(FirstDifference(runner.Run(ids), expected, config.vocab_size), -1)
          << "mode " << static_cast<int>(mode) << ", chunk " << chunk;
    }
  }
}

TEST_P(WindowedModel, ChunksAndThreadsChangeNoBit) {
  for (const ResidualMode mode : {ResidualMode::kFullMh, ResidualMode::kAdditive}) {
    const auto model = Make(mode);
    const int64_t vocab = model->config().vocab_size;
    const std::vector<int32_t> ids = RandomIds(kTokens, vocab, 7);
    const std::vector<float> expected = Runner(*model, {.chunk = kTokens}).Run(ids);
    for (const int64_t chunk : {1, 3, 64}) {
      for (const int64_t threads : {1, 2}) {
        Runner runner(*model, {.threads = threads, .chunk = chunk});
        EXPECT_EQ(FirstDifference(runner.Run(ids), expected, vocab), -1)
            << "chunk " << chunk << ", threads " << threads;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, WindowedModel,
                         ::testing::Values(Case{"W1", {1}, 0}, Case{"W7", {7}, 0},
                                           Case{"W31", {31}, 0}, Case{"W32", {32}, 0},
                                           Case{"W33", {33}, 0}, Case{"W512", {512}, 0},
                                           Case{"Full", {kFullWindow}, 0},
                                           Case{"MixInOneGroup", {1, 200, 33, 7, 512, 31}, 0},
                                           Case{"MixWithFull", {7, kFullWindow, 64, 32, 1, 100}, 0},
                                           Case{"Sinks1", {33}, 1}, Case{"Sinks5", {7, 64}, 5},
                                           Case{"Sinks40", {1, 200, 33, 7, 512, 31}, 40},
                                           Case{"Sinks40Full", {7, kFullWindow, 31}, 40}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Model, AWindowOfTheWholeContextEqualsNoWindow) {
  ModelConfig config = TinyConfig();
  const std::vector<int32_t> ids = RandomIds(200, config.vocab_size, 9);
  const auto full = RandomModel(config, 3);
  config.windows = Table(config, {200}, 0);
  const auto windowed = RandomModel(config, 3);
  EXPECT_EQ(FirstDifference(Runner(*full, {}).Run(ids), Runner(*windowed, {}).Run(ids),
                            config.vocab_size),
            -1);
}

TEST(Model, AWindowOfOneLessSeesOneKeyLess) {
  ModelConfig config = TinyConfig();
  const std::vector<int32_t> ids = RandomIds(64, config.vocab_size, 9);
  config.windows = Table(config, {64}, 0);
  const auto all = Runner(*RandomModel(config, 3), {}).Run(ids);
  config.windows = Table(config, {63}, 0);
  const auto less = Runner(*RandomModel(config, 3), {}).Run(ids);
  EXPECT_EQ(FirstDifference(all, less, config.vocab_size), 63);
}

}  // namespace
}  // namespace lookback
