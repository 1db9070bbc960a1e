#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lookback {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int64_t kMaxVocab = int64_t{1} << 23;    // keeps sums of weights below 2^63
constexpr int64_t kFullWeight = int64_t{1} << 40;  // weight of the likeliest candidate

float FiniteOrMinusInfinity(float logit) { return std::isfinite(logit) ? logit : kMinusInfinity; }

// A rule may push a finite logit past the range of float; it stays finite, so that it still counts.
float ClampToFloat(double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMax, kMax));
}

// log(sum(exp(logits))), or −inf if no logit is finite.
double LogSumExp(std::span<const float> logits) {
  float max = kMinusInfinity;
  for (const float logit : logits) max = std::max(max, FiniteOrMinusInfinity(logit));
  if (max == kMinusInfinity) return kMinusInfinity;
  double sum = 0.0;
  for (const float logit : logits) {
    if (std::isfinite(logit)) sum += std::exp(static_cast<double>(logit) - max);
  }
  return max + std::log(sum);
}

float LogprobOf(float logit, double log_sum) {
  if (!std::isfinite(logit)) return kMinusInfinity;
  return static_cast<float>(static_cast<double>(logit) - log_sum);
}

// Insertion into a short sorted tail of `top`: n is small and a vocabulary rarely improves on it.
void AppendTop(std::span<const float> logits, double log_sum, int64_t n,
               std::vector<TokenLogprob>& top) {
  const size_t begin = top.size();
  const auto limit = static_cast<size_t>(std::min(n, static_cast<int64_t>(logits.size())));
  for (size_t id = 0; id < logits.size(); ++id) {
    const float logit = FiniteOrMinusInfinity(logits[id]);
    if (top.size() - begin == limit) {
      if (limit == 0 || !(logit > top.back().logprob)) continue;
      top.pop_back();
    }
    size_t at = top.size();
    top.push_back({});
    for (; at > begin && logit > top[at - 1].logprob; --at) top[at] = top[at - 1];
    top[at] = {static_cast<int32_t>(id), logit};
  }
  for (size_t i = begin; i < top.size(); ++i) top[i].logprob = LogprobOf(top[i].logprob, log_sum);
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

TokenLogprob TokenLogprobs(std::span<const float> logits, int32_t id, int64_t top_n,
                           std::vector<TokenLogprob>* top) {
  LOOKBACK_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size());
  const double log_sum = LogSumExp(logits);
  if (top_n > 0) AppendTop(logits, log_sum, top_n, *top);
  return {id, LogprobOf(logits[static_cast<size_t>(id)], log_sum)};
}

Sampler::Sampler(int64_t vocab_size) : vocab_size_(vocab_size) {
  LOOKBACK_CHECK(vocab_size >= 1 && vocab_size < kMaxVocab);
  const auto size = static_cast<size_t>(vocab_size);
  logits_.resize(size);
  counts_.resize(size);
  seen_.resize(size);
  candidates_.reserve(size);
  ranked_.reserve(size);
  selection_.reserve(size);
}

TokenLogprob Sampler::Sample(const SamplingParams& params, std::span<const float> logits,
                             std::span<const int32_t> prompt, std::span<const int32_t> output,
                             std::span<const int32_t> banned, int32_t choice, int64_t position,
                             int64_t top_n, std::vector<TokenLogprob>* top) {
  LOOKBACK_CHECK(static_cast<int64_t>(logits.size()) == vocab_size_);
  std::transform(logits.begin(), logits.end(), logits_.begin(), FiniteOrMinusInfinity);
  for (const auto& [id, bias] : params.logit_bias) {
    float& logit = logits_[static_cast<size_t>(id)];
    if (logit != kMinusInfinity) logit = ClampToFloat(static_cast<double>(logit) + bias);
  }
  ApplyPenalties(params, prompt, output);
  const int32_t id = Choose(params, banned, choice, position);
  if (top_n < 0) return {id, std::numeric_limits<float>::quiet_NaN()};
  return TokenLogprobs(logits, id, top_n, top);
}

// Repetition divides a positive logit and multiplies a negative one; then frequency and presence
// are subtracted (vLLM, model_executor/layers/utils.py: apply_penalties).
void Sampler::ApplyPenalties(const SamplingParams& params, std::span<const int32_t> prompt,
                             std::span<const int32_t> output) {
  if (params.repetition_penalty != 1.0) {
    const auto penalize = [&](int32_t id) {
      const auto at = static_cast<size_t>(id);
      if (seen_[at] != 0) return;
      seen_[at] = 1;
      float& logit = logits_[at];
      if (logit == kMinusInfinity) return;
      logit = ClampToFloat(logit > 0.0F ? logit / params.repetition_penalty
                                        : logit * params.repetition_penalty);
    };
    std::for_each(prompt.begin(), prompt.end(), penalize);
    std::for_each(output.begin(), output.end(), penalize);
    for (const int32_t id : prompt) seen_[static_cast<size_t>(id)] = 0;
    for (const int32_t id : output) seen_[static_cast<size_t>(id)] = 0;
  }
  if (params.presence_penalty == 0.0 && params.frequency_penalty == 0.0) return;
  for (const int32_t id : output) ++counts_[static_cast<size_t>(id)];
  for (const int32_t id : output) {
    int32_t& count = counts_[static_cast<size_t>(id)];
    if (count == 0) continue;  // seen to already
    float& logit = logits_[static_cast<size_t>(id)];
    if (logit != kMinusInfinity) {
      logit = ClampToFloat(logit - params.frequency_penalty * count - params.presence_penalty);
    }
    count = 0;
  }
}

int32_t Sampler::Choose(const SamplingParams& params, std::span<const int32_t> banned,
                        int32_t choice, int64_t position) {
  for (const int32_t id : banned) logits_[static_cast<size_t>(id)] = kMinusInfinity;
  const auto best = std::max_element(logits_.begin(), logits_.end());  // the first of equals
  if (*best == kMinusInfinity) {
    for (const int32_t id : banned) seen_[static_cast<size_t>(id)] = 1;
    const auto allowed = std::find(seen_.begin(), seen_.end(), uint8_t{0});
    const auto id = allowed == seen_.end() ? 0 : static_cast<int32_t>(allowed - seen_.begin());
    for (const int32_t other : banned) seen_[static_cast<size_t>(other)] = 0;
    return id;
  }
  if (params.temperature == 0.0) return static_cast<int32_t>(best - logits_.begin());

  candidates_.clear();
  for (size_t id = 0; id < logits_.size(); ++id) {
    if (logits_[id] == kMinusInfinity) continue;
    candidates_.push_back({logits_[id], static_cast<int32_t>(id), 0});
  }
  FilterTopK(params.top_k);
  Weigh(params.temperature);
  FilterTypicalP(params.typical_p, params.temperature);
  FilterTopP(params.top_p);
  FilterMinP(params.min_p);
  return Draw(params, choice, position);
}

int32_t Sampler::Draw(const SamplingParams& params, int32_t choice, int64_t position) const {
  const auto place = static_cast<uint64_t>(position);
  const auto random =
      Philox4x32({static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32),
                  static_cast<uint32_t>(choice), 0},
                 {static_cast<uint32_t>(params.seed), static_cast<uint32_t>(params.seed >> 32)});
  const uint64_t bits = (uint64_t{random[1]} << 32 | random[0]) >> 11;
  const double uniform = static_cast<double>(bits) * 0x1p-53;  // [0, 1)
  const int64_t total = TotalWeight();
  // The product may round up to the total itself.
  int64_t left = std::min(static_cast<int64_t>(uniform * static_cast<double>(total)), total - 1);
  for (const Candidate& candidate : candidates_) {
    if (left < candidate.weight) return candidate.id;
    left -= candidate.weight;
  }
  return candidates_.back().id;  // not reached: left < total
}

void Sampler::FilterTopK(int64_t top_k) {
  if (top_k <= 0 || top_k >= static_cast<int64_t>(candidates_.size())) return;
  ranked_.clear();
  for (const Candidate& candidate : candidates_) {
    ranked_.push_back({-static_cast<double>(candidate.logit), 1, candidate.id});
  }
  KeepPrefix(top_k);
}

void Sampler::Weigh(double temperature) {
  float max = kMinusInfinity;
  for (const Candidate& candidate : candidates_) max = std::max(max, candidate.logit);
  for (Candidate& candidate : candidates_) {
    // Subtracting first: the quotient of a tiny temperature may be −inf but never NaN.
    const double scaled = (static_cast<double>(candidate.logit) - max) / temperature;
    candidate.weight = std::llround(std::exp(scaled) * static_cast<double>(kFullWeight));
  }
}

// Keeps the ids whose information content is closest to the distribution's entropy until their mass
// reaches typical_p (Meister et al., "Locally typical sampling", 2022).
void Sampler::FilterTypicalP(double typical_p, double temperature) {
  if (typical_p >= 1.0) return;
  float max = kMinusInfinity;
  for (const Candidate& candidate : candidates_) max = std::max(max, candidate.logit);
  double sum = 0.0, weighted = 0.0;
  for (const Candidate& candidate : candidates_) {
    const double scaled = (static_cast<double>(candidate.logit) - max) / temperature;
    const double weight = std::exp(scaled);
    sum += weight;
    if (weight > 0.0) weighted += weight * scaled;
  }
  // Entropy = log(sum) − weighted / sum and −log p = log(sum) − scaled: log(sum) cancels.
  const double mean = weighted / sum;
  ranked_.clear();
  for (const Candidate& candidate : candidates_) {
    const double scaled = (static_cast<double>(candidate.logit) - max) / temperature;
    ranked_.push_back({std::abs(mean - scaled), candidate.weight, candidate.id});
  }
  KeepPrefix(static_cast<int64_t>(std::ceil(typical_p * static_cast<double>(TotalWeight()))));
}

// Keeps the likeliest ids until their mass reaches top_p.
void Sampler::FilterTopP(double top_p) {
  if (top_p >= 1.0) return;
  ranked_.clear();
  for (const Candidate& candidate : candidates_) {
    ranked_.push_back({-static_cast<double>(candidate.logit), candidate.weight, candidate.id});
  }
  KeepPrefix(static_cast<int64_t>(std::ceil(top_p * static_cast<double>(TotalWeight()))));
}

// Keeps the ids that are at least min_p times as likely as the likeliest.
void Sampler::FilterMinP(double min_p) {
  if (min_p <= 0.0) return;
  int64_t max = 0;
  for (const Candidate& candidate : candidates_) max = std::max(max, candidate.weight);
  const double least = min_p * static_cast<double>(max);
  std::erase_if(candidates_, [least](const Candidate& candidate) {
    return static_cast<double>(candidate.weight) < least;
  });
}

// Keeps the shortest prefix of the order (key, id) in ranked_ whose mass reaches `mass`. Bisection
// by nth_element, linear in the number of candidates: the vocabulary is never sorted.
void Sampler::KeepPrefix(int64_t mass) {
  const auto before = [](const Ranked& a, const Ranked& b) {
    return a.key != b.key ? a.key < b.key : a.id < b.id;
  };
  selection_.assign(ranked_.begin(), ranked_.end());
  int64_t left = std::max<int64_t>(mass, 1);
  auto begin = selection_.begin();
  auto end = selection_.end();
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, before);
    int64_t below = 0;
    for (auto it = begin; it != middle; ++it) below += it->mass;
    if (below >= left) {
      end = middle;
    } else {
      left -= below;
      begin = middle;
    }
  }
  const Ranked last = *begin;
  size_t kept = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (before(last, ranked_[i])) continue;
    candidates_[kept++] = candidates_[i];
  }
  candidates_.resize(kept);
}

int64_t Sampler::TotalWeight() const {
  int64_t total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  return total;
}

}  // namespace lookback
