#include "engine/scheduler.h"

#include <algorithm>

namespace lookback {

Scheduler::Scheduler(KvCache& cache, int64_t max_sequences, int64_t max_chunk, int64_t max_rows)
    : cache_(cache), max_sequences_(max_sequences), max_chunk_(max_chunk), max_rows_(max_rows) {
  const auto most = static_cast<size_t>(max_sequences);
  running_.reserve(most);
  sequences_.reserve(most);
  plan_.items.reserve(most);
  planned_.reserve(most);
}

int64_t Scheduler::Admit(Clock::time_point now) {
  int64_t left_queue = 0;
  while (!waiting_.empty()) {
    const std::shared_ptr<Request>& request = waiting_.front();
    while (request->admitted < request->params.n && Start(*request)) {
    }
    if (request->admitted > 0 &&
        std::find(running_.begin(), running_.end(), request) == running_.end()) {
      request->started = now;
      running_.push_back(request);
    }
    if (request->admitted < request->params.n) break;
    waiting_.pop_front();
    ++left_queue;
  }
  return left_queue;
}

bool Scheduler::Start(Request& request) {
  if (running_sequences() == max_sequences_) return false;
  const auto prompt = static_cast<int64_t>(request.params.prompt.size());
  const int32_t slot = cache_.Open(prompt, request.cached_tokens(), max_chunk_);
  if (slot < 0) return false;
  auto sequence = std::make_unique<Sequence>();
  sequence->request = &request;
  sequence->choice = static_cast<int32_t>(request.admitted++);
  sequence->slot = slot;
  sequence->tokens.reserve(static_cast<size_t>(prompt + request.params.max_new_tokens));
  sequence->tokens.insert(sequence->tokens.end(), request.params.prompt.begin(),
                          request.params.prompt.end());
  sequence->decode = request.prompt_decode;
  sequence->stops = StopMatcher(request.params.stop, request.params.include_stop);
  sequences_.push_back(sequence.get());
  request.sequences.push_back(std::move(sequence));
  return true;
}

StepPlan& Scheduler::Plan(int64_t prompt_rows) {
  plan_.items.clear();
  planned_.clear();
  int64_t rows = max_rows_;
  const auto add = [&](Sequence& sequence, int64_t tokens) {
    const GenerateParams& params = sequence.request->params;
    const std::span<const int32_t> all(sequence.tokens);
    StepItem item;
    item.slot = sequence.slot;
    item.ids = all.subspan(static_cast<size_t>(sequence.fed), static_cast<size_t>(tokens));
    const bool last = sequence.fed + tokens == static_cast<int64_t>(all.size());
    item.want_last_logits = last && params.max_new_tokens > 0;
    item.want_all_logits =
        params.prompt_logprobs >= 0 && sequence.prefilling() && sequence.choice == 0;
    plan_.items.push_back(item);
    planned_.push_back(&sequence);
    rows -= tokens;
  };
  for (Sequence* sequence : sequences_) {
    if (!sequence->prefilling()) add(*sequence, 1);
  }
  if (!plan_.items.empty()) rows = std::min(rows, prompt_rows);
  const int64_t for_prompts = rows;
  for (Sequence* sequence : sequences_) {
    if (rows == 0) break;
    if (!sequence->prefilling()) continue;
    add(*sequence, std::min({rows, max_chunk_, sequence->prompt_tokens() - sequence->fed}));
  }
  planned_prompt_rows_ = for_prompts - rows;
  return plan_;
}

void Scheduler::Remove(Sequence& sequence) {
  cache_.Close(sequence.slot);
  sequences_.erase(std::find(sequences_.begin(), sequences_.end(), &sequence));
  sequence.finished = true;
  ++sequence.request->finished;
}

bool Scheduler::Withdraw(const Request& request) {
  const auto place = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const auto& other) { return other.get() == &request; });
  if (place == waiting_.end()) return false;
  waiting_.erase(place);
  return true;
}

void Scheduler::ForgetFinished() {
  std::erase_if(running_, [](const auto& request) { return request->writer.done(); });
}

}  // namespace lookback
