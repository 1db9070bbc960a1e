// One layer's AAH controller (arXiv 2608.19203): the stages in order, and what is carried from one
// forward to the next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/controller/config.h"
#include "engine/controller/features.h"
#include "engine/controller/hierarchy.h"
#include "engine/controller/selection.h"

namespace lookback::controller {

/// What one level of an update saw and chose.
struct LevelTrace {
  Groups children;                 ///< of each node
  Groups heads;                    ///< under each node, ascending
  Rows inputs;                     ///< [nodes][width]
  Rows logits;                     ///< [nodes][choices]
  std::vector<int64_t> raw_index;  ///< of each node: argmax or oracle
  std::vector<int64_t> index;      ///< after the parent constraint, or an adapter's clamp
  double margin = 0.0;             ///< least gap between best and second logit
};

/// The outcome of one forward. Indices count the window choices.
struct Update {
  std::string_view path;  ///< which of the release's ways was taken
  bool cached = false;    ///< an adapter's forward between two updates: the last update again
  std::vector<LevelTrace> levels;            ///< level 0 first; empty where nothing was scored
  std::vector<LevelClustering> clusterings;  ///< level 0 first; the last one may have been dropped
  std::vector<int64_t> chosen;               ///< [heads], before the EMA over choices
  std::vector<float> mean;                   ///< [heads], that EMA; empty where it is off
  std::vector<int64_t> index;                ///< [heads], used by this forward's attention
};

/// Chooses the windows of one layer's query heads, forward after forward. In evaluation the release
/// runs its native controller in every forward: interval, warm-up and ramp are for training.
class LayerController {
 public:
  virtual ~LayerController() = default;

  /// Call once a forward, before its attention. `moments` [heads]: of this forward's queries and
  /// keys as attention takes them, and values. `tokens`: length of its sequences. The result is
  /// valid until the next call.
  virtual const Update& Choose(std::span<const HeadMoments> moments, int64_t tokens) = 0;
  /// Whether Observe() has to be called after each forward's attention.
  virtual bool wants_attention() const { return false; }
  virtual void Observe(std::span<const AttentionStats> /*stats*/) {}

  /// [heads][9]: the EMA of the features; empty where the regime keeps none.
  virtual std::span<const Features> ema_features() const { return {}; }
  /// Level 0 first; empty where there is none.
  virtual const Hierarchy& hierarchy() const {
    static const Hierarchy kNone;
    return kNone;
  }
  /// The choices in tokens.
  virtual std::span<const int64_t> windows() const = 0;
};

/// The native controller in every regime but full attention.
std::unique_ptr<LayerController> MakeNativeController(const NativeConfig& config, Networks networks,
                                                      int64_t heads);

/// A retrofit adapter's. An update happens every control_interval forwards, from the first on; in
/// between its choice stays. `round_to_bf16`: features are rounded before the network, as the
/// release does where it holds the base model in bf16.
std::unique_ptr<LayerController> MakeAdapterController(const AdapterConfig& config, Mlp network,
                                                       int64_t heads, int64_t layer,
                                                       bool round_to_bf16);

}  // namespace lookback::controller
