#include "server/calls.h"

#include <exception>

#include "server/log.h"

namespace lookback::server {
namespace {

using std::chrono::steady_clock;

// A queue slot frees when a request is admitted, about as often as one finishes.
constexpr int64_t kRetryAfterMs = 1000;

const char* CodeName(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return "OK";
    case grpc::StatusCode::CANCELLED:
      return "CANCELLED";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case grpc::StatusCode::NOT_FOUND:
      return "NOT_FOUND";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case grpc::StatusCode::FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case grpc::StatusCode::UNAVAILABLE:
      return "UNAVAILABLE";
    case grpc::StatusCode::INTERNAL:
      return "INTERNAL";
    default:
      return "UNKNOWN";
  }
}

}  // namespace

std::shared_ptr<GenerationCall> HoldUntilDone(std::shared_ptr<GenerationCall> call) {
  call->self_ = call;
  return call;
}

GenerationCall::GenerationCall(ServingState& state, grpc::CallbackServerContext& context,
                               const char* method)
    : state_(state), context_(context), method_(method) {}

Status GenerationCall::Submit(Generation generation, bool from_text) {
  LOOKBACK_RETURN_IF_ERROR(state_.CheckNotDraining());
  deadline_ = ToSteady(context_.deadline());
  generation.request.deadline = deadline_;
  request_id_ = generation.request.request_id;
  Result<GenerateParams> params = state_.engine->Resolve(std::move(generation.request));
  if (!params.ok()) return NamePromptField(std::move(params).status(), from_text);
  if (!state_.live.Add(params->request_id)) {
    return Mismatch("request_id", StrCat(Quoted(params->request_id), ", which is in use"),
                    "an id of its own");
  }
  request_id_ = params->request_id;
  owns_id_ = true;
  prompt_ = params->prompt;
  n_ = params->n;
  ResponseContext response;
  response.prompt = prompt_;
  response.echo = generation.echo;
  response.echo_text = std::move(generation.echo_text);
  response.n = params->n;
  response.top_logprobs = params->top_logprobs;
  response.prompt_logprobs = params->prompt_logprobs;
  auto notify = [pump = &state_.pump, weak = weak_from_this()] {
    if (std::shared_ptr<GenerationCall> call = weak.lock()) pump->Wake(std::move(call));
  };
  auto stream = state_.engine->Submit(std::move(params).value(), std::move(notify));
  if (!stream.ok()) return NamePromptField(std::move(stream).status(), from_text);
  stream_ = std::move(stream).value();
  response.request_id = request_id_;
  response.seed = stream_->seed();
  builder_.emplace(std::move(response), state_.identity);
  // The engine may have notified before the stream was ours to look at: look now.
  submitted_.store(true);
  Wake();
  return {};
}

void GenerationCall::Fail(const Status& status) {
  if (status.code() == StatusCode::kBusy) {
    context_.AddTrailingMetadata("retry-after-ms", std::to_string(kRetryAfterMs));
  }
  const grpc::Status answer = ToGrpcStatus(status);
  MarkFinished(answer);
  FinishCall(answer);
}

void GenerationCall::Run() {
  if (!submitted_.load() || finished_ || Busy()) return;
  if (cancelled_.load()) {
    const grpc::Status status = CancelledStatus();
    MarkFinished(status);
    FinishCall(status);
    return;
  }
  try {
    Step();
  } catch (const std::exception& error) {
    // Memory ran out while an answer was being put together. Nothing was handed to gRPC.
    state_.engine->Abort(request_id_);
    const grpc::Status status(grpc::StatusCode::RESOURCE_EXHAUSTED, error.what());
    MarkFinished(status);
    FinishCall(status);
  }
}

bool GenerationCall::TakeNews() {
  if (builder_->done() || !stream_->Take(batch_)) return false;
  builder_->Append(batch_, outbox_);
  return true;
}

grpc::Status GenerationCall::CancelledStatus() const {
  if (deadline_ && steady_clock::now() >= *deadline_) {
    return {grpc::StatusCode::DEADLINE_EXCEEDED, "the call's deadline passed"};
  }
  return {grpc::StatusCode::CANCELLED, "the client cancelled"};
}

grpc::Status GenerationCall::FinalStatus() const {
  const grpc::Status status = builder_->final_status();
  if (status.error_code() == grpc::StatusCode::CANCELLED && state_.cut_short.load()) {
    return {grpc::StatusCode::UNAVAILABLE, "the server shut down before the generation ended"};
  }
  return status;
}

void GenerationCall::MarkFinished(const grpc::Status& status) {
  finished_ = true;
  {
    const std::lock_guard lock(id_mutex_);
    if (owns_id_) state_.live.Remove(request_id_);
    owns_id_ = false;
  }
  if (!state_.options.log_requests) return;
  Json fields = {{"method", method_},
                 {"request_id", request_id_},
                 {"code", CodeName(status.error_code())},
                 {"total_ms",
                  std::chrono::duration<double, std::milli>(steady_clock::now() - begun_).count()}};
  if (!status.ok()) fields["message"] = status.error_message();
  if (builder_) {
    const ResponseTotals& totals = builder_->totals();
    fields["prompt_tokens"] = totals.prompt_tokens;
    fields["completion_tokens"] = totals.completion_tokens;
    fields["finish"] = totals.finish;
    fields["queue_ms"] = totals.queue_ms;
    fields["prefill_ms"] = totals.prefill_ms;
    fields["decode_ms"] = totals.decode_ms;
  }
  LogLine("request", std::move(fields));
}

void GenerationCall::HandleCancel() {
  if (!submitted_.load()) return;  // it failed before the engine saw it
  cancelled_.store(true);
  {
    const std::lock_guard lock(id_mutex_);
    if (owns_id_) state_.engine->Abort(request_id_);
  }
  Wake();
}

void GenerationCall::HandleDone() {
  // The last act: without other holders the call ends here.
  const std::shared_ptr<GenerationCall> self = std::move(self_);
}

void StreamCall::OnWriteDone(bool ok) {
  writing_.store(false);
  // A write that failed means that the peer is gone.
  if (ok) {
    Wake();
  } else {
    HandleCancel();
  }
}

void StreamCall::Step() {
  if (outbox_.empty()) TakeNews();
  if (outbox_.empty()) return;
  buffer_ = SerializeMessage(outbox_.front());
  outbox_.pop_front();
  if (!outbox_.empty() || !builder_->done()) {
    writing_.store(true);
    StartWrite(&buffer_);
    return;
  }
  const grpc::Status status = FinalStatus();
  MarkFinished(status);
  StartWriteAndFinish(&buffer_, grpc::WriteOptions(), status);
}

void GatherCall::Step() {
  if (!gatherer_) gatherer_.emplace(n_);
  while (TakeNews()) {
    for (v1::GenerateResponse& message : outbox_) gatherer_->Add(std::move(message));
    outbox_.clear();
  }
  if (!builder_->done()) return;
  grpc::Status status = FinalStatus();
  if (status.ok()) {
    response_ = finisher_(gatherer_->Finish(), std::move(prompt_));
    const auto bytes = static_cast<int64_t>(response_.Length());
    if (bytes > state_.options.max_message_bytes) {
      response_.Clear();
      status = {
          grpc::StatusCode::RESOURCE_EXHAUSTED,
          StrCat("response: got ", bytes, " bytes, expected at most ",
                 state_.options.max_message_bytes, "; ask for fewer log-probabilities, or stream")};
    }
  }
  MarkFinished(status);
  FinishCall(status);
}

}  // namespace lookback::server
