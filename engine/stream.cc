#include <utility>

#include "engine/request.h"
#include "engine/stream_writer.h"

namespace lookback {
namespace {

void Reserve(StreamBatch& batch) {
  batch.tokens.reserve(StreamWriter::kReservedTokens);
  batch.text.reserve(StreamWriter::kReservedTextBytes);
  batch.top.reserve(StreamWriter::kReservedTop);
}

template <typename T>
void Append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

void StreamBatch::Clear() {
  tokens.clear();
  finishes.clear();
  text.clear();
  top.clear();
  prompt_logprobs.clear();
  prompt_top.clear();
  done = false;
  error = {};
  queue_ms = prefill_ms = decode_ms = 0.0;
  kv_bytes_peak = 0;
}

RequestStream::RequestStream(std::string request_id, uint64_t seed, std::function<void()> notify)
    : request_id_(std::move(request_id)), seed_(seed), notify_(std::move(notify)) {
  Reserve(pending_);
}

bool RequestStream::TakeLocked(StreamBatch& batch) {
  if (!has_news_) {
    batch.done = done_;
    return false;
  }
  std::swap(batch, pending_);
  has_news_ = false;
  return true;
}

bool RequestStream::Take(StreamBatch& batch) {
  batch.Clear();
  Reserve(batch);  // here, on the consumer's thread: the engine writes into this storage next
  const std::lock_guard lock(mutex_);
  return TakeLocked(batch);
}

bool RequestStream::WaitAndTake(StreamBatch& batch) {
  batch.Clear();
  Reserve(batch);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_news_ || done_; });
  return TakeLocked(batch);
}

StreamWriter::StreamWriter(std::shared_ptr<RequestStream> stream) : stream_(std::move(stream)) {
  Reserve(staged_);
}

uint32_t StreamWriter::StageText(std::string_view text) {
  const auto begin = static_cast<uint32_t>(staged_.text.size());
  staged_.text.append(text);
  return begin;
}

void StreamWriter::AddToken(int32_t choice, TokenLogprob token, std::string_view text,
                            std::span<const TokenLogprob> top) {
  TokenEvent event;
  event.choice = choice;
  event.id = token.id;
  event.logprob = token.logprob;
  event.text_begin = StageText(text);
  event.text_bytes = static_cast<uint32_t>(text.size());
  event.top_begin = static_cast<uint32_t>(staged_.top.size());
  event.top_count = static_cast<uint32_t>(top.size());
  staged_.tokens.push_back(event);
  staged_.top.insert(staged_.top.end(), top.begin(), top.end());
  has_news_ = true;
}

void StreamWriter::AddFinish(int32_t choice, FinishReason reason, std::string_view matched_stop,
                             std::optional<int32_t> stop_id, std::string_view text,
                             int64_t completion_tokens) {
  FinishEvent event;
  event.choice = choice;
  event.reason = reason;
  event.matched_stop = matched_stop;
  event.stop_id = stop_id;
  event.text_begin = StageText(text);
  event.text_bytes = static_cast<uint32_t>(text.size());
  event.completion_tokens = completion_tokens;
  staged_.finishes.push_back(std::move(event));
  has_news_ = true;
}

void StreamWriter::AddPromptLogprob(TokenLogprob token, std::span<const TokenLogprob> top) {
  staged_.prompt_logprobs.push_back(token);
  staged_.prompt_top.insert(staged_.prompt_top.end(), top.begin(), top.end());
}

void StreamWriter::SetTimings(double queue_ms, double prefill_ms, double decode_ms) {
  staged_.queue_ms = queue_ms;
  staged_.prefill_ms = prefill_ms;
  staged_.decode_ms = decode_ms;
}

void StreamWriter::SetKvBytesPeak(int64_t bytes) { staged_.kv_bytes_peak = bytes; }

void StreamWriter::SetDone(Status error) {
  staged_.done = true;
  staged_.error = std::move(error);
  has_news_ = true;
}

void StreamWriter::Publish() {
  if (!has_news_) return;
  {
    const std::lock_guard lock(stream_->mutex_);
    StreamBatch& pending = stream_->pending_;
    const auto text_base = static_cast<uint32_t>(pending.text.size());
    const auto top_base = static_cast<uint32_t>(pending.top.size());
    for (TokenEvent event : staged_.tokens) {
      event.text_begin += text_base;
      event.top_begin += top_base;
      pending.tokens.push_back(event);
    }
    for (FinishEvent& event : staged_.finishes) {
      event.text_begin += text_base;
      pending.finishes.push_back(std::move(event));
    }
    pending.text += staged_.text;
    Append(pending.top, staged_.top);
    Append(pending.prompt_logprobs, staged_.prompt_logprobs);
    Append(pending.prompt_top, staged_.prompt_top);
    pending.done = staged_.done;
    pending.error = std::move(staged_.error);
    pending.queue_ms = staged_.queue_ms;
    pending.prefill_ms = staged_.prefill_ms;
    pending.decode_ms = staged_.decode_ms;
    pending.kv_bytes_peak = staged_.kv_bytes_peak;
    stream_->has_news_ = true;
    stream_->done_ = done_ = staged_.done;
  }
  staged_.tokens.clear();
  staged_.finishes.clear();
  staged_.text.clear();
  staged_.top.clear();
  staged_.prompt_logprobs.clear();
  staged_.prompt_top.clear();
  staged_.error = {};
  has_news_ = false;
  stream_->changed_.notify_all();
  if (stream_->notify_) stream_->notify_();
}

}  // namespace lookback
