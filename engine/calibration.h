// Runs an AAH model's controller over text to find its windows (arXiv 2608.19203): whole sequences
// through THE forward pass, with a probe at attention. Never part of serving.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/checkpoint.h"
#include "engine/controller/controller.h"
#include "engine/status.h"
#include "engine/windows.h"

namespace lookback {

struct CalibrationOptions {
  int64_t sequences = 1;  ///< B of a forward
  int64_t tokens = 0;     ///< T of a forward
  int64_t threads = 0;    ///< these two: see EngineOptions
  std::vector<int> cpus;
  /// An adapter's features are rounded to bf16 before its network, as where the release holds the
  /// base model in bf16. (Everything else is f32 here whatever the file holds.)
  bool bf16_features = false;
};

/// One model object of the release in evaluation: its controllers carry their state from forward to
/// forward. Memory depends on sequences · tokens alone, not on the number of forwards.
class Calibrator {
 public:
  /// `checkpoint` must outlive the result. Errors: no room for so many tokens, more tokens than a
  /// learned table of positions has, a controller of another family, and those of LoadNetworks().
  /// A full-attention config has no controller: InvalidArgument.
  static Result<std::unique_ptr<Calibrator>> Create(const Checkpoint& checkpoint,
                                                    const controller::Config& config,
                                                    const CalibrationOptions& options);
  ~Calibrator();

  /// One forward over `ids` [sequences][tokens]: every layer updates its windows from its queries,
  /// keys and values and what its last attention left, and attends with them. Ids out of the
  /// vocabulary are refused by place.
  Status Forward(std::span<const int32_t> ids);

  int64_t layers() const;
  /// What the last Forward() chose in `layer`, and the state that it left.
  const controller::Update& update(int64_t layer) const;
  const controller::LayerController& controller(int64_t layer) const;
  /// [heads]: what attention left of each head in the last Forward(), zeros where nothing asks.
  std::span<const controller::AttentionStats> attention_stats(int64_t layer) const;
  /// Windows of the last Forward(), tokens, [layers][heads].
  std::vector<std::vector<int64_t>> windows() const;
  /// The same as a table. `source`: where it says that it came from.
  Result<WindowTable> Table(std::string source) const;
  /// Logits [rows.size()][vocab_size] of the last Forward(), at most 32 rows at once; row =
  /// sequence · tokens + position. Valid until the next call.
  std::span<const float> Logits(std::span<const int64_t> rows);

 private:
  class Impl;
  explicit Calibrator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lookback
