#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "engine/executor.h"
#include "engine/prompt_pace.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/stream_writer.h"

namespace lookback {
namespace {

double Milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

Result<std::shared_ptr<const LoadedModel>> LoadedModel::Open(const std::string& path) {
  auto model = std::make_shared<LoadedModel>();
  LOOKBACK_ASSIGN_OR_RETURN(model->checkpoint, Checkpoint::Open(path));
  Result<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(*model->checkpoint);
  if (tokenizer.ok()) {
    model->tokenizer = std::move(tokenizer).value();
    if (model->tokenizer == nullptr) model->no_tokenizer_reason = "the file carries no tokenizer";
  } else if (tokenizer.status().code() == StatusCode::kFailedPrecondition) {
    model->no_tokenizer_reason = tokenizer.status().message();
  } else {
    return std::move(tokenizer).status().WithPrefix(path);
  }
  return std::shared_ptr<const LoadedModel>(std::move(model));
}

/// The one loop: take submissions and cancels, plan, compute, sample, commit, emit.
class Engine::Impl {
 public:
  Impl(std::shared_ptr<const LoadedModel> model, std::unique_ptr<Executor> executor)
      : model_(std::move(model)),
        executor_(std::move(executor)),
        sampler_(executor_->config().vocab_size),
        scheduler_(executor_->cache(), options().limits.max_requests, options().max_chunk,
                   options().max_step_rows),
        pace_(options().prompt_slowdown),
        memory_(executor_->EmptyReport()) {
    logit_rows_.reserve(static_cast<size_t>(executor_->max_logit_rows()));
    logit_items_.reserve(static_cast<size_t>(executor_->max_logit_rows()));
    top_.reserve(static_cast<size_t>(options().limits.max_top_logprobs));
    text_.reserve(kTextReserve);
    certain_.reserve(kTextReserve);
    TakeSnapshot();
    thread_ = std::thread([this] { Loop(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      draining_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  const LoadedModel& model() const { return *model_; }
  const EngineOptions& options() const { return executor_->options(); }
  const EngineInfo& info() const { return executor_->info(); }

  Result<std::shared_ptr<RequestStream>> Submit(GenerateParams params,
                                                std::function<void()> notify) {
    auto stream =
        std::make_shared<RequestStream>(params.request_id, params.sampling.seed, std::move(notify));
    auto request = std::make_shared<Request>(std::move(params), StreamWriter(stream));
    LOOKBACK_RETURN_IF_ERROR(CheckFits(*request));
    if (model_->tokenizer != nullptr) {
      // The answer is decoded with its prompt as context (tokenizers.md, "SentencePiece" 4).
      std::string ignored;
      for (const int32_t id : request->params.prompt) {
        ignored.clear();
        model_->tokenizer->DecodeNext(request->prompt_decode, id, /*skip_special=*/true, ignored);
      }
    }
    request->submitted = Clock::now();
    {
      const std::lock_guard lock(mutex_);
      if (draining_) return Status(StatusCode::kUnavailable, "the server is draining");
      if (waiting_ >= options().limits.max_queue) {
        return Status(StatusCode::kBusy,
                      StrCat("queue: ", waiting_, " requests wait already, the limit is ",
                             options().limits.max_queue, "; try again later"));
      }
      const auto [place, fresh] = by_id_.try_emplace(request->params.request_id, request);
      if (!fresh) {
        return InvalidArgument("request_id: ", Quoted(request->params.request_id),
                               " is in use by a request that has not ended");
      }
      ++waiting_;
      ++unpublished_;
      incoming_.push_back(std::move(request));
    }
    wake_.notify_one();
    return stream;
  }

  bool Abort(std::string_view request_id) {
    {
      const std::lock_guard lock(mutex_);
      const auto place = by_id_.find(std::string(request_id));
      if (place == by_id_.end()) return false;
      place->second->cancelled.store(true, std::memory_order_relaxed);
      attention_ = true;
    }
    wake_.notify_one();
    return true;
  }

  void BeginDrain() {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }

  bool WaitIdle(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, timeout, [this] { return unpublished_ == 0; });
  }

  EngineCounters counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }
  MemoryReport memory() const {
    const std::lock_guard lock(mutex_);
    return memory_;
  }
  EngineLoad load() const {
    const std::lock_guard lock(mutex_);
    EngineLoad load = load_;
    load.waiting = waiting_;
    load.draining = draining_;
    return load;
  }

 private:
  static constexpr size_t kTextReserve = 4096;

  Status CheckFits(const Request& request) const {
    const KvCache& cache = executor_->cache();
    const int64_t needed =
        WorstCaseBlocks(cache.layout(), static_cast<int64_t>(request.params.prompt.size()),
                        request.cached_tokens(), options().max_chunk);
    if (needed <= cache.blocks_total()) return {};
    const int64_t block = cache.layout().block_bytes();
    return {StatusCode::kResourceExhausted,
            StrCat("KV memory: the request needs up to ", needed * block, " bytes, the pool has ",
                   cache.blocks_total() * block)};
  }

  void Loop() {
    const PinnedThread pinned = executor_->PinCaller();
    while (TakeIncoming()) {
      const Clock::time_point now = Clock::now();
      EndCancelled(now);
      const int64_t left_queue = scheduler_.Admit(now);
      if (left_queue > 0) {
        const std::lock_guard lock(mutex_);
        waiting_ -= left_queue;
      }
      StepPlan& plan = scheduler_.Plan(pace_.rows());
      if (!plan.items.empty()) {
        const int64_t prompt_rows = scheduler_.planned_prompt_rows();
        const bool decodes = plan.rows() > prompt_rows;
        executor_->Run(plan);
        NotePeaks();
        EmitPromptLogprobs(plan);
        SampleAll(plan);
        Commit(plan);
        if (decodes) {
          pace_.Record(prompt_rows, std::chrono::duration<double>(Clock::now() - now).count());
        }
      }
      EndStep();
    }
    CancelAll();
    EndStep();
  }

  /// Waits until there is something to do. False once the engine stops.
  bool TakeIncoming() {
    std::unique_lock lock(mutex_);
    if (scheduler_.idle()) {
      wake_.wait(lock, [this] { return stopping_ || attention_ || !incoming_.empty(); });
    }
    attention_ = false;
    for (std::shared_ptr<Request>& request : incoming_) scheduler_.Enqueue(std::move(request));
    incoming_.clear();
    return !stopping_;
  }

  std::optional<FinishReason> EndReason(const Request& request, Clock::time_point now) const {
    if (request.cancelled.load(std::memory_order_relaxed)) return FinishReason::kCancelled;
    if (request.params.deadline && now >= *request.params.deadline) return FinishReason::kDeadline;
    return std::nullopt;
  }

  void EndCancelled(Clock::time_point now) {
    for (const std::shared_ptr<Request>& request : scheduler_.running()) {
      if (const auto reason = EndReason(*request, now)) EndRequest(*request, *reason);
    }
    // A request still in the queue may have some of its choices running: those have ended above.
    for (size_t i = 0; i < scheduler_.waiting().size();) {
      const std::shared_ptr<Request> request = scheduler_.waiting()[i];
      const auto reason = EndReason(*request, now);
      if (!reason) {
        ++i;
        continue;
      }
      scheduler_.Withdraw(*request);
      EndRequest(*request, *reason);
      if (request->admitted == 0) withdrawn_.push_back(request);
      const std::lock_guard lock(mutex_);
      --waiting_;
    }
  }

  /// Ends every choice that has not ended, the ones not yet started too.
  void EndRequest(Request& request, FinishReason reason) {
    for (const std::unique_ptr<Sequence>& sequence : request.sequences) {
      if (!sequence->finished) EndChoice(*sequence, reason, {}, std::nullopt);
    }
    const bool queued = request.admitted < request.params.n;
    for (; queued && request.finished < request.params.n; ++request.finished) {
      request.writer.AddFinish(static_cast<int32_t>(request.finished), reason, {}, std::nullopt, {},
                               0);
    }
    if (queued && !request.writer.done()) SetDone(request);
  }

  void EndChoice(Sequence& sequence, FinishReason reason, std::string_view matched_stop,
                 std::optional<int32_t> stop_id) {
    Request& request = *sequence.request;
    text_.clear();
    certain_.clear();
    if (model_->tokenizer != nullptr) model_->tokenizer->DecodeFlush(sequence.decode, text_);
    if (!text_.empty()) sequence.stops.Feed(text_, certain_, /*may_stop=*/false);
    sequence.stops.Flush(certain_);
    request.writer.AddFinish(sequence.choice, reason, matched_stop, stop_id, certain_,
                             sequence.output_tokens());
    scheduler_.Remove(sequence);
    if (request.finished == request.params.n) SetDone(request);
  }

  void SetDone(Request& request) {
    const Clock::time_point now = Clock::now();
    const bool started = request.started != Clock::time_point{};
    const bool sampled = request.first_token != Clock::time_point{};
    const Clock::time_point start = started ? request.started : now;
    const Clock::time_point first = sampled ? request.first_token : now;
    request.writer.SetTimings(Milliseconds(request.submitted, start), Milliseconds(start, first),
                              Milliseconds(first, now));
    request.writer.SetKvBytesPeak(request.kv_blocks_peak *
                                  executor_->cache().layout().block_bytes());
    request.writer.SetDone();
  }

  void NotePeaks() {
    for (const std::shared_ptr<Request>& request : scheduler_.running()) {
      int64_t held = 0;
      for (const std::unique_ptr<Sequence>& sequence : request->sequences) {
        if (!sequence->finished) held += executor_->cache().blocks_of(sequence->slot);
      }
      request->kv_blocks_peak = std::max(request->kv_blocks_peak, held);
    }
  }

  void EmitPromptLogprobs(const StepPlan& plan) {
    for (size_t i = 0; i < plan.items.size(); ++i) {
      if (!plan.items[i].want_all_logits) continue;
      const StepItem& item = plan.items[i];
      Sequence& sequence = *scheduler_.planned()[i];
      const auto tokens = static_cast<int64_t>(item.ids.size());
      // Row t predicts prompt token fed + t + 1, which the last row of the prompt does not have.
      const int64_t predicted = std::min(tokens, sequence.prompt_tokens() - sequence.fed - 1);
      for (int64_t t = 0; t < predicted;) {
        logit_rows_.clear();
        while (t < predicted && std::ssize(logit_rows_) < executor_->max_logit_rows()) {
          logit_rows_.push_back(item.first_row + t++);
        }
        const std::span<const float> logits = executor_->Logits(logit_rows_);
        for (size_t row = 0; row < logit_rows_.size(); ++row) {
          const int64_t next = sequence.fed + logit_rows_[row] - item.first_row + 1;
          top_.clear();
          const TokenLogprob token =
              TokenLogprobs(RowOf(logits, row), sequence.tokens[static_cast<size_t>(next)],
                            sequence.request->params.prompt_logprobs, &top_);
          sequence.request->writer.AddPromptLogprob(token, top_);
        }
      }
    }
  }

  std::span<const float> RowOf(std::span<const float> logits, size_t row) const {
    const auto vocab = static_cast<size_t>(executor_->config().vocab_size);
    return logits.subspan(row * vocab, vocab);
  }

  void SampleAll(const StepPlan& plan) {
    size_t next = 0;
    while (next < plan.items.size()) {
      logit_rows_.clear();
      logit_items_.clear();
      for (; next < plan.items.size() && std::ssize(logit_rows_) < executor_->max_logit_rows();
           ++next) {
        const StepItem& item = plan.items[next];
        if (!item.want_last_logits) continue;
        logit_rows_.push_back(item.first_row + static_cast<int64_t>(item.ids.size()) - 1);
        logit_items_.push_back(next);
      }
      if (logit_rows_.empty()) continue;
      const std::span<const float> logits = executor_->Logits(logit_rows_);
      for (size_t row = 0; row < logit_rows_.size(); ++row) {
        SampleOne(*scheduler_.planned()[logit_items_[row]], RowOf(logits, row));
      }
    }
  }

  void SampleOne(Sequence& sequence, std::span<const float> logits) {
    Request& request = *sequence.request;
    const GenerateParams& params = request.params;
    const std::span<const int32_t> tokens(sequence.tokens);
    const auto prompt = static_cast<size_t>(sequence.prompt_tokens());
    const bool may_stop = sequence.output_tokens() >= params.min_new_tokens;
    top_.clear();
    const TokenLogprob token =
        sampler_.Sample(params.sampling, logits, tokens.first(prompt), tokens.subspan(prompt),
                        may_stop ? std::span<const int32_t>() : params.stop_ids, sequence.choice,
                        static_cast<int64_t>(tokens.size()), params.top_logprobs, &top_);
    sequence.tokens.push_back(token.id);
    ++generated_tokens_;
    if (request.first_token == Clock::time_point{}) request.first_token = Clock::now();

    const bool stop_id = may_stop && std::find(params.stop_ids.begin(), params.stop_ids.end(),
                                               token.id) != params.stop_ids.end();
    text_.clear();
    certain_.clear();
    int32_t matched = -1;
    if (model_->tokenizer != nullptr && (!stop_id || params.include_stop)) {
      model_->tokenizer->DecodeNext(sequence.decode, token.id, /*skip_special=*/!stop_id, text_);
      matched = sequence.stops.Feed(text_, certain_,
                                    sequence.output_tokens() >= params.min_new_tokens && !stop_id);
    }
    request.writer.AddToken(sequence.choice, token, certain_, top_);
    if (stop_id) {
      EndChoice(sequence, FinishReason::kStop, {}, token.id);
    } else if (matched >= 0) {
      EndChoice(sequence, FinishReason::kStop, params.stop[static_cast<size_t>(matched)],
                std::nullopt);
    } else if (sequence.output_tokens() == params.max_new_tokens) {
      EndChoice(sequence, FinishReason::kLength, {}, std::nullopt);
    }
  }

  /// The step's tokens are in the cache for good; a choice that has ended has given its blocks
  /// back.
  void Commit(const StepPlan& plan) {
    for (size_t i = 0; i < plan.items.size(); ++i) {
      Sequence& sequence = *scheduler_.planned()[i];
      if (sequence.prefilling()) prompt_tokens_ += std::ssize(plan.items[i].ids);
      sequence.fed += std::ssize(plan.items[i].ids);
      if (sequence.finished) continue;
      executor_->cache().Commit(sequence.slot);
      if (sequence.request->params.max_new_tokens == 0 && !sequence.prefilling()) {
        EndChoice(sequence, FinishReason::kLength, {}, std::nullopt);
      }
    }
  }

  /// Ids and reports first, then the news: whoever reads that a request has ended may use its id
  /// again and finds it in no report.
  void EndStep() {
    int64_t ended = std::ssize(withdrawn_);
    {
      const std::lock_guard lock(mutex_);
      const auto forget = [this](const Request& request) {
        by_id_.erase(request.params.request_id);
      };
      for (const std::shared_ptr<Request>& request : withdrawn_) forget(*request);
      for (const std::shared_ptr<Request>& request : scheduler_.running()) {
        if (!request->writer.ending()) continue;
        forget(*request);
        ++ended;
      }
      TakeSnapshot();
    }
    for (const std::shared_ptr<Request>& request : withdrawn_) request->writer.Publish();
    for (const std::shared_ptr<Request>& request : scheduler_.running()) request->writer.Publish();
    if (ended == 0) return;
    withdrawn_.clear();
    scheduler_.ForgetFinished();
    const std::lock_guard lock(mutex_);
    unpublished_ -= ended;
    if (unpublished_ == 0) idle_.notify_all();
  }

  void CancelAll() {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, request] : by_id_) request->cancelled.store(true);
      for (std::shared_ptr<Request>& request : incoming_) scheduler_.Enqueue(std::move(request));
      incoming_.clear();
    }
    EndCancelled(Clock::now());
  }

  /// Callers hold mutex_.
  void TakeSnapshot() {
    counters_ = executor_->counters();
    counters_.prompt_tokens = prompt_tokens_;
    counters_.generated_tokens = generated_tokens_;
    executor_->ReportMemory(memory_);
    load_.running = scheduler_.running_sequences();
    load_.kv_blocks_held = executor_->cache().blocks_held();
    load_.kv_blocks_promised = executor_->cache().blocks_promised();
    load_.kv_blocks_total = executor_->cache().blocks_total();
    load_.steps = counters_.steps;
  }

  const std::shared_ptr<const LoadedModel> model_;
  const std::unique_ptr<Executor> executor_;

  // The engine thread's own.
  Sampler sampler_;
  Scheduler scheduler_;
  PromptPace pace_;
  std::vector<int64_t> logit_rows_;
  std::vector<size_t> logit_items_;
  std::vector<TokenLogprob> top_;
  std::string text_;
  std::string certain_;
  int64_t prompt_tokens_ = 0;
  int64_t generated_tokens_ = 0;
  std::vector<std::shared_ptr<Request>> withdrawn_;  ///< ended in the queue, not yet published

  // Shared, under mutex_.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::vector<std::shared_ptr<Request>> incoming_;
  std::unordered_map<std::string, std::shared_ptr<Request>> by_id_;  ///< not ended yet
  int64_t waiting_ = 0;
  int64_t unpublished_ = 0;  ///< requests whose end no reader has been told
  bool attention_ = false;
  bool draining_ = false;
  bool stopping_ = false;
  EngineCounters counters_;
  MemoryReport memory_;
  EngineLoad load_;

  std::thread thread_;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const LoadedModel> model,
                                               const EngineOptions& options) {
  LOOKBACK_ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor, Executor::Create(*model, options));
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(std::move(model), std::move(executor))));
}

const LoadedModel& Engine::model() const { return impl_->model(); }
const EngineOptions& Engine::options() const { return impl_->options(); }
const EngineInfo& Engine::info() const { return impl_->info(); }

Result<GenerateParams> Engine::Resolve(GenerateRequest request) const {
  const Checkpoint& checkpoint = *model().checkpoint;
  return ResolveRequest(std::move(request), checkpoint.config(), checkpoint.tokenizer(),
                        checkpoint.generation(), options().limits, options().max_context);
}

Result<std::shared_ptr<RequestStream>> Engine::Submit(GenerateParams params,
                                                      std::function<void()> notify) {
  return impl_->Submit(std::move(params), std::move(notify));
}

bool Engine::Abort(std::string_view request_id) { return impl_->Abort(request_id); }
void Engine::BeginDrain() { impl_->BeginDrain(); }
bool Engine::WaitIdle(std::chrono::milliseconds timeout) { return impl_->WaitIdle(timeout); }
EngineCounters Engine::counters() const { return impl_->counters(); }
MemoryReport Engine::memory() const { return impl_->memory(); }
EngineLoad Engine::load() const { return impl_->load(); }

}  // namespace lookback
