// From logits to the next token (format.md, "Sampling").
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace lookback {

/// Philox4x32-10: four random words for a counter and a key. A pure function: a draw depends on who
/// draws it and never on what was drawn before. Source: Salmon et al., "Parallel random numbers: as
/// easy as 1, 2, 3" (2011).
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Log-probability (natural log) of `id` under softmax(`logits`), with the `top_n` likeliest ids
/// appended to `top`, likeliest first, the lower id first on a tie.
/// logits: [V], raw. 0 <= id < V. `top` may be null if top_n <= 0; min(top_n, V) entries are
/// appended, without allocation if it has room. A logit that is not finite counts as −inf; if none
/// is finite every log-probability is −inf.
TokenLogprob TokenLogprobs(std::span<const float> logits, int32_t id, int64_t top_n,
                           std::vector<TokenLogprob>* top);

/// Applies the sampling rules in the order bias, penalties, temperature, top-k, typical-p, top-p,
/// min-p and draws. Each of the four filters works on the renormalised survivors of the one before.
/// Holds scratch for one vocabulary; not thread-safe; Sample() allocates nothing.
class Sampler {
 public:
  /// 1 <= vocab_size < 2^23.
  explicit Sampler(int64_t vocab_size);

  /// Chooses the next id of one choice. The result depends on the arguments alone.
  ///
  /// logits: [V], raw, left as they are. prompt, output: the ids before this one (repetition
  /// penalty covers both, presence and frequency the output alone). banned: ids that may not come
  /// (stop ids before min_new_tokens). Every id is in 0..V−1. choice, position: with params.seed
  /// they key the random number. top_n: −1 for no log-probabilities (logprob is NaN), else the
  /// likeliest `top_n` ids are appended to `top` as by TokenLogprobs().
  ///
  /// A logit that is not finite (NaN, ±inf) is never drawn. If no finite one is left, the lowest id
  /// that is not banned is returned (0 if all are).
  TokenLogprob Sample(const SamplingParams& params, std::span<const float> logits,
                      std::span<const int32_t> prompt, std::span<const int32_t> output,
                      std::span<const int32_t> banned, int32_t choice, int64_t position,
                      int64_t top_n, std::vector<TokenLogprob>* top);

 private:
  /// A candidate for the draw. Weights are fixed-point (2^40 for the likeliest), so that sums are
  /// exact and depend on no order of summation.
  struct Candidate {
    float logit;
    int32_t id;
    int64_t weight;
  };
  /// A candidate's place in the order of one filter: by key ascending, then by id.
  struct Ranked {
    double key;
    int64_t mass;
    int32_t id;
  };

  void ApplyPenalties(const SamplingParams& params, std::span<const int32_t> prompt,
                      std::span<const int32_t> output);
  int32_t Choose(const SamplingParams& params, std::span<const int32_t> banned, int32_t choice,
                 int64_t position);
  int32_t Draw(const SamplingParams& params, int32_t choice, int64_t position) const;
  void FilterTopK(int64_t top_k);
  void Weigh(double temperature);
  void FilterTypicalP(double typical_p, double temperature);
  void FilterTopP(double top_p);
  void FilterMinP(double min_p);
  void KeepPrefix(int64_t mass);
  int64_t TotalWeight() const;

  int64_t vocab_size_;
  std::vector<float> logits_;          // [V], after bias and penalties
  std::vector<int32_t> counts_;        // [V], zero between calls
  std::vector<uint8_t> seen_;          // [V], zero between calls
  std::vector<Candidate> candidates_;  // ids ascending
  std::vector<Ranked> ranked_;         // ranked_[i] belongs to candidates_[i] until KeepPrefix()
  std::vector<Ranked> selection_;      // the same, in the order that selection leaves
};

}  // namespace lookback
