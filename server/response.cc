#include "server/response.h"

#include <algorithm>

namespace lookback::server {
namespace {

// Entries (tokens and alternatives, ~16 bytes each on the wire) of one stream element: keeps a slow
// reader's joined messages well below the 4 MiB that gRPC clients accept by default.
constexpr int64_t kMaxEntries = 16'384;

v1::Finish::Reason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return v1::Finish::STOP;
    case FinishReason::kLength:
      return v1::Finish::LENGTH;
    case FinishReason::kCancelled:
      return v1::Finish::CANCELLED;
    case FinishReason::kDeadline:
      return v1::Finish::DEADLINE;
    case FinishReason::kError:
      break;  // the call's status says it
  }
  return v1::Finish::REASON_UNSPECIFIED;
}

const char* FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kError:
      break;
  }
  return "error";
}

void AddTop(const TokenLogprob* begin, size_t count, v1::TokenLogprobs& to) {
  for (const TokenLogprob& top : std::span(begin, count)) {
    v1::TokenLogprob& entry = *to.add_top();
    entry.set_id(top.id);
    entry.set_logprob(top.logprob);
  }
}

}  // namespace

ResponseBuilder::ResponseBuilder(ResponseContext context, const ModelIdentity& identity)
    : context_(std::move(context)),
      identity_(identity),
      echoed_(static_cast<size_t>(context_.n), false),
      current_(static_cast<size_t>(context_.n), -1),
      weight_(static_cast<size_t>(context_.n), 0) {
  totals_.prompt_tokens = static_cast<int64_t>(context_.prompt.size());
}

void ResponseBuilder::SetIdentity(v1::GenerateResponse& message) const {
  message.set_seed(context_.seed);
  message.set_model_hash(identity_.model_hash);
  message.set_window_table_hash(identity_.window_table_hash);
  message.set_window_source(identity_.window_source);
}

v1::GenerateResponse& ResponseBuilder::Open(int64_t choice, std::deque<v1::GenerateResponse>& out) {
  const auto c = static_cast<size_t>(choice);
  current_[c] = static_cast<int64_t>(out.size());
  weight_[c] = 0;
  v1::GenerateResponse& message = out.emplace_back();
  message.set_request_id(context_.request_id);
  message.set_index(choice);
  if (first_) {
    first_ = false;
    SetIdentity(message);
    message.mutable_prompt()->set_tokens(static_cast<int64_t>(context_.prompt.size()));
  }
  return message;
}

v1::GenerateResponse& ResponseBuilder::Current(int64_t choice,
                                               std::deque<v1::GenerateResponse>& out) {
  const auto c = static_cast<size_t>(choice);
  v1::GenerateResponse& message = current_[c] >= 0 && weight_[c] < kMaxEntries
                                      ? out[static_cast<size_t>(current_[c])]
                                      : Open(choice, out);
  if (context_.echo && !echoed_[c]) {
    echoed_[c] = true;
    message.set_text(context_.echo_text);
    message.mutable_token_ids()->Add(context_.prompt.begin(), context_.prompt.end());
  }
  return message;
}

void ResponseBuilder::AppendPrompt(const StreamBatch& batch,
                                   std::deque<v1::GenerateResponse>& out) {
  if (context_.prompt_logprobs < 0 || batch.prompt_logprobs.empty()) return;
  const auto top = static_cast<size_t>(context_.prompt_logprobs);
  for (size_t i = 0; i < batch.prompt_logprobs.size(); ++i) {
    const bool room = current_[0] >= 0 && weight_[0] < kMaxEntries;
    v1::GenerateResponse& message = room ? out[static_cast<size_t>(current_[0])] : Open(0, out);
    v1::TokenLogprobs& entry = *message.mutable_prompt()->add_logprobs();
    entry.set_id(batch.prompt_logprobs[i].id);
    entry.set_logprob(batch.prompt_logprobs[i].logprob);
    if ((i + 1) * top <= batch.prompt_top.size()) AddTop(&batch.prompt_top[i * top], top, entry);
    weight_[0] += 1 + context_.prompt_logprobs;
  }
}

void ResponseBuilder::AppendToken(const StreamBatch& batch, const TokenEvent& event,
                                  std::deque<v1::GenerateResponse>& out) {
  v1::GenerateResponse& message = Current(event.choice, out);
  message.add_token_ids(event.id);
  message.mutable_text()->append(batch.text, event.text_begin, event.text_bytes);
  if (context_.top_logprobs >= 0) {
    v1::TokenLogprobs& entry = *message.add_logprobs();
    entry.set_id(event.id);
    entry.set_logprob(event.logprob);
    if (event.top_count > 0) AddTop(&batch.top[event.top_begin], event.top_count, entry);
  }
  weight_[static_cast<size_t>(event.choice)] += 1 + event.top_count;
  ++totals_.completion_tokens;
}

void ResponseBuilder::AppendFinish(const StreamBatch& batch, const FinishEvent& event,
                                   std::deque<v1::GenerateResponse>& out) {
  v1::GenerateResponse& message = Current(event.choice, out);
  message.mutable_text()->append(batch.text, event.text_begin, event.text_bytes);
  v1::Finish& finish = *message.mutable_finish();
  finish.set_reason(ToProto(event.reason));
  if (!event.matched_stop.empty()) finish.set_matched_stop(event.matched_stop);
  if (event.stop_id) finish.set_stop_id(*event.stop_id);
  finish.set_completion_tokens(event.completion_tokens);
  totals_.finish = FinishName(event.reason);
  deadline_ |= event.reason == FinishReason::kDeadline;
  cancelled_ |= event.reason == FinishReason::kCancelled;
}

void ResponseBuilder::AppendSummary(const StreamBatch& batch, v1::GenerateResponse& message) {
  SetIdentity(message);
  message.mutable_usage()->set_prompt_tokens(totals_.prompt_tokens);
  message.mutable_usage()->set_completion_tokens(totals_.completion_tokens);
  message.mutable_timings()->set_queue_ms(batch.queue_ms);
  message.mutable_timings()->set_prefill_ms(batch.prefill_ms);
  message.mutable_timings()->set_decode_ms(batch.decode_ms);
  message.set_kv_bytes_held_peak(batch.kv_bytes_peak);
  totals_.queue_ms = batch.queue_ms;
  totals_.prefill_ms = batch.prefill_ms;
  totals_.decode_ms = batch.decode_ms;
}

void ResponseBuilder::Append(const StreamBatch& batch, std::deque<v1::GenerateResponse>& out) {
  std::fill(current_.begin(), current_.end(), -1);
  AppendPrompt(batch, out);
  for (const TokenEvent& event : batch.tokens) AppendToken(batch, event, out);
  for (const FinishEvent& event : batch.finishes) AppendFinish(batch, event, out);
  if (!batch.done) return;
  done_ = true;
  error_ = batch.error;
  // Every choice's last message of this batch stands at the end of `out` in some order; whichever
  // is last ends the stream.
  AppendSummary(batch, out.empty() ? Open(0, out) : out.back());
}

grpc::Status ResponseBuilder::final_status() const {
  if (!error_.ok()) return ToGrpcStatus(error_);
  if (deadline_) return {grpc::StatusCode::DEADLINE_EXCEEDED, "the call's deadline passed"};
  if (cancelled_) return {grpc::StatusCode::CANCELLED, "the request was aborted"};
  return grpc::Status::OK;
}

void ResponseGatherer::Add(v1::GenerateResponse message) {
  v1::GenerateResponse& to = choices_[static_cast<size_t>(message.index())];
  // MergeFrom appends lists and takes the newer scalars, but a string is a scalar to it.
  std::string text = std::move(*to.mutable_text());
  text += message.text();
  // `tokens` of a continued prompt is 0, which MergeFrom leaves alone.
  to.MergeFrom(message);
  to.set_text(std::move(text));
}

v1::GenerateResponse ResponseGatherer::Finish() {
  v1::GenerateResponse whole = std::move(choices_[0]);
  for (size_t c = 1; c < choices_.size(); ++c) {
    v1::GenerateResponse& choice = choices_[c];
    // The summary came with whichever choice ended last: it belongs to the whole.
    if (choice.has_usage()) {
      *whole.mutable_usage() = choice.usage();
      *whole.mutable_timings() = choice.timings();
      whole.set_kv_bytes_held_peak(choice.kv_bytes_held_peak());
    }
    if (choice.has_prompt()) whole.mutable_prompt()->MergeFrom(choice.prompt());
    if (choice.has_seed()) whole.set_seed(choice.seed());
    if (whole.model_hash().empty()) whole.set_model_hash(choice.model_hash());
    if (whole.window_table_hash().empty()) whole.set_window_table_hash(choice.window_table_hash());
    if (whole.window_source().empty()) whole.set_window_source(choice.window_source());
    choice.clear_usage();
    choice.clear_timings();
    choice.clear_kv_bytes_held_peak();
    choice.clear_prompt();
    choice.clear_seed();
    choice.clear_model_hash();
    choice.clear_window_table_hash();
    choice.clear_window_source();
    *whole.add_more_choices() = std::move(choice);
  }
  return whole;
}

v1::ScoreResponse ToScoreResponse(v1::GenerateResponse response, std::vector<int32_t> prompt) {
  v1::ScoreResponse out;
  out.set_request_id(response.request_id());
  out.mutable_token_ids()->Add(prompt.begin(), prompt.end());
  double total = 0.0;
  for (const v1::TokenLogprobs& entry : response.prompt().logprobs()) {
    total += static_cast<double>(entry.logprob());
  }
  *out.mutable_logprobs() = std::move(*response.mutable_prompt()->mutable_logprobs());
  out.set_total_logprob(total);
  *out.mutable_usage() = response.usage();
  *out.mutable_timings() = response.timings();
  out.set_kv_bytes_held_peak(response.kv_bytes_held_peak());
  out.set_model_hash(response.model_hash());
  out.set_window_table_hash(response.window_table_hash());
  out.set_window_source(response.window_source());
  return out;
}

}  // namespace lookback::server
