#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/executor.h"

namespace lookback {

class Evaluator::Impl {
 public:
  Impl(std::shared_ptr<const LoadedModel> model, std::unique_ptr<Executor> executor)
      : model_(std::move(model)), executor_(std::move(executor)) {}

  Status Run(std::span<const int32_t> ids, const LogitsSink& sink) {
    LOOKBACK_RETURN_IF_ERROR(CheckIds(ids));
    return WithSequences(1, std::ssize(ids), std::ssize(ids), [&]() -> Status {
      const int32_t slot = slots_.front();
      for (size_t begin = 0; begin < ids.size();) {
        const size_t chunk =
            std::min(ids.size() - begin, static_cast<size_t>(executor_->options().max_chunk));
        Feed(slot, ids.subspan(begin, chunk));
        LOOKBACK_RETURN_IF_ERROR(
            Emit(static_cast<int64_t>(begin), static_cast<int64_t>(chunk), sink));
        executor_->cache().Commit(slot);
        begin += chunk;
      }
      prompt_tokens_ += std::ssize(ids);
      return {};
    });
  }

  Result<double> TimeDecode(int64_t context, int64_t steps, int64_t sequences) {
    double seconds = 0.0;
    FillPool();
    const auto run = [&]() -> Status {
      KvCache& cache = executor_->cache();
      for (const int32_t slot : slots_) {
        for (int64_t left = context; left > 0;) {
          const int64_t chunk = std::min(left, executor_->options().max_chunk);
          cache.Reserve(slot, chunk);
          cache.Commit(slot);
          left -= chunk;
        }
      }
      const auto start = std::chrono::steady_clock::now();
      for (int64_t step = 0; step < steps; ++step) {
        const int32_t id = ArbitraryId(step);
        plan_.items.clear();
        for (const int32_t slot : slots_) plan_.items.push_back({.slot = slot, .ids = {&id, 1}});
        executor_->Run(plan_);
        for (int64_t row = 0; row < sequences;) {
          rows_.clear();
          const int64_t end = std::min(sequences, row + executor_->max_logit_rows());
          while (row < end) rows_.push_back(row++);
          executor_->Logits(rows_);
        }
        for (const int32_t slot : slots_) cache.Commit(slot);
      }
      seconds = SecondsSince(start);
      generated_tokens_ += steps * sequences;
      return {};
    };
    LOOKBACK_RETURN_IF_ERROR(WithSequences(sequences, context, context + steps, run));
    return seconds;
  }

  Result<double> TimePrefill(int64_t tokens) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens; ++i) ids.push_back(ArbitraryId(i));
    double seconds = 0.0;
    LOOKBACK_RETURN_IF_ERROR(WithSequences(1, tokens, tokens, [&]() -> Status {
      const int32_t slot = slots_.front();
      const auto start = std::chrono::steady_clock::now();
      for (int64_t begin = 0; begin < tokens;) {
        const int64_t chunk = std::min(tokens - begin, executor_->options().max_chunk);
        Feed(slot, std::span<const int32_t>(ids).subspan(static_cast<size_t>(begin),
                                                         static_cast<size_t>(chunk)));
        executor_->cache().Commit(slot);
        begin += chunk;
      }
      seconds = SecondsSince(start);
      prompt_tokens_ += tokens;
      return {};
    }));
    return seconds;
  }

  void SetProbe(ResidualProbe* probe) { executor_->SetProbe(probe); }

  EngineCounters counters() const {
    EngineCounters counters = executor_->counters();
    counters.prompt_tokens = prompt_tokens_;
    counters.generated_tokens = generated_tokens_;
    return counters;
  }
  MemoryReport memory() const {
    MemoryReport report = executor_->EmptyReport();
    executor_->ReportMemory(report);
    return report;
  }
  const EngineInfo& info() const { return executor_->info(); }

 private:
  static double SecondsSince(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  int32_t ArbitraryId(int64_t i) const {
    return static_cast<int32_t>((i * 7919 + 13) % executor_->config().vocab_size);
  }

  Status CheckIds(std::span<const int32_t> ids) const {
    const int64_t vocab = executor_->config().vocab_size;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= vocab) {
        return Mismatch(StrCat("id at position ", i), ids[i], StrCat("0 to ", vocab - 1));
      }
    }
    return {};
  }

  /// Calls body() with `count` open sequences in slots_.
  template <typename Body>
  Status WithSequences(int64_t count, int64_t prompt, int64_t total, const Body& body) {
    if (total < 1 || total > executor_->options().max_context) {
      return Mismatch("tokens of the sequence", total,
                      StrCat("1 to ", executor_->options().max_context, " (max_context)"));
    }
    const PinnedThread pinned = executor_->PinCaller();
    KvCache& cache = executor_->cache();
    slots_.clear();
    Status status;
    while (std::ssize(slots_) < count && status.ok()) {
      const int32_t slot =
          cache.Open(std::max<int64_t>(1, prompt), total, executor_->options().max_chunk);
      if (slot >= 0) {
        slots_.push_back(slot);
      } else {
        status = Status(StatusCode::kResourceExhausted,
                        StrCat("KV pool: holds ", slots_.size(), " sequences of ", total,
                               " tokens, expected ", count));
      }
    }
    if (status.ok()) status = body();
    for (const int32_t slot : slots_) cache.Close(slot);
    return status;
  }

  /// Once: pages that were never written are one and the same to the machine, and in every cache.
  void FillPool() {
    if (pool_filled_) return;
    const KvCache& cache = executor_->cache();
    // 0x3C3C is a small number in bf16, and 0x3C3C3C3C in f32.
    std::memset(cache.pool().data, 0x3C,
                static_cast<size_t>(cache.blocks_total() * cache.layout().block_bytes()));
    pool_filled_ = true;
  }

  void Feed(int32_t slot, std::span<const int32_t> ids) {
    plan_.items.assign(1, StepItem{.slot = slot, .ids = ids});
    executor_->Run(plan_);
  }

  Status Emit(int64_t begin, int64_t chunk, const LogitsSink& sink) {
    const int64_t vocab = executor_->config().vocab_size;
    for (int64_t row = 0; row < chunk;) {
      rows_.clear();
      while (row < chunk && std::ssize(rows_) < executor_->max_logit_rows()) rows_.push_back(row++);
      const std::span<const float> logits = executor_->Logits(rows_);
      for (size_t i = 0; i < rows_.size(); ++i) {
        LOOKBACK_RETURN_IF_ERROR(
            sink(begin + rows_[i],
                 logits.subspan(i * static_cast<size_t>(vocab), static_cast<size_t>(vocab))));
      }
    }
    return {};
  }

  const std::shared_ptr<const LoadedModel> model_;
  const std::unique_ptr<Executor> executor_;
  StepPlan plan_;
  std::vector<int32_t> slots_;
  std::vector<int64_t> rows_;
  int64_t prompt_tokens_ = 0;
  int64_t generated_tokens_ = 0;
  bool pool_filled_ = false;
};

Evaluator::Evaluator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Evaluator::~Evaluator() = default;

Result<std::unique_ptr<Evaluator>> Evaluator::Create(std::shared_ptr<const LoadedModel> model,
                                                     const EngineOptions& options,
                                                     int64_t sequences) {
  EngineOptions one = options;
  one.limits.max_requests = sequences;
  one.max_chunk = std::max<int64_t>(1, std::min(one.max_chunk, one.max_step_rows));
  one.max_step_rows = std::max(one.max_chunk, sequences);
  LOOKBACK_ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor, Executor::Create(*model, one));
  return std::unique_ptr<Evaluator>(
      new Evaluator(std::make_unique<Impl>(std::move(model), std::move(executor))));
}

Status Evaluator::Run(std::span<const int32_t> ids, const LogitsSink& sink) {
  return impl_->Run(ids, sink);
}
Result<double> Evaluator::TimeDecode(int64_t context, int64_t steps, int64_t sequences) {
  return impl_->TimeDecode(context, steps, sequences);
}
Result<double> Evaluator::TimePrefill(int64_t tokens) { return impl_->TimePrefill(tokens); }
void Evaluator::SetProbe(ResidualProbe* probe) { impl_->SetProbe(probe); }
EngineCounters Evaluator::counters() const { return impl_->counters(); }
MemoryReport Evaluator::memory() const { return impl_->memory(); }
const EngineInfo& Evaluator::info() const { return impl_->info(); }

double MeasureStreamBandwidth(ThreadPool& pool, int64_t bytes) {
  constexpr int kPasses = 6;
  constexpr int64_t kAheadWords = 4096 / 8;
  const Buffer buffer(bytes);
  std::memset(buffer.data(), 1, static_cast<size_t>(bytes));
  const int64_t words = bytes / 8;
  const int64_t threads = pool.threads();
  const PinnedThread pinned = pool.PinCaller();
  double best = 0.0;
  std::vector<uint64_t> sums(static_cast<size_t>(threads));
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.For(words, words / threads + 1, [&](int64_t begin, int64_t end, int64_t thread) {
      // Independent sums, so that the loads are not held up by one chain of additions.
      uint64_t lanes[8] = {};
      const uint64_t* data = buffer.as<uint64_t>();
      for (int64_t i = begin; i + 8 <= end; i += 8) {
        // Some CPUs fetch too little ahead by themselves, and others lose by being told to.
        if (pass % 2 == 1) __builtin_prefetch(data + i + kAheadWords);
        for (int64_t lane = 0; lane < 8; ++lane) lanes[lane] += data[i + lane];
      }
      for (const uint64_t lane : lanes) sums[static_cast<size_t>(thread)] += lane;
    });
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  // The sums must be used, or the loads go.
  return sums[0] == 0 ? 0.0 : best;
}

}  // namespace lookback
