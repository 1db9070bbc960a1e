#include "engine/residual.h"

namespace lookback {
namespace {

int64_t FloatBytes(int64_t count) { return count * static_cast<int64_t>(sizeof(float)); }

/// Plain sums: p starts as the embedding, p += sublayer(norm(p)).
class AdditiveStream : public ResidualStream {
 public:
  AdditiveStream(const ModelConfig& config, Ops& ops, int64_t max_rows)
      : ops_(ops),
        width_(config.hidden_size),
        eps_(config.norm_eps),
        memory_(FloatBytes(3 * max_rows * width_)),
        state_(memory_.as<float>()),
        normed_(state_ + max_rows * width_),
        output_(normed_ + max_rows * width_) {}

  float* Begin(int64_t rows) override {
    rows_ = rows;
    return state_;
  }
  void BeginDone() override {}
  SublayerInput Read(Site /*site*/, const float* norm_weight) override {
    ops_.RmsNorm(state_, rows_, width_, norm_weight, eps_, normed_);
    return {normed_, 1};
  }
  float* Output(Site /*site*/) override { return output_; }
  void Write(Site /*site*/) override { ops_.Add(output_, rows_, width_, state_); }
  int64_t bytes() const override { return memory_.bytes(); }

 private:
  Ops& ops_;
  int64_t width_;
  float eps_;
  Buffer memory_;
  float* state_;   // [rows][D]
  float* normed_;  // [rows][D]
  float* output_;  // [rows][D]
  int64_t rows_ = 0;
};

/// Depth routing over the embedding and every raw sublayer output (mode full_mh; mhar.md section
/// 3): h = site(sources), then the sublayer's output joins the sources. A sublayer writes straight
/// into the history, and each source's RMS is taken once, when it is made.
class FullRoutingStream : public ResidualStream {
 public:
  FullRoutingStream(const ModelConfig& config, const Weights& weights, Ops& ops, int64_t max_rows)
      : weights_(weights),
        ops_(ops),
        width_(config.hidden_size),
        heads_(config.routing_heads),
        eps_(config.norm_eps),
        max_rows_(max_rows),
        max_sources_(MaxRoutingSources(config)),
        memory_(FloatBytes((max_sources_ + 1) * max_rows * width_ + max_sources_ * max_rows)),
        history_(memory_.as<float>()),
        mixed_(history_ + max_sources_ * max_rows * width_),
        inverse_rms_(mixed_ + max_rows * width_) {}

  float* Begin(int64_t rows) override {
    rows_ = rows;
    sources_ = 0;
    return Source(0);
  }
  void BeginDone() override { AddSource(); }
  SublayerInput Read(Site site, const float* norm_weight) override {
    ops_.DepthMix(history_, sources_, max_rows_, inverse_rms_, RoutingSiteOf(site), heads_, rows_,
                  width_, mixed_);
    ops_.RmsNorm(mixed_, rows_, width_, norm_weight, eps_, mixed_);
    return {mixed_, 1};
  }
  float* Output(Site /*site*/) override { return Source(sources_); }
  void Write(Site /*site*/) override { AddSource(); }
  int64_t bytes() const override { return memory_.bytes(); }

 private:
  float* Source(int64_t index) { return history_ + index * max_rows_ * width_; }
  void AddSource() {
    LOOKBACK_CHECK(sources_ < max_sources_);
    ops_.InverseRms(Source(sources_), rows_, width_, eps_, inverse_rms_ + sources_ * max_rows_);
    ++sources_;
  }
  const RoutingSite& RoutingSiteOf(Site site) const {
    if (site.kind == Site::kFinal) return weights_.final_site;
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(site.layer)];
    return site.kind == Site::kAttention ? layer.attention_site : layer.mlp_site;
  }

  const Weights& weights_;
  Ops& ops_;
  int64_t width_;
  int64_t heads_;
  float eps_;
  int64_t max_rows_;
  int64_t max_sources_;
  Buffer memory_;
  float* history_;      // [2L+1][max_rows][D]
  float* mixed_;        // [rows][D]
  float* inverse_rms_;  // [2L+1][max_rows]
  int64_t rows_ = 0;
  int64_t sources_ = 0;
};

}  // namespace

int64_t MaxRoutingSources(const ModelConfig& config) {
  return config.residual == ResidualMode::kFullMh ? 2 * config.layers + 1 : 1;
}

std::unique_ptr<ResidualStream> MakeResidualStream(const ModelConfig& config,
                                                   const Weights& weights, Ops& ops,
                                                   int64_t max_rows) {
  switch (config.residual) {
    case ResidualMode::kAdditive:
      return std::make_unique<AdditiveStream>(config, ops, max_rows);
    case ResidualMode::kFullMh:
      return std::make_unique<FullRoutingStream>(config, weights, ops, max_rows);
  }
  LOOKBACK_CHECK(false);
}

}  // namespace lookback
