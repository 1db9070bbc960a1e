// Turns the engine's events of one request into response messages.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "lookback/v1/inference.pb.h"
#include "server/convert.h"

namespace lookback::server {

/// What the messages of one request say besides its events.
struct ResponseContext {
  std::string request_id;
  uint64_t seed = 0;
  std::vector<int32_t> prompt;
  std::string echo_text;
  bool echo = false;
  int64_t n = 1;
  int64_t top_logprobs = -1;     ///< as GenerateParams
  int64_t prompt_logprobs = -1;  ///< as GenerateParams
};

/// Totals of a request, for its log line.
struct ResponseTotals {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::string finish;  ///< of the last choice that ended: "stop", "length", "cancelled", "deadline"
  double queue_ms = 0.0;
  double prefill_ms = 0.0;
  double decode_ms = 0.0;
};

/// State of one answer: which first messages were sent, how it ended. Used by one thread at a time.
class ResponseBuilder {
 public:
  /// `identity` must outlive the builder.
  ResponseBuilder(ResponseContext context, const ModelIdentity& identity);

  /// Appends the messages of `batch` to `out`: for every choice with news at least one, cut so that
  /// none passes about a quarter of a mebibyte.
  void Append(const StreamBatch& batch, std::deque<v1::GenerateResponse>& out);

  /// True once the batch with `done` has been seen.
  bool done() const { return done_; }
  /// How the call ends; meaningful once done().
  grpc::Status final_status() const;
  const ResponseTotals& totals() const { return totals_; }

 private:
  v1::GenerateResponse& Current(int64_t choice, std::deque<v1::GenerateResponse>& out);
  v1::GenerateResponse& Open(int64_t choice, std::deque<v1::GenerateResponse>& out);
  void AppendPrompt(const StreamBatch& batch, std::deque<v1::GenerateResponse>& out);
  void AppendToken(const StreamBatch& batch, const TokenEvent& event,
                   std::deque<v1::GenerateResponse>& out);
  void AppendFinish(const StreamBatch& batch, const FinishEvent& event,
                    std::deque<v1::GenerateResponse>& out);
  void AppendSummary(const StreamBatch& batch, v1::GenerateResponse& message);
  void SetIdentity(v1::GenerateResponse& message) const;

  ResponseContext context_;
  const ModelIdentity& identity_;
  bool first_ = true;             // nothing has been sent yet
  std::vector<bool> echoed_;      // [n]: the choice's prompt has been sent
  std::vector<int64_t> current_;  // [n]: index into `out` of the choice's open message, −1 = none
  std::vector<int64_t> weight_;   // [n]: entries in that message
  bool done_ = false;
  bool deadline_ = false;
  bool cancelled_ = false;
  Status error_;
  ResponseTotals totals_;
};

/// Joins the messages of a stream into one answer per choice, as a unary call returns it.
class ResponseGatherer {
 public:
  explicit ResponseGatherer(int64_t n) : choices_(static_cast<size_t>(n)) {}
  void Add(v1::GenerateResponse message);
  /// The whole answer; call once.
  v1::GenerateResponse Finish();

 private:
  std::vector<v1::GenerateResponse> choices_;
};

/// The answer of Score from that of the generation behind it.
v1::ScoreResponse ToScoreResponse(v1::GenerateResponse response, std::vector<int32_t> prompt);

}  // namespace lookback::server
