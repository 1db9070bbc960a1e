// The inference engine: loads a converted file, batches requests continuously, streams tokens.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint.h"
#include "engine/request.h"
#include "engine/status.h"
#include "engine/tokenizer/tokenizer.h"

namespace lookback {

class ResidualProbe;
class ThreadPool;

/// exact: f32 activations and f32 KV. fast: bf16 KV, activations quantized to 8 bits where the
/// weights are quantized, and rounded to bf16 where they are bf16 and the kernels multiply that
/// faster (KernelTable::multiplies_bf16).
enum class ComputeMode : uint8_t { kExact, kFast };
enum class KvType : uint8_t { kF32, kBF16 };
std::string_view ComputeModeName(ComputeMode mode);
std::string_view KvTypeName(KvType type);

struct EngineOptions {
  ComputeMode compute = ComputeMode::kExact;
  std::optional<KvType> kv;     ///< unset: f32 for exact, bf16 for fast
  int64_t block_tokens = 32;    ///< 16 or 32
  int64_t threads = 0;          ///< 0 = one a CPU of `cpus`, or see ThreadsOfMachine()
  std::vector<int> cpus;        ///< thread i stays on cpus[i]; empty = anywhere
  int64_t max_context = 0;      ///< tokens a sequence; 0 = what the model was trained with
  int64_t kv_memory_bytes = 0;  ///< 0 = half of what is free, at least one full-context request
  int64_t max_chunk = 128;      ///< prompt tokens of one sequence a step
  /// How many times as long a step may take that others' prompts join; 0 = no limit (PromptPace).
  double prompt_slowdown = 1.75;
  // For comparison, whatever the file says:
  bool full_windows = false;    ///< every window full
  bool additive = false;        ///< plain sums instead of its residual mode
  std::string kernels;          ///< kernel set by name; "" = LOOKBACK_ISA, else the machine's best
  int64_t max_step_rows = 256;  ///< rows (prompt and decode) a step, >= limits.max_requests
  Limits limits;
};

/// A file that has been mapped and checked, with its tokenizer. Immutable, shared by all.
struct LoadedModel {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Tokenizer> tokenizer;  ///< null: the file serves token ids only
  std::string no_tokenizer_reason;       ///< why it is null

  static Result<std::shared_ptr<const LoadedModel>> Open(const std::string& path);
  const ModelConfig& config() const { return checkpoint->config(); }
};

/// Totals since start, counted where the work is done.
struct EngineCounters {
  int64_t steps = 0;
  int64_t prompt_tokens = 0;            ///< prefilled
  int64_t generated_tokens = 0;         ///< sampled
  int64_t attention_products = 0;       ///< query–key products executed, over all query heads
  int64_t attention_products_full = 0;  ///< the same with every window full
  int64_t kv_bytes_read = 0;            ///< keys and values read by attention
  int64_t kv_bytes_read_full = 0;
  int64_t weight_bytes_read = 0;  ///< each weight matrix once a step, embedding rows as gathered
};

/// Where the memory is, bytes.
struct MemoryReport {
  int64_t weight_bytes = 0;     ///< mapped tensors that the forward pass reads
  int64_t packed_bytes = 0;     ///< copies made at load
  int64_t workspace_bytes = 0;  ///< activations, depth history, logits
  int64_t kv_pool_bytes = 0;
  int64_t kv_held_bytes = 0;    ///< by live requests
  int64_t kv_cached_bytes = 0;  ///< kept for reuse
  int64_t kv_held_peak_bytes = 0;
  int64_t kv_block_bytes = 0;
  std::vector<std::vector<int64_t>> kv_held_by_head;  ///< [layer][KV head]
  int64_t kv_full_context_bytes = 0;    ///< worst case of one sequence of max_context tokens
  int64_t kv_full_attention_bytes = 0;  ///< the same with every window full
};

struct EngineLoad {
  int64_t running = 0;  ///< choices being prefilled or decoded
  int64_t waiting = 0;  ///< requests in the queue
  int64_t kv_blocks_held = 0;
  int64_t kv_blocks_promised = 0;  ///< worst case of all admitted requests
  int64_t kv_blocks_total = 0;
  int64_t steps = 0;
  bool draining = false;
};

/// What the engine was built with, for reports.
struct EngineInfo {
  std::string kernels;  ///< kernel set ("reference")
  std::string compute;
  std::string kv;
  int64_t threads = 0;
  int64_t max_context = 0;
  int64_t block_tokens = 0;
  double load_ms = 0.0;
};

/// One model, one thread that plans, computes, samples and emits. All methods are thread-safe.
class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Create(std::shared_ptr<const LoadedModel> model,
                                                const EngineOptions& options);
  /// Cancels what still runs and joins the thread.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const LoadedModel& model() const;
  const EngineOptions& options() const;  ///< as resolved
  const EngineInfo& info() const;

  /// ResolveRequest() with this engine's model and limits.
  Result<GenerateParams> Resolve(GenerateRequest request) const;
  /// Queues a request. RESOURCE_EXHAUSTED: the queue is full, or the request could never fit the KV
  /// pool; UNAVAILABLE: draining; InvalidArgument: the request_id is in use.
  Result<std::shared_ptr<RequestStream>> Submit(GenerateParams params,
                                                std::function<void()> notify = {});
  /// Ends the request before the next step; its stream finishes with kCancelled. False if unknown
  /// (finished, or never seen). Idempotent.
  bool Abort(std::string_view request_id);

  /// From now on Submit refuses; what runs goes on.
  void BeginDrain();
  /// True once nothing runs or waits; false if `timeout` passes first.
  bool WaitIdle(std::chrono::milliseconds timeout);

  EngineCounters counters() const;
  MemoryReport memory() const;
  EngineLoad load() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Runs one sequence at a time, synchronously: logits for every position. For the tools and tests.
class Evaluator {
 public:
  /// `sequences`: how many TimeDecode may run together.
  static Result<std::unique_ptr<Evaluator>> Create(std::shared_ptr<const LoadedModel> model,
                                                   const EngineOptions& options,
                                                   int64_t sequences = 1);
  ~Evaluator();

  /// Called once a position, in order, with [vocab_size] f32 logits that are valid during the call.
  using LogitsSink = std::function<Status(int64_t position, std::span<const float> logits)>;

  /// Feeds `ids` from an empty cache in chunks of at most options.max_chunk tokens.
  Status Run(std::span<const int32_t> ids, const LogitsSink& sink);

  /// Tells `probe` of every read of the residual stream from now on; null for nobody.
  void SetProbe(ResidualProbe* probe);

  /// Bench only: a cache that looks as if `context` tokens of each of `sequences` had been fed
  /// (arbitrary keys and values), then `steps` decode steps of all of them. Returns seconds for all
  /// steps. ResourceExhausted if the KV pool does not hold so many.
  Result<double> TimeDecode(int64_t context, int64_t steps, int64_t sequences = 1);
  /// Bench only: prefill of `tokens` arbitrary ids from an empty cache. Returns seconds.
  Result<double> TimePrefill(int64_t tokens);

  EngineCounters counters() const;
  MemoryReport memory() const;
  const EngineInfo& info() const;

 private:
  class Impl;
  explicit Evaluator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Sequential read bandwidth of main memory with all threads of `pool`, bytes a second (best of 5
/// passes over `bytes`), for the benches to print beside their own figures.
double MeasureStreamBandwidth(ThreadPool& pool, int64_t bytes);

}  // namespace lookback
