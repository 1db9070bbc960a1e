// The life of one generation as an RPC: submit, carry events, finish. See pump.h for the threads.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/response.h"
#include "server/serving_state.h"

namespace lookback::server {

/// What streaming and unary calls have in common.
///
/// Threads: a gRPC thread makes the call and reports OnCancel, OnWriteDone and OnDone; the engine
/// thread wakes the pump; the pump's thread alone takes events, writes and finishes. The call holds
/// itself until OnDone; the engine holds it weakly, so a late notification finds nothing.
class GenerationCall : public PumpTarget, public std::enable_shared_from_this<GenerationCall> {
 public:
  /// `state` and `context` outlive the call; `method` is for logs.
  GenerationCall(ServingState& state, grpc::CallbackServerContext& context, const char* method);

  /// Submits; from here on events arrive. Not OK: nothing was submitted, and the caller fails the
  /// call. `from_text`: how the prompt was given, for errors.
  Status Submit(Generation generation, bool from_text);
  /// Ends a call that was not submitted.
  void Fail(const Status& status);

 protected:
  void Run() final;
  /// One look at what there is to do; on the pump's thread, after Submit() and before the finish.
  virtual void Step() = 0;
  /// True while gRPC holds a write of ours: nothing may be started before it is done.
  virtual bool Busy() const { return false; }
  /// Starts the end of the RPC.
  virtual void FinishCall(const grpc::Status& status) = 0;

  void HandleCancel();
  void HandleDone();
  void Wake() { state_.pump.Wake(shared_from_this()); }
  /// Takes the next events and turns them into `outbox_`. False if there were none.
  bool TakeNews();
  grpc::Status FinalStatus() const;
  /// Marks the end, gives the request id back and logs. Call just before the finish.
  void MarkFinished(const grpc::Status& status);

  ServingState& state_;
  grpc::CallbackServerContext& context_;
  std::vector<int32_t> prompt_;
  int64_t n_ = 1;
  // The pump's thread alone, from Submit() on.
  std::shared_ptr<RequestStream> stream_;
  std::optional<ResponseBuilder> builder_;
  std::deque<v1::GenerateResponse> outbox_;

 private:
  grpc::Status CancelledStatus() const;

  const char* method_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::string request_id_;
  StreamBatch batch_;
  bool finished_ = false;  // the pump's
  // Between OnCancel and the end: a cancel that comes too late must not abort the next request that
  // uses the same id.
  std::mutex id_mutex_;
  bool owns_id_ = false;
  std::atomic<bool> submitted_{false};
  std::atomic<bool> cancelled_{false};
  std::shared_ptr<GenerationCall> self_;

  friend std::shared_ptr<GenerationCall> HoldUntilDone(std::shared_ptr<GenerationCall> call);
};

/// Makes `call` own itself until gRPC's OnDone; returns it.
std::shared_ptr<GenerationCall> HoldUntilDone(std::shared_ptr<GenerationCall> call);

/// GenerateStream: one message in flight; what the reader is too slow for gathers in the engine's
/// RequestStream and goes out in fewer, larger messages.
class StreamCall final : public GenerationCall, public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  using GenerationCall::GenerationCall;

  void OnWriteDone(bool ok) override;
  void OnCancel() override { HandleCancel(); }
  void OnDone() override { HandleDone(); }

 private:
  void Step() override;
  bool Busy() const override { return writing_.load(); }
  void FinishCall(const grpc::Status& status) override { Finish(status); }

  grpc::ByteBuffer buffer_;  // must live until OnWriteDone
  std::atomic<bool> writing_{false};
};

/// Generate and Score: gathers everything, answers once.
class GatherCall final : public GenerationCall, public grpc::ServerUnaryReactor {
 public:
  /// Serializes the answer made from the whole generation. Pump's thread.
  using Finisher =
      std::function<grpc::ByteBuffer(v1::GenerateResponse, std::vector<int32_t> prompt)>;

  GatherCall(ServingState& state, grpc::CallbackServerContext& context, const char* method,
             grpc::ByteBuffer& response, Finisher finisher)
      : GenerationCall(state, context, method),
        response_(response),
        finisher_(std::move(finisher)) {}

  void OnCancel() override { HandleCancel(); }
  void OnDone() override { HandleDone(); }

 private:
  void Step() override;
  void FinishCall(const grpc::Status& status) override { Finish(status); }

  grpc::ByteBuffer& response_;  // gRPC's, valid until the finish
  Finisher finisher_;
  std::optional<ResponseGatherer> gatherer_;
};

}  // namespace lookback::server
