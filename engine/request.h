// What a client may ask for, checked once, and what the engine hands back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint.h"
#include "engine/status.h"

namespace lookback {

/// Bounds on requests; every one is a flag of the server.
struct Limits {
  int64_t max_requests = 128;          ///< choices decoded at the same time
  int64_t max_queue = 256;             ///< requests that wait for admission
  int64_t max_choices = 8;             ///< n
  int64_t max_stops = 16;              ///< stop strings a request
  int64_t max_stop_bytes = 256;        ///< a stop string
  int64_t max_stop_token_ids = 64;     ///< stop ids a request
  int64_t max_top_logprobs = 20;       ///< alternatives a token
  int64_t max_logit_bias = 1024;       ///< biased ids a request
  int64_t max_prompt_bytes = 2 << 20;  ///< text of a prompt
  int64_t max_request_id_bytes = 256;
};

/// A generation as asked for: an unset field takes the model's default, then the server's.
struct GenerateRequest {
  std::string request_id;           ///< "" = the engine draws one
  std::vector<int32_t> prompt_ids;  ///< BOS included where the model wants one
  std::optional<double> temperature;
  std::optional<int64_t> top_k;  ///< 0 = off
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> typical_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::vector<std::pair<int32_t, double>> logit_bias;  ///< added to the raw logit of the id
  std::optional<uint64_t> seed;                        ///< unset = drawn, and returned
  std::optional<int64_t> n;
  std::optional<int64_t> max_new_tokens;
  std::optional<int64_t> min_new_tokens;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;            ///< keep the matched stop in the text
  bool logprobs = false;                ///< log-probability of every chosen token
  std::optional<int64_t> top_logprobs;  ///< and of the n likeliest (implies logprobs)
  std::optional<int64_t>
      prompt_logprobs;  ///< log-probabilities of the prompt's tokens, n alternatives each
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

/// Resolved sampling settings; every value is in range (format.md, "Sampling").
struct SamplingParams {
  double temperature = 1.0;  ///< 0 = greedy, lowest id on a tie
  int64_t top_k = 0;         ///< 0 = off
  double top_p = 1.0;
  double min_p = 0.0;
  double typical_p = 1.0;
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::vector<std::pair<int32_t, float>> logit_bias;
  uint64_t seed = 0;
};

/// A checked generation: what the scheduler and the sampler work from.
struct GenerateParams {
  std::string request_id;
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int64_t n = 1;
  int64_t max_new_tokens = 0;  ///< 0 only for scoring
  int64_t min_new_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_ids;  ///< EOS and the model's other stop ids included unless ignored
  bool include_stop = false;
  int64_t top_logprobs = -1;     ///< −1 = no log-probabilities, 0 = the chosen token's only
  int64_t prompt_logprobs = -1;  ///< likewise for the prompt
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

/// Checks `request` against the model and the limits and fills in the defaults. Every error names
/// the field, what it got and what was expected. `max_context`: tokens a sequence may have.
Result<GenerateParams> ResolveRequest(GenerateRequest request, const ModelConfig& config,
                                      const TokenizerInfo& tokenizer,
                                      const GenerationDefaults& defaults, const Limits& limits,
                                      int64_t max_context);

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0.0F;  ///< natural log, of the raw logits before any sampling rule
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kDeadline, kError };

/// One new token of one choice. Ranges index the StreamBatch that holds the event.
struct TokenEvent {
  int32_t choice = 0;
  int32_t id = 0;
  float logprob = 0.0F;  ///< NaN where none was asked for
  uint32_t text_begin = 0;
  uint32_t text_bytes = 0;  ///< may be 0: text is held back until nothing later can change it
  uint32_t top_begin = 0;
  uint32_t top_count = 0;
};

/// The end of one choice, with the text that had been held back.
struct FinishEvent {
  int32_t choice = 0;
  FinishReason reason = FinishReason::kStop;
  std::string matched_stop;        ///< the stop string, if one ended it
  std::optional<int32_t> stop_id;  ///< the stop id, if one ended it
  uint32_t text_begin = 0;
  uint32_t text_bytes = 0;
  int64_t completion_tokens = 0;
};

/// All that has happened to a request since the last look.
struct StreamBatch {
  std::vector<TokenEvent> tokens;  ///< in order for each choice
  std::vector<FinishEvent> finishes;
  std::string text;
  std::vector<TokenLogprob> top;
  /// Token i + 1 of the prompt given tokens 0..i; all of them at once, before the first token.
  std::vector<TokenLogprob> prompt_logprobs;
  std::vector<TokenLogprob> prompt_top;  ///< prompt_logprobs.size() × the n asked for
  bool done = false;                     ///< nothing more will come
  Status error;                          ///< why, where a finish reason is kError
  double queue_ms = 0.0;                 ///< submission to first prefill chunk; final when done
  double prefill_ms = 0.0;               ///< to the first token
  double decode_ms = 0.0;                ///< to the end
  int64_t kv_bytes_peak = 0;             ///< most KV bytes the request held at once

  /// Back to the state of a fresh one; the storage is kept.
  void Clear();
};

/// The way of one request's events from the engine thread to one consumer. The engine never waits
/// for the consumer: events gather here, bounded by the request's own max_new_tokens.
class RequestStream {
 public:
  /// `notify` runs on the engine thread after every step that added something; it must not block.
  RequestStream(std::string request_id, uint64_t seed, std::function<void()> notify);

  const std::string& request_id() const { return request_id_; }
  uint64_t seed() const { return seed_; }

  /// Moves everything gathered so far into `batch` (cleared first; its storage is reused). False if
  /// there was nothing; batch.done then still says whether more can come.
  bool Take(StreamBatch& batch);
  /// Blocks until there is something to take or the stream is done, then as Take(). Returns at once
  /// after the end.
  bool WaitAndTake(StreamBatch& batch);

 private:
  friend class StreamWriter;  // the engine's side (engine/stream_writer.h)
  bool TakeLocked(StreamBatch& batch);

  std::string request_id_;
  uint64_t seed_;
  std::function<void()> notify_;
  std::mutex mutex_;
  std::condition_variable changed_;
  StreamBatch pending_;
  bool has_news_ = false;
  bool done_ = false;  // the last batch has been published
};

}  // namespace lookback
