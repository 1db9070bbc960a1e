#include "engine/residual.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lookback {
namespace {

int64_t FloatBytes(int64_t count) { return count * static_cast<int64_t>(sizeof(float)); }

/// Room for [max_rows][D] in a list of slots, in floats: an odd number of cache lines. The same
/// place of every slot is read together, and at distances of a power of two all of them would share
/// a few sets of a cache.
int64_t SlotFloats(const ModelConfig& config, int64_t max_rows) {
  constexpr int64_t kLine = 16, kSets = 64, kStep = 13;
  const int64_t lines = (max_rows * config.hidden_size + kLine - 1) / kLine;
  return (lines + (kStep - lines % kSets + kSets) % kSets) * kLine;
}

/// What all streams share: sizes, a normed read and the probe.
class StreamBase : public ResidualStream {
 public:
  int64_t bytes() const override { return memory_.bytes(); }
  void SetProbe(ResidualProbe* probe) override {
    probe_ = probe;
    shares_.resize(probe == nullptr ? 0 : static_cast<size_t>(max_shares_));
  }

 protected:
  /// `floats`: size of the memory, in values.
  StreamBase(const ModelConfig& config, Ops& ops, int64_t max_rows, int64_t floats)
      : config_(config),
        ops_(ops),
        width_(config.hidden_size),
        max_rows_(max_rows),
        slot_floats_(SlotFloats(config, max_rows)),
        memory_(FloatBytes(floats)),
        max_shares_(max_rows * config.routing_heads * (MaxRoutingSources(config) + 1)) {}

  /// `count` inputs [rows][D], one after another, through `norm`. y may be x.
  SublayerInput Normed(Site site, const float* x, int64_t count, const Norm& norm, float* y) {
    if (probe_ != nullptr && site.kind == Site::kFinal) probe_->OnFinalState(rows_, x);
    ops_.Normalize(x, count * rows_, width_, norm, config_.norm_eps, y);
    return {y, count};
  }

  const ModelConfig& config_;
  Ops& ops_;
  int64_t width_;
  int64_t max_rows_;
  int64_t slot_floats_;  // from one slot of a list to the next
  Buffer memory_;
  int64_t rows_ = 0;
  ResidualProbe* probe_ = nullptr;
  std::vector<float> shares_;  ///< for the probe

 private:
  int64_t max_shares_;
};

/// Plain sums: p starts as the embedding, p += sublayer(norm(p)).
class AdditiveStream : public StreamBase {
 public:
  AdditiveStream(const ModelConfig& config, Ops& ops, int64_t max_rows)
      : StreamBase(config, ops, max_rows, 3 * max_rows * config.hidden_size),
        state_(memory_.as<float>()),
        normed_(state_ + max_rows * width_),
        output_(normed_ + max_rows * width_) {}

  float* Begin(int64_t rows) override {
    rows_ = rows;
    return state_;
  }
  void BeginDone() override {}
  SublayerInput Read(Site site, const Norm& norm) override {
    return Normed(site, state_, 1, norm, normed_);
  }
  float* Output(Site /*site*/) override { return output_; }
  void Write(Site /*site*/) override { ops_.Add(output_, rows_, width_, state_); }

 private:
  float* state_;   // [rows][D]
  float* normed_;  // [rows][D]
  float* output_;  // [rows][D]
};

/// The reads of depth routing over a list of sources (mhar.md section 2): each source's RMS is
/// taken once, when it is made. Where a source never changes again, those that are there when a
/// site is read are mixed for the next kAhead sites at once, so that a step whose list has no room
/// in the caches does not read all of it from memory at every site. What a site adds up in which
/// order depends on its place in the network alone.
class RoutingStream : public StreamBase {
 protected:
  /// `slots`: sources that the list may hold; `inputs`: most inputs of one read.
  RoutingStream(const ModelConfig& config, const Weights& weights, Ops& ops, int64_t max_rows,
                int64_t slots, int64_t inputs)
      : StreamBase(config, ops, max_rows,
                   slots * SlotFloats(config, max_rows) +
                       max_rows * ((inputs + 2) * config.hidden_size + slots +
                                   Ahead(config) * (config.hidden_size + config.routing_heads))),
        weights_(weights),
        slots_(slots),
        ahead_(Ahead(config)),
        sources_(memory_.as<float>()),
        mixed_(sources_ + slots * slot_floats_),
        output_(mixed_ + inputs * max_rows * width_),
        gate_(output_ + max_rows * width_),
        inverse_rms_(gate_ + max_rows * width_),
        means_(inverse_rms_ + slots * max_rows),
        mean_logits_(means_ + ahead_ * max_rows * width_) {
    queries_.reserve(static_cast<size_t>(std::max(inputs, ahead_)));
  }

  /// Starts a step.
  void Reset(int64_t rows) {
    rows_ = rows;
    count_ = ahead_end_ = 0;
  }
  float* Slot(int64_t index) { return sources_ + index * slot_floats_; }
  float* Last() { return Slot(count_ - 1); }
  /// The source after the last one has been written.
  void AddSource() {
    LOOKBACK_CHECK(count_ < slots_);
    ++count_;
    RefreshLast();
  }
  /// The last source has changed.
  void RefreshLast() {
    ops_.InverseRms(Last(), rows_, width_, config_.norm_eps,
                    inverse_rms_ + (count_ - 1) * max_rows_);
  }

  /// Mixes all sources by each of the site's queries, of which there are `inputs`, into mixed_.
  void Mix(Site site, int64_t inputs, int64_t heads) {
    const int64_t index = IndexOf(site);
    const RoutingSite& routing = SiteAt(index);
    if (probe_ != nullptr) ShowShares(site, routing, inputs, heads);
    DepthSources sources = SourcesFrom(0);
    if (ahead_ != 0 && count_ != 0) {
      ReadAhead(index, heads);
      sources = SourcesFrom(ahead_sources_);
      sources.mean = Mean(index);
      sources.mean_logit = MeanLogit(index);
    }
    sources.null_source = routing.null_source;
    sources.null_inverse_rms = routing.null_inverse_rms;
    queries_.clear();
    for (int64_t input = 0; input < inputs; ++input) {
      queries_.push_back({QueryOf(routing, input), mixed_ + input * rows_ * width_, nullptr});
    }
    ops_.DepthMix(sources, queries_, heads, rows_, width_, nullptr);
  }

  /// read = (1 − a) · state + a · read with the site's gate.
  void ApplyGate(const RoutingSite& routing, const float* state, float* read) {
    if (routing.gate.is_there()) {
      ops_.MatMul(state, rows_, routing.gate, gate_);
      ops_.GateRead(state, gate_, 0.0F, rows_, width_, read);
    } else if (config_.gate != Gate::kNone) {
      ops_.GateRead(state, nullptr, routing.alpha, rows_, width_, read);
    }
  }

  const RoutingSite& SiteOf(Site site) const { return SiteAt(IndexOf(site)); }
  /// A block of layers begins with this sublayer.
  bool StartsBlock(Site site) const {
    return site.kind == Site::kAttention && config_.block_starts(site.layer);
  }

  const Weights& weights_;
  int64_t slots_;
  int64_t ahead_;       // sites that are read ahead
  float* sources_;      // [slots], each [max_rows][D]
  float* mixed_;        // [inputs][rows][D]
  float* output_;       // [rows][D], of a sublayer that does not write to a slot
  float* gate_;         // [rows][D], logits of a gate
  float* inverse_rms_;  // [slots][max_rows]
  int64_t count_ = 0;   // sources in the list

 private:
  static constexpr int64_t kAhead = kernels::kMaxDepthQueries;
  /// Sites that are read ahead; not where sites differ in their heads and inputs.
  static int64_t Ahead(const ModelConfig& config) {
    return config.has_blocks() || config.residual == ResidualMode::kFullHw ? 0 : kAhead;
  }

  /// Sites are numbered in the order in which they are read.
  int64_t IndexOf(Site site) const {
    if (site.kind == Site::kFinal) return 2 * config_.layers;
    return 2 * site.layer + (site.kind == Site::kMlp ? 1 : 0);
  }
  int64_t sites() const { return 2 * config_.layers + (config_.has_final_site() ? 1 : 0); }
  const RoutingSite& SiteAt(int64_t index) const {
    if (index == 2 * config_.layers) return weights_.final_site;
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(index / 2)];
    return index % 2 == 0 ? layer.attention_site.routing : layer.mlp_site.routing;
  }
  const float* QueryOf(const RoutingSite& routing, int64_t input) const {
    return routing.query.data() + input * width_;
  }

  DepthSources SourcesFrom(int64_t first) {
    return {.sources = Slot(first),
            .count = count_ - first,
            .stride = slot_floats_,
            .inverse_rms = inverse_rms_ + first * max_rows_,
            .inverse_rms_stride = max_rows_};
  }
  /// Of what was read ahead for a site: [rows][D] and [rows][heads].
  float* Mean(int64_t index) { return means_ + (index - ahead_begin_) * max_rows_ * width_; }
  float* MeanLogit(int64_t index) {
    return mean_logits_ + (index - ahead_begin_) * max_rows_ * config_.routing_heads;
  }
  /// Mixes the sources for the site `index` and those after it, unless that has been done.
  void ReadAhead(int64_t index, int64_t heads) {
    if (index < ahead_end_) return;
    ahead_begin_ = index;
    ahead_end_ = std::min(index + ahead_, sites());
    ahead_sources_ = count_;
    queries_.clear();
    for (int64_t i = index; i < ahead_end_; ++i) {
      queries_.push_back({QueryOf(SiteAt(i), 0), Mean(i), MeanLogit(i)});
    }
    ops_.DepthMix(SourcesFrom(0), queries_, heads, rows_, width_, nullptr);
  }

  /// Tells the probe of the softmax over all sources. A read gives no shares of the single sources
  /// in a mean; mixed_ is written anew by it.
  void ShowShares(Site site, const RoutingSite& routing, int64_t inputs, int64_t heads) {
    DepthSources sources = SourcesFrom(0);
    sources.null_source = routing.null_source;
    sources.null_inverse_rms = routing.null_inverse_rms;
    const int64_t count = count_ + (routing.null_source != nullptr ? 1 : 0);
    for (int64_t input = 0; input < inputs; ++input) {
      const DepthQuery query = {QueryOf(routing, input), mixed_, nullptr};
      ops_.DepthMix(sources, {&query, 1}, heads, rows_, width_, shares_.data());
      probe_->OnShares(site, input, rows_, heads, count, shares_.data());
    }
  }

  float* means_;        // [ahead][max_rows][D]
  float* mean_logits_;  // [ahead][max_rows][heads]
  std::vector<DepthQuery> queries_;
  int64_t ahead_begin_ = 0;  // sites that have been read ahead
  int64_t ahead_end_ = 0;
  int64_t ahead_sources_ = 0;  // what their means are of
};

/// Modes full* and block* (mhar.md section 3): a sublayer reads a mix of the list and of the
/// current state, which is the last slot here. In full* every output is a state of its own, in
/// block* the outputs of one block of layers are summed.
class FullStream : public RoutingStream {
 public:
  FullStream(const ModelConfig& config, const Weights& weights, Ops& ops, int64_t max_rows)
      : RoutingStream(config, weights, ops, max_rows, MaxRoutingSources(config), Inputs(config)) {}

  float* Begin(int64_t rows) override {
    Reset(rows);
    return Slot(0);
  }
  void BeginDone() override { AddSource(); }
  SublayerInput Read(Site site, const Norm& norm) override {
    if (site.kind == Site::kFinal) {
      if (!config_.has_final_site()) return Normed(site, Last(), 1, norm, mixed_);
      Mix(site, 1, config_.routing_heads);
      return Normed(site, mixed_, 1, norm, mixed_);
    }
    const bool head_wise =
        config_.residual == ResidualMode::kFullHw && site.kind == Site::kAttention;
    const int64_t inputs = head_wise ? Inputs(config_) : 1;
    Mix(site, inputs, head_wise ? 1 : config_.routing_heads);
    for (int64_t input = 0; input < inputs; ++input) {
      ApplyGate(SiteOf(site), Last(), mixed_ + input * rows_ * width_);
    }
    return Normed(site, mixed_, inputs, norm, mixed_);
  }
  float* Output(Site site) override { return IsNewState(site) ? Slot(count_) : output_; }
  void Write(Site site) override {
    if (IsNewState(site)) return AddSource();
    ops_.Add(output_, rows_, width_, Last());
    RefreshLast();
  }

 private:
  static int64_t Inputs(const ModelConfig& config) {
    return config.residual == ResidualMode::kFullHw ? config.kv_heads : 1;
  }
  bool IsNewState(Site site) const { return !config_.has_blocks() || StartsBlock(site); }
};

/// Modes delta* (mhar.md section 3): the state is the plain sum p; a sublayer reads p plus a mix of
/// the list, which holds every output after the embedding (delta), or at each block's start what
/// p is more than the last entry (delta_block, delta_mh).
class DeltaStream : public RoutingStream {
 public:
  // The state is the last slot, never a source.
  DeltaStream(const ModelConfig& config, const Weights& weights, Ops& ops, int64_t max_rows)
      : RoutingStream(config, weights, ops, max_rows, MaxRoutingSources(config) + 1, 1),
        state_(Slot(slots_ - 1)) {}

  float* Begin(int64_t rows) override {
    Reset(rows);
    return state_;
  }
  void BeginDone() override {}
  SublayerInput Read(Site site, const Norm& norm) override {
    const bool routed = site.kind != Site::kFinal && (count_ > 0 || config_.null_source);
    if (!routed) return Normed(site, state_, 1, norm, mixed_);
    Mix(site, 1, config_.routing_heads);
    ops_.Add(state_, rows_, width_, mixed_);
    ApplyGate(SiteOf(site), state_, mixed_);
    return Normed(site, mixed_, 1, norm, mixed_);
  }
  float* Output(Site /*site*/) override {
    // Behind the embedding, if that has still to become the first source.
    return config_.has_blocks() ? output_ : Slot(count_ == 0 ? 1 : count_);
  }
  void Write(Site site) override {
    if (!config_.has_blocks()) {
      if (count_ == 0) AddDifference();
      ops_.Add(Slot(count_), rows_, width_, state_);
      return AddSource();
    }
    if (StartsBlock(site)) AddDifference();
    ops_.Add(output_, rows_, width_, state_);
  }

 private:
  /// Appends the state less the last source. (Not less the state at the last block's start: that is
  /// what the release computes.)
  void AddDifference() {
    static constexpr float kCopy[] = {1.0F}, kDifference[] = {-1.0F, 1.0F};
    if (count_ == 0) {
      ops_.Combine(state_, slot_floats_, kCopy, rows_, width_, Slot(0));
    } else {
      // The last source and the state are that many slots apart.
      const int64_t distance = slots_ - count_;
      ops_.Combine(Last(), distance * slot_floats_, kDifference, rows_, width_, Slot(count_));
    }
    AddSource();
  }

  float* state_;  // [rows][D]
};

/// Hyper-connections (mhar.md section 3): n streams, mixed for each read, all updated at once.
class HyperStream : public StreamBase {
 public:
  HyperStream(const ModelConfig& config, const Weights& weights, Ops& ops, int64_t max_rows)
      : StreamBase(config, ops, max_rows,
                   2 * (config.hyper_streams + 1) * SlotFloats(config, max_rows) +
                       max_rows * config.hidden_size),
        weights_(weights),
        streams_(config.hyper_streams),
        now_(memory_.as<float>()),
        next_(now_ + (streams_ + 1) * slot_floats_),
        mixed_(next_ + (streams_ + 1) * slot_floats_),
        mean_(static_cast<size_t>(streams_), 1.0F / static_cast<float>(streams_)) {}

  float* Begin(int64_t rows) override {
    rows_ = rows;
    return now_;
  }
  void BeginDone() override {
    static constexpr float kCopy[] = {1.0F};
    for (int64_t j = 1; j < streams_; ++j) {
      ops_.Combine(now_, slot_floats_, kCopy, rows_, width_, Slot(now_, j));
    }
  }
  SublayerInput Read(Site site, const Norm& norm) override {
    const std::span<const float> shares =
        site.kind == Site::kFinal ? std::span<const float>(mean_) : SiteOf(site).read;
    ops_.Combine(now_, slot_floats_, shares, rows_, width_, mixed_);
    return Normed(site, mixed_, 1, norm, mixed_);
  }
  float* Output(Site /*site*/) override { return Slot(now_, streams_); }
  void Write(Site site) override {
    const std::span<const float> update = SiteOf(site).update;
    const auto terms = static_cast<size_t>(streams_ + 1);
    for (int64_t j = 0; j < streams_; ++j) {
      ops_.Combine(now_, slot_floats_, update.subspan(static_cast<size_t>(j) * terms, terms), rows_,
                   width_, Slot(next_, j));
    }
    std::swap(now_, next_);
  }

 private:
  float* Slot(float* base, int64_t index) { return base + index * slot_floats_; }
  const HyperSite& SiteOf(Site site) const {
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(site.layer)];
    return site.kind == Site::kAttention ? layer.attention_site.hyper : layer.mlp_site.hyper;
  }

  const Weights& weights_;
  int64_t streams_;
  float* now_;    // [n + 1] slots, each [max_rows][D], the sublayer's output last
  float* next_;   // the same
  float* mixed_;  // [rows][D]
  std::vector<float> mean_;
};

}  // namespace

int64_t MaxRoutingSources(const ModelConfig& config) {
  if (!config.routes()) return 1;
  if (!config.has_blocks()) return 2 * config.layers + 1;
  int64_t starts = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) starts += config.block_starts(layer);
  return starts + (config.is_delta() ? 0 : 1);
}

std::unique_ptr<ResidualStream> MakeResidualStream(const ModelConfig& config,
                                                   const Weights& weights, Ops& ops,
                                                   int64_t max_rows) {
  switch (config.residual) {
    case ResidualMode::kAdditive:
      return std::make_unique<AdditiveStream>(config, ops, max_rows);
    case ResidualMode::kFull:
    case ResidualMode::kFullMh:
    case ResidualMode::kFullHw:
    case ResidualMode::kBlock:
    case ResidualMode::kBlockMh:
      return std::make_unique<FullStream>(config, weights, ops, max_rows);
    case ResidualMode::kDelta:
    case ResidualMode::kDeltaBlock:
    case ResidualMode::kDeltaMh:
      return std::make_unique<DeltaStream>(config, weights, ops, max_rows);
    case ResidualMode::kHyperConnection:
      return std::make_unique<HyperStream>(config, weights, ops, max_rows);
  }
  LOOKBACK_CHECK(false);
}

}  // namespace lookback
