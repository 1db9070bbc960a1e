// One model made ready to run: threads, kernels, weights, cache, workspace and the forward pass.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/engine.h"
#include "engine/kv_cache.h"
#include "engine/model.h"
#include "engine/ops.h"
#include "engine/step.h"
#include "engine/thread_pool.h"
#include "engine/weights.h"
#include "engine/workspace.h"

namespace lookback {

/// The kernel set called `name`; for "" the one that LOOKBACK_ISA names, else the machine's best.
Result<const kernels::KernelTable*> ChooseKernels(const std::string& name);

/// Runs steps on one thread at a time. Nothing allocates after Create() but KvCache::Open().
class Executor {
 public:
  /// Resolves unset options and plans all memory. InvalidArgument for options out of range or a
  /// context beyond what the model can do; ResourceExhausted, with the numbers, if the KV pool
  /// would not hold one sequence of max_context tokens. `model` must outlive the result.
  static Result<std::unique_ptr<Executor>> Create(const LoadedModel& model,
                                                  const EngineOptions& options);

  /// See ThreadPool: for the thread that calls Run() and Logits().
  PinnedThread PinCaller() const { return threads_->PinCaller(); }

  /// Reserves the cache for every item, runs the forward pass, fills in items' first_row. The
  /// caller commits each slot when it has read the logits it wants.
  void Run(StepPlan& plan);
  /// Logits [rows.size()][vocab_size] of rows of the last Run, at most max_logit_rows() of them;
  /// valid until the next call.
  std::span<const float> Logits(std::span<const int64_t> rows);
  /// See ResidualStream::SetProbe.
  void SetProbe(ResidualProbe* probe) { model_->SetProbe(probe); }
  int64_t max_logit_rows() const { return workspace_->max_logit_rows; }

  KvCache& cache() { return *cache_; }
  const EngineOptions& options() const { return options_; }
  const EngineInfo& info() const { return info_; }
  const ModelConfig& config() const { return config_; }

  /// Work done by Run() and Logits(); the token totals are the caller's.
  const EngineCounters& counters() const { return counters_; }
  /// Everything but kv_held_by_head, which is filled only if its rows are sized.
  void ReportMemory(MemoryReport& report) const;
  /// A report with kv_held_by_head sized for this model.
  MemoryReport EmptyReport() const;

 private:
  Executor(const LoadedModel& model, EngineOptions options, Weights weights,
           const kernels::KernelTable& kernels);
  void PlanCache(const KvLayout& layout, Buffer pool);

  const ModelConfig config_;  ///< the model's, but for what options_ change for comparison
  EngineOptions options_;
  EngineInfo info_;
  Weights weights_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::vector<const kernels::BlockList*> lists_;  ///< [items of a step]
  EngineCounters counters_;
  int64_t full_context_blocks_ = 0;
  int64_t full_attention_blocks_ = 0;
};

}  // namespace lookback
