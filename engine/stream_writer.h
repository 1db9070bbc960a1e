// The engine's end of a RequestStream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/request.h"

namespace lookback {

/// Gathers what one step adds to a request and hands it over as a whole. Used by the engine thread
/// alone: a step stages events, then calls Publish() once. Nothing staged is visible before that.
/// Allocates nothing while the consumer keeps up and a step adds no more than the reserves below.
class StreamWriter {
 public:
  /// Reserves of every buffer on the way, enough for some steps of 8 choices.
  static constexpr size_t kReservedTokens = 64;
  static constexpr size_t kReservedTextBytes = 4096;
  static constexpr size_t kReservedTop = 64 * 20;

  explicit StreamWriter(std::shared_ptr<RequestStream> stream);

  /// A new token, the text that it made certain and its alternatives (empty where none were asked
  /// for). token.logprob: NaN where none was asked for.
  void AddToken(int32_t choice, TokenLogprob token, std::string_view text,
                std::span<const TokenLogprob> top);
  /// The end of a choice, with the text that had been held back. `matched_stop`: the stop string,
  /// "" if none; `stop_id`: the stop id, if one ended it.
  void AddFinish(int32_t choice, FinishReason reason, std::string_view matched_stop,
                 std::optional<int32_t> stop_id, std::string_view text, int64_t completion_tokens);
  /// The log-probability of the next prompt token and its alternatives. Gathers across prefill
  /// steps: Publish() holds these back until a token, a finish or the end is staged.
  void AddPromptLogprob(TokenLogprob token, std::span<const TokenLogprob> top);
  /// The figures as they stand now; they go with the next Publish().
  void SetTimings(double queue_ms, double prefill_ms, double decode_ms);
  void SetKvBytesPeak(int64_t bytes);
  /// Nothing comes after the next Publish(). `error`: why, where a choice finished with kError.
  void SetDone(Status error = {});

  /// Makes everything staged visible, wakes the consumer and calls its notify outside the lock.
  /// Does nothing if no token, finish or end is staged.
  void Publish();

  /// True once SetDone() has been called.
  bool ending() const { return done_ || staged_.done; }
  /// True once that has been published.
  bool done() const { return done_; }
  const std::shared_ptr<RequestStream>& stream() const { return stream_; }

 private:
  uint32_t StageText(std::string_view text);

  std::shared_ptr<RequestStream> stream_;
  StreamBatch staged_;
  bool has_news_ = false;
  bool done_ = false;
};

}  // namespace lookback
