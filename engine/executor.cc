#include "engine/executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include "engine/memory_limit.h"

namespace lookback {
namespace {

constexpr int64_t kLogitRows = 32;        // rows whose logits are made at once
constexpr int64_t kMaxContext = 1 << 24;  // beyond this f32 positions are no longer exact
constexpr int64_t kMaxBlocks = std::numeric_limits<int32_t>::max();

Status CheckRange(std::string_view what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return Mismatch(what, value, StrCat(low, " to ", high));
}

Result<EngineOptions> ResolveOptions(const ModelConfig& config, EngineOptions options) {
  if (!options.kv) {
    options.kv = options.compute == ComputeMode::kExact ? KvType::kF32 : KvType::kBF16;
  }
  if (options.max_context == 0) options.max_context = config.train_context;
  if (options.block_tokens != 16 && options.block_tokens != 32) {
    return Mismatch("block_tokens", options.block_tokens, "16 or 32");
  }
  LOOKBACK_RETURN_IF_ERROR(ResolveThreads(options.threads, options.cpus));
  LOOKBACK_RETURN_IF_ERROR(CheckRange("max_context", options.max_context, 1, kMaxContext));
  if (config.gpt_style() && options.max_context > config.train_context) {
    return Mismatch("max_context", options.max_context,
                    StrCat("at most ", config.train_context,
                           ": this model has a learned table of so many positions"));
  }
  LOOKBACK_RETURN_IF_ERROR(CheckRange("max_requests", options.limits.max_requests, 1, 4096));
  LOOKBACK_RETURN_IF_ERROR(CheckRange("max_queue", options.limits.max_queue, 1, 1 << 20));
  LOOKBACK_RETURN_IF_ERROR(CheckRange("max_step_rows", options.max_step_rows, 1, 1 << 16));
  LOOKBACK_RETURN_IF_ERROR(CheckRange("max_chunk", options.max_chunk, 1, options.max_step_rows));
  if (options.max_step_rows < options.limits.max_requests) {
    return Mismatch("max_step_rows", options.max_step_rows,
                    StrCat("at least max_requests (", options.limits.max_requests,
                           "): every running request decodes in every step"));
  }
  if (options.prompt_slowdown != 0.0 && !(options.prompt_slowdown >= 1.0)) {  // so that NaN fails
    return Mismatch("prompt_slowdown", options.prompt_slowdown, "0, or 1 and more");
  }
  if (options.kv_memory_bytes < 0) {
    return Mismatch("kv_memory", options.kv_memory_bytes, "a positive number of bytes");
  }
  return options;
}

InputTypes NarrowTypes(ComputeMode compute, const Weights& weights,
                       const kernels::KernelTable& kernels) {
  if (compute == ComputeMode::kExact) return {};
  return {.quantized = weights.quantized, .bf16 = weights.bf16 && kernels.multiplies_bf16};
}

ModelConfig ConfigFor(const LoadedModel& model, const EngineOptions& options) {
  ModelConfig config = model.config();
  if (options.full_windows) config.windows = WindowTable::Full(config.layers, config.heads);
  if (options.additive) config.MakeAdditive();
  return config;
}

}  // namespace

Result<const kernels::KernelTable*> ChooseKernels(const std::string& name) {
  const char* forced = std::getenv("LOOKBACK_ISA");
  const bool by_option = !name.empty() || forced == nullptr;
  const std::string wanted = by_option ? name : forced;
  const kernels::KernelTable* found = kernels::FindKernels(wanted.c_str());
  if (found != nullptr) return found;
  std::string usable;
  for (const auto* const* set = kernels::UsableKernels(); *set != nullptr; ++set) {
    usable += StrCat(usable.empty() ? "" : " or ", (*set)->name);
  }
  return Mismatch(by_option ? "kernels" : "LOOKBACK_ISA", Quoted(wanted),
                  StrCat(usable, " on this machine"));
}

std::string_view ComputeModeName(ComputeMode mode) {
  return mode == ComputeMode::kExact ? "exact" : "fast";
}

std::string_view KvTypeName(KvType type) { return type == KvType::kF32 ? "f32" : "bf16"; }

Result<std::unique_ptr<Executor>> Executor::Create(const LoadedModel& model,
                                                   const EngineOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const ModelConfig config = ConfigFor(model, options);
  LOOKBACK_ASSIGN_OR_RETURN(EngineOptions resolved, ResolveOptions(config, options));
  LOOKBACK_ASSIGN_OR_RETURN(const kernels::KernelTable* kernels, ChooseKernels(resolved.kernels));
  LOOKBACK_ASSIGN_OR_RETURN(Weights weights, Weights::Load(*model.checkpoint, config));

  const auto type = *resolved.kv == KvType::kF32 ? kernels::Element::kF32 : kernels::Element::kBF16;
  const KvLayout layout = KvLayout::For(config, resolved.block_tokens, type);
  const int64_t one =
      WorstCaseBlocks(layout, resolved.max_context, resolved.max_context, resolved.max_chunk);
  const int64_t one_bytes = one * layout.block_bytes();
  const bool given = resolved.kv_memory_bytes != 0;
  const int64_t available = AvailableMemoryBytes();
  if (!given) {
    // No more than the concurrent requests could ever use.
    const int64_t most =
        one_bytes > std::numeric_limits<int64_t>::max() / resolved.limits.max_requests
            ? std::numeric_limits<int64_t>::max()
            : one_bytes * resolved.limits.max_requests;
    resolved.kv_memory_bytes = std::min(available / 2, most);
  }
  if (resolved.kv_memory_bytes < one_bytes) {
    return Status(
        StatusCode::kResourceExhausted,
        StrCat("KV pool: ", given ? "kv_memory" : "half of the free memory", " is ",
               resolved.kv_memory_bytes, " bytes, one sequence of ", resolved.max_context,
               " tokens needs ", one_bytes, "; give more memory or a smaller max_context"));
  }
  if (resolved.kv_memory_bytes > available) {
    return Status(StatusCode::kResourceExhausted,
                  StrCat("KV pool: kv_memory is ", resolved.kv_memory_bytes,
                         " bytes, this machine and its limits leave ", available,
                         "; give more memory or a smaller kv_memory"));
  }
  if (resolved.kv_memory_bytes / layout.block_bytes() > kMaxBlocks) {
    resolved.kv_memory_bytes = kMaxBlocks * layout.block_bytes();
  }
  LOOKBACK_ASSIGN_OR_RETURN(
      Buffer pool,
      Buffer::Allocate(resolved.kv_memory_bytes / layout.block_bytes() * layout.block_bytes()));
  std::unique_ptr<Executor> executor(new Executor(model, resolved, std::move(weights), *kernels));
  executor->PlanCache(layout, std::move(pool));
  executor->info_.load_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return executor;
}

Executor::Executor(const LoadedModel& model, EngineOptions options, Weights weights,
                   const kernels::KernelTable& kernels)
    : config_(ConfigFor(model, options)),
      options_(std::move(options)),
      weights_(std::move(weights)),
      threads_(std::make_unique<ThreadPool>(options_.threads, options_.cpus)),
      workspace_(std::make_unique<Workspace>(config_, options_.max_step_rows,
                                             std::min(kLogitRows, options_.max_step_rows),
                                             NarrowTypes(options_.compute, weights_, kernels))),
      ops_(std::make_unique<Ops>(kernels, *threads_, MaxRoutingSources(config_),
                                 workspace_->narrow)),
      model_(std::make_unique<Model>(config_, weights_, *ops_, *workspace_)),
      lists_(static_cast<size_t>(options_.max_step_rows)) {
  info_.kernels = kernels.name;
  info_.compute = ComputeModeName(options_.compute);
  info_.kv = KvTypeName(*options_.kv);
  info_.threads = options_.threads;
  info_.max_context = options_.max_context;
  info_.block_tokens = options_.block_tokens;
}

void Executor::PlanCache(const KvLayout& layout, Buffer pool) {
  const int64_t context = options_.max_context, chunk = options_.max_chunk;
  const KvLayout full =
      KvLayout::For(config_, layout.block_tokens, layout.type, /*full_attention=*/true);
  full_context_blocks_ = WorstCaseBlocks(layout, context, context, chunk);
  full_attention_blocks_ = WorstCaseBlocks(full, context, context, chunk);
  cache_ = std::make_unique<KvCache>(layout, std::move(pool), options_.limits.max_requests);
}

void Executor::Run(StepPlan& plan) {
  LOOKBACK_CHECK(plan.rows() <= workspace_->max_rows && !plan.items.empty());
  Workspace& ws = *workspace_;
  int64_t row = 0, positions = 0;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    StepItem& item = plan.items[i];
    const auto tokens = static_cast<int64_t>(item.ids.size());
    item.first_row = row;
    lists_[i] = cache_->lists(item.slot);
    const int64_t first = cache_->length(item.slot);
    cache_->Reserve(item.slot, tokens);
    for (int64_t t = 0; t < tokens; ++t, ++row) {
      ws.ids[row] = item.ids[static_cast<size_t>(t)];
      ws.row_sequence[row] = static_cast<int32_t>(i);
      ws.position[row] = first + t;
      positions += first + t + 1;
    }
  }
  const StepRows rows{row, ws.ids, {lists_.data(), 0, ws.row_sequence, ws.position}};
  const OpCounters before = ops_->counters();
  model_->Forward(rows, cache_->pool());

  const int64_t key_bytes = cache_->layout().block_bytes() / options_.block_tokens;
  ++counters_.steps;
  counters_.attention_products += ops_->counters().attention_products - before.attention_products;
  counters_.attention_products_full += positions * config_.layers * config_.heads;
  counters_.kv_bytes_read += (ops_->counters().keys_read - before.keys_read) * key_bytes;
  counters_.kv_bytes_read_full += positions * config_.layers * config_.kv_heads * key_bytes;
  counters_.weight_bytes_read += weights_.step_bytes - weights_.head.bytes() +
                                 row * weights_.embedding.bytes() / weights_.embedding.out;
}

std::span<const float> Executor::Logits(std::span<const int64_t> rows) {
  counters_.weight_bytes_read += weights_.head.bytes();
  return model_->Logits(rows);
}

void Executor::ReportMemory(MemoryReport& report) const {
  const int64_t block = cache_->layout().block_bytes();
  report.weight_bytes = weights_.file_bytes;
  report.packed_bytes = weights_.folded_bytes;
  report.workspace_bytes = workspace_->bytes() + model_->residual_bytes();
  report.kv_pool_bytes = cache_->blocks_total() * block;
  report.kv_held_bytes = cache_->blocks_held() * block;
  report.kv_cached_bytes = 0;  // nothing is kept for reuse yet
  report.kv_held_peak_bytes = cache_->blocks_held_peak() * block;
  report.kv_block_bytes = block;
  report.kv_full_context_bytes = full_context_blocks_ * block;
  report.kv_full_attention_bytes = full_attention_blocks_ * block;
  const std::span<const int64_t> held = cache_->held_by_head();
  size_t next = 0;
  for (std::vector<int64_t>& layer : report.kv_held_by_head) {
    for (int64_t& bytes : layer) bytes = held[next++] * block;
  }
}

MemoryReport Executor::EmptyReport() const {
  MemoryReport report;
  report.kv_held_by_head.assign(static_cast<size_t>(config_.layers),
                                std::vector<int64_t>(static_cast<size_t>(config_.kv_heads)));
  return report;
}

}  // namespace lookback
