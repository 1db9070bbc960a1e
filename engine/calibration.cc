#include "engine/calibration.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/controller/attention_stats.h"
#include "engine/executor.h"
#include "engine/memory_limit.h"

namespace lookback {
namespace {

constexpr int64_t kMaxRows = int64_t{1} << 18;  // sequences · tokens of one forward
constexpr int64_t kLogitRows = 32;
constexpr int64_t kBlockTokens = 32;

using controller::AttentionStats;
using controller::HeadMoments;
using controller::LayerController;

}  // namespace

/// Sits at attention: lets each layer's controller choose before it, and tells it of the whole rows
/// of weights after it.
class ControllerProbe : public AttentionProbe {
 public:
  ControllerProbe(const ModelConfig& config, ThreadPool& threads, int64_t tokens)
      : config_(config),
        threads_(threads),
        tokens_(tokens),
        moments_(static_cast<size_t>(config.heads)),
        kv_moments_(static_cast<size_t>(config.kv_heads)),
        scratch_(static_cast<size_t>(threads.threads() * tokens)) {}

  void Add(std::unique_ptr<LayerController> controller) {
    layers_.push_back({std::move(controller), nullptr,
                       std::vector<AttentionStats>(static_cast<size_t>(config_.heads))});
  }

  void BeforeAttention(int64_t layer, const AttentionView& view,
                       std::span<kernels::HeadReach> reach) override {
    const int64_t dim = config_.head_dim;
    threads_.For(config_.kv_heads, 1, [&](int64_t begin, int64_t end, int64_t) {
      for (int64_t h = begin; h < end; ++h) {
        HeadMoments& moments = kv_moments_[static_cast<size_t>(h)];
        moments.k = controller::MomentsOf(view.k + h * dim, view.rows, config_.kv_heads * dim, dim);
        moments.v = controller::MomentsOf(view.v + h * dim, view.rows, config_.kv_heads * dim, dim);
      }
    });
    threads_.For(config_.heads, 1, [&](int64_t begin, int64_t end, int64_t) {
      for (int64_t h = begin; h < end; ++h) {
        HeadMoments& moments = moments_[static_cast<size_t>(h)];
        moments = kv_moments_[static_cast<size_t>(h / config_.group())];
        moments.q = controller::MomentsOf(view.q + h * dim, view.rows, config_.heads * dim, dim);
      }
    });
    Layer& state = layers_[static_cast<size_t>(layer)];
    state.update = &state.controller->Choose(moments_, tokens_);
    for (size_t head = 0; head < reach.size(); ++head) {
      const auto index = static_cast<size_t>(state.update->index[head]);
      reach[head] = {state.controller->windows()[index], 0};
    }
  }

  void AfterAttention(int64_t layer, const AttentionView& view,
                      std::span<const kernels::HeadReach> reach, const float* out) override {
    Layer& state = layers_[static_cast<size_t>(layer)];
    if (!state.controller->wants_attention()) return;
    const int64_t dim = config_.head_dim;
    rows_.resize(static_cast<size_t>(view.rows));
    for (int64_t h = 0; h < config_.heads; ++h) {
      // One row is one item, so that the order of the sum over rows is always the same.
      threads_.For(view.rows, 16, [&](int64_t begin, int64_t end, int64_t thread) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t first = row / tokens_ * tokens_;
          const controller::HeadView head = {
              .q = view.q + (first * config_.heads + h) * dim,
              .q_stride = config_.heads * dim,
              .k = view.k + (first * config_.kv_heads + h / config_.group()) * dim,
              .k_stride = config_.kv_heads * dim,
              .out = out + (first * config_.heads + h) * dim,
              .out_stride = config_.heads * dim,
              .tokens = tokens_,
              .head_dim = dim,
              .window = reach[static_cast<size_t>(h)].window,
              .scale = view.scale};
          rows_[static_cast<size_t>(row)] = controller::StatsOfRow(
              head, row - first,
              std::span(scratch_).subspan(static_cast<size_t>(thread * tokens_),
                                          static_cast<size_t>(tokens_)));
        }
      });
      state.stats[static_cast<size_t>(h)] = controller::MeanStats(rows_, tokens_);
    }
    state.controller->Observe(state.stats);
  }

  struct Layer {
    std::unique_ptr<LayerController> controller;
    const controller::Update* update;
    std::vector<AttentionStats> stats;
  };
  const Layer& layer(int64_t index) const { return layers_[static_cast<size_t>(index)]; }

 private:
  const ModelConfig& config_;
  ThreadPool& threads_;
  int64_t tokens_;
  std::vector<Layer> layers_;
  std::vector<HeadMoments> moments_;     ///< [heads]
  std::vector<HeadMoments> kv_moments_;  ///< [kv_heads], k and v alone
  std::vector<controller::RowStats> rows_;
  std::vector<float> scratch_;  ///< [threads][tokens]
};

namespace {

/// Adds the controllers of all layers.
Status AddControllers(const Checkpoint& checkpoint, const controller::Config& config,
                      bool bf16_features, ControllerProbe& probe) {
  const ModelConfig& model = checkpoint.config();
  const auto* native = std::get_if<controller::NativeConfig>(&config);
  const auto* adapter = std::get_if<controller::AdapterConfig>(&config);
  if ((native != nullptr) != model.gpt_style()) {
    return Mismatch(StrCat("controller of ", checkpoint.file().path()),
                    native != nullptr ? "a native one" : "an adapter's",
                    StrCat("that of a model of the family ", FamilyName(model.family)));
  }
  if (native != nullptr && native->full_attention()) {
    return Mismatch(StrCat("controller of ", checkpoint.file().path()),
                    "full attention: there is nothing to choose", "a controller");
  }
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    if (native != nullptr) {
      LOOKBACK_ASSIGN_OR_RETURN(controller::Networks networks,
                                controller::LoadNetworks(checkpoint.file(), *native, layer));
      probe.Add(controller::MakeNativeController(*native, std::move(networks), model.heads));
    } else {
      LOOKBACK_ASSIGN_OR_RETURN(controller::Mlp network,
                                controller::LoadAdapterNetwork(checkpoint.file(), *adapter, layer));
      probe.Add(controller::MakeAdapterController(*adapter, std::move(network), model.heads, layer,
                                                  bf16_features));
    }
  }
  return {};
}

/// What one forward takes beside the cache: every activation of every row, and the stream's three.
int64_t ActivationBytes(const ModelConfig& config, int64_t rows) {
  const int64_t query = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  const int64_t floats =
      4 * config.hidden_size + 2 * query + 2 * kv + 2 * config.ffn_size + config.head_dim;
  return rows * (floats * static_cast<int64_t>(sizeof(float)) + 16);
}

Status CheckSizes(const ModelConfig& config, const CalibrationOptions& options) {
  if (options.sequences < 1 || options.tokens < 1 ||
      options.sequences > kMaxRows / options.tokens) {
    return Mismatch("tokens of one calibration forward",
                    StrCat(options.sequences, " sequences of ", options.tokens),
                    StrCat("1 to ", kMaxRows, " tokens in all"));
  }
  if (config.gpt_style() && options.tokens > config.train_context) {
    return Mismatch("tokens of a calibration sequence", options.tokens,
                    StrCat("at most ", config.train_context,
                           ": this model has a learned table of so many positions"));
  }
  return {};
}

}  // namespace

class Calibrator::Impl {
 public:
  Impl(const Checkpoint& checkpoint, Weights weights, const kernels::KernelTable& kernels,
       const CalibrationOptions& options, Buffer pool)
      : config_(checkpoint.config()),
        options_(options),
        weights_(std::move(weights)),
        threads_(options.threads, options.cpus),
        ops_(kernels, threads_, MaxRoutingSources(config_), {}),
        workspace_(config_, options.sequences * options.tokens,
                   std::min(kLogitRows, options.sequences * options.tokens),
                   /*inputs=*/{}),
        model_(config_, weights_, ops_, workspace_),
        cache_(Layout(config_), std::move(pool), options.sequences),
        probe_(config_, threads_, options.tokens),
        lists_(static_cast<size_t>(options.sequences)) {
    model_.SetAttentionProbe(&probe_);
  }

  /// Everything is kept: the next layer's windows are not known yet, and change.
  static KvLayout Layout(const ModelConfig& config) {
    return KvLayout::For(config, kBlockTokens, kernels::Element::kF32, /*full_attention=*/true);
  }

  Status Forward(std::span<const int32_t> ids) {
    const int64_t rows = options_.sequences * options_.tokens;
    LOOKBACK_CHECK(std::ssize(ids) == rows);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= 0 && ids[i] < config_.vocab_size) continue;
      const auto at = static_cast<int64_t>(i);
      return Mismatch(StrCat("calibration id at sequence ", at / options_.tokens, ", position ",
                             at % options_.tokens),
                      ids[i], StrCat("0 to ", config_.vocab_size - 1));
    }
    const PinnedThread pinned = threads_.PinCaller();
    std::vector<int32_t> slots;
    for (int64_t s = 0; s < options_.sequences; ++s) {
      slots.push_back(cache_.Open(options_.tokens, options_.tokens, options_.tokens));
      LOOKBACK_CHECK(slots.back() >= 0);  // the pool was made for them
      cache_.Reserve(slots.back(), options_.tokens);
      lists_[static_cast<size_t>(s)] = cache_.lists(slots.back());
    }
    for (int64_t row = 0; row < rows; ++row) {
      workspace_.ids[row] = ids[static_cast<size_t>(row)];
      workspace_.row_sequence[row] = static_cast<int32_t>(row / options_.tokens);
      workspace_.position[row] = row % options_.tokens;
    }
    model_.Forward(
        {rows, workspace_.ids, {lists_.data(), 0, workspace_.row_sequence, workspace_.position}},
        cache_.pool());
    for (const int32_t slot : slots) {
      cache_.Commit(slot);
      cache_.Close(slot);
    }
    return {};
  }

  const ModelConfig& config() const { return config_; }
  ControllerProbe& probe() { return probe_; }
  std::span<const float> Logits(std::span<const int64_t> rows) { return model_.Logits(rows); }

 private:
  const ModelConfig& config_;
  const CalibrationOptions options_;
  const Weights weights_;
  ThreadPool threads_;
  Ops ops_;
  Workspace workspace_;
  Model model_;
  KvCache cache_;
  ControllerProbe probe_;
  std::vector<const kernels::BlockList*> lists_;  ///< [sequences]
};

Calibrator::Calibrator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Calibrator::~Calibrator() = default;

Result<std::unique_ptr<Calibrator>> Calibrator::Create(const Checkpoint& checkpoint,
                                                       const controller::Config& config,
                                                       const CalibrationOptions& options) {
  CalibrationOptions resolved = options;
  LOOKBACK_RETURN_IF_ERROR(ResolveThreads(resolved.threads, resolved.cpus));
  LOOKBACK_RETURN_IF_ERROR(CheckSizes(checkpoint.config(), resolved));
  LOOKBACK_ASSIGN_OR_RETURN(const kernels::KernelTable* kernels, ChooseKernels(""));
  LOOKBACK_ASSIGN_OR_RETURN(Weights weights, Weights::Load(checkpoint));
  const KvLayout layout = Impl::Layout(checkpoint.config());
  const int64_t blocks = WorstCaseBlocks(layout, resolved.tokens, resolved.tokens, resolved.tokens);
  const int64_t pool_bytes = resolved.sequences * blocks * layout.block_bytes();
  const int64_t needed =
      pool_bytes + ActivationBytes(checkpoint.config(), resolved.sequences * resolved.tokens);
  const int64_t available = AvailableMemoryBytes();
  if (needed > available) {
    return Status(StatusCode::kResourceExhausted,
                  StrCat("calibration: a forward of ", resolved.sequences, " sequences of ",
                         resolved.tokens, " tokens needs ", needed, " bytes, ", available,
                         " are free; give shorter or fewer sequences"));
  }
  LOOKBACK_ASSIGN_OR_RETURN(Buffer pool, Buffer::Allocate(pool_bytes));
  auto impl =
      std::make_unique<Impl>(checkpoint, std::move(weights), *kernels, resolved, std::move(pool));
  LOOKBACK_RETURN_IF_ERROR(
      AddControllers(checkpoint, config, resolved.bf16_features, impl->probe()));
  return std::unique_ptr<Calibrator>(new Calibrator(std::move(impl)));
}

Status Calibrator::Forward(std::span<const int32_t> ids) { return impl_->Forward(ids); }
int64_t Calibrator::layers() const { return impl_->config().layers; }

const controller::Update& Calibrator::update(int64_t layer) const {
  const controller::Update* update = impl_->probe().layer(layer).update;
  LOOKBACK_CHECK(update != nullptr);  // there was a Forward()
  return *update;
}

const controller::LayerController& Calibrator::controller(int64_t layer) const {
  return *impl_->probe().layer(layer).controller;
}

std::span<const controller::AttentionStats> Calibrator::attention_stats(int64_t layer) const {
  return impl_->probe().layer(layer).stats;
}

std::vector<std::vector<int64_t>> Calibrator::windows() const {
  std::vector<std::vector<int64_t>> table;
  for (int64_t layer = 0; layer < layers(); ++layer) {
    std::vector<int64_t>& row = table.emplace_back();
    for (const int64_t index : update(layer).index) {
      row.push_back(controller(layer).windows()[static_cast<size_t>(index)]);
    }
  }
  return table;
}

Result<WindowTable> Calibrator::Table(std::string source) const {
  const ModelConfig& config = impl_->config();
  Result<WindowTable> table =
      WindowTable::FromJson({{"windows", windows()}, {"train_context", config.train_context}},
                            config.layers, config.heads, "calibrated windows");
  if (table.ok()) table->set_source(std::move(source));
  return table;
}

std::span<const float> Calibrator::Logits(std::span<const int64_t> rows) {
  return impl_->Logits(rows);
}

}  // namespace lookback
