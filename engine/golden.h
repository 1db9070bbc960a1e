// The golden of a converted file: a few logits that the reference kernels computed, to tell on any
// machine that file and kernels are sound (format.md, "Golden").
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine.h"

namespace lookback {

inline constexpr int64_t kGoldenTokens = 64;
inline constexpr int64_t kGoldenPositions = 16;
inline constexpr int64_t kGoldenTop = 64;

/// The largest logits at some positions of a fixed prompt.
struct Golden {
  std::vector<int32_t> ids;        ///< [T], T <= 64
  std::vector<int32_t> positions;  ///< [P], P <= 16, ascending
  int64_t top = 0;                 ///< logits a position: 64, or the whole vocabulary
  std::vector<int32_t> top_ids;    ///< [P][top], largest logit first
  std::vector<float> top_logits;   ///< [P][top]
};

/// The golden of a model of this shape with everything but the logits, which are 0.
Golden EmptyGolden(const ModelConfig& config);

/// Fills in the logits, in exact arithmetic by the reference kernels.
Status ComputeGolden(const std::shared_ptr<const LoadedModel>& model, Golden& golden);

/// Reads and checks the tensors lookback.golden.*. NotFound where the file has none.
Result<Golden> ReadGolden(const Checkpoint& checkpoint);

/// How far logits are from those expected.
struct GoldenError {
  double worst = 0.0;  ///< largest |got − expected|; NaN counts as infinite
  double range = 0.0;  ///< of the expected logits: largest − smallest
  int64_t position = 0;
  int64_t id = 0;

  /// Takes one logit into account.
  void Add(int64_t position, int64_t id, double got, double expected);
  /// True if the worst error is at most `relative` times the range.
  bool Within(double relative) const { return worst <= relative * range; }

 private:
  double low_ = 0.0, high_ = 0.0;
  bool any_ = false;
};

/// Runs the golden's prompt with `options` and compares.
Result<GoldenError> CheckGolden(const std::shared_ptr<const LoadedModel>& model,
                                const Golden& golden, EngineOptions options);

}  // namespace lookback
