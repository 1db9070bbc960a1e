// Which tokens run in the next step: continuous batching with chunked prefill. Pure bookkeeping
// over the cache's promises; it computes nothing and knows no clock but what it is told.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/request.h"
#include "engine/step.h"
#include "engine/stop_matcher.h"
#include "engine/stream_writer.h"
#include "engine/tokenizer/tokenizer.h"

namespace lookback {

using Clock = std::chrono::steady_clock;
struct Request;

/// One choice of a request while it runs.
struct Sequence {
  Request* request = nullptr;
  int32_t choice = 0;
  int32_t slot = -1;            ///< in the KvCache
  std::vector<int32_t> tokens;  ///< prompt, then output; never reallocated while it runs
  int64_t fed = 0;              ///< tokens in the cache
  bool finished = false;
  DecodeState decode;
  StopMatcher stops;

  int64_t prompt_tokens() const;
  int64_t output_tokens() const { return static_cast<int64_t>(tokens.size()) - prompt_tokens(); }
  bool prefilling() const { return fed < prompt_tokens(); }
};

/// A request from submission to its last event.
struct Request {
  Request(GenerateParams params, StreamWriter writer)
      : params(std::move(params)), writer(std::move(writer)) {}

  GenerateParams params;
  StreamWriter writer;
  DecodeState prompt_decode;  ///< after the prompt: where the answer's text starts
  std::atomic<bool> cancelled{false};
  int64_t admitted = 0;  ///< choices that have been given room
  int64_t finished = 0;  ///< choices that have ended
  std::vector<std::unique_ptr<Sequence>> sequences;
  Clock::time_point submitted, started, first_token;
  int64_t kv_blocks_peak = 0;

  /// Tokens of one choice that reach the cache: the last one sampled does not.
  int64_t cached_tokens() const {
    return static_cast<int64_t>(params.prompt.size()) +
           std::max<int64_t>(0, params.max_new_tokens - 1);
  }
};

inline int64_t Sequence::prompt_tokens() const {
  return static_cast<int64_t>(request->params.prompt.size());
}

class Scheduler {
 public:
  /// max_rows >= max_sequences, so that every running sequence decodes in every step.
  Scheduler(KvCache& cache, int64_t max_sequences, int64_t max_chunk, int64_t max_rows);

  void Enqueue(std::shared_ptr<Request> request) { waiting_.push_back(std::move(request)); }
  /// Gives room to waiting requests, first come first served: a request that does not fit holds
  /// back those behind it, so that large ones do not starve. Returns how many left the queue.
  int64_t Admit(Clock::time_point now);
  /// The next step: one row for every decoding sequence, the rest of the rows to prompts in the
  /// order of admission, in chunks; at most `prompt_rows` of them where something decodes. Empty if
  /// nothing runs. Valid until the next call.
  StepPlan& Plan(int64_t prompt_rows = std::numeric_limits<int64_t>::max());
  /// Rows of the plan that are a prompt's; the others decode.
  int64_t planned_prompt_rows() const { return planned_prompt_rows_; }
  /// planned()[i] is the sequence of Plan().items[i].
  std::span<Sequence* const> planned() const { return planned_; }

  /// Gives the sequence's blocks back and forgets it; its request goes when all its choices have.
  void Remove(Sequence& sequence);
  /// Takes a request out of the queue; its running choices stay. False if it is not in there.
  bool Withdraw(const Request& request);

  std::span<const std::shared_ptr<Request>> running() const { return running_; }
  const std::deque<std::shared_ptr<Request>>& waiting() const { return waiting_; }
  int64_t running_sequences() const { return static_cast<int64_t>(sequences_.size()); }
  bool idle() const { return sequences_.empty() && waiting_.empty(); }
  /// Drops requests whose choices have all ended.
  void ForgetFinished();

 private:
  bool Start(Request& request);

  KvCache& cache_;
  int64_t max_sequences_;
  int64_t max_chunk_;
  int64_t max_rows_;
  std::deque<std::shared_ptr<Request>> waiting_;
  std::vector<std::shared_ptr<Request>> running_;  ///< requests with a running choice, in order
  std::vector<Sequence*> sequences_;               ///< running choices, in order of admission
  StepPlan plan_;
  std::vector<Sequence*> planned_;
  int64_t planned_prompt_rows_ = 0;
};

}  // namespace lookback
