#include "engine/prompt_pace.h"

#include <algorithm>
#include <limits>

namespace lookback {
namespace {

// Prompts go on, if slowly, however long a step of so few rows takes.
constexpr int64_t kLeastRows = 4;
// What decoding alone takes changes as sequences come, grow and go.
constexpr int64_t kStepsBetween = 16;
// Of a new time in what is believed: clocks and neighbours are noisy.
constexpr double kShare = 0.5;

void Learn(double& value, double seen) {
  value = value == 0.0 ? seen : value + kShare * (seen - value);
}

}  // namespace

int64_t PromptPace::rows() const {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (slowdown_ == 0.0) return kMost;
  if (decode_seconds_ == 0.0 || steps_since_ >= kStepsBetween) return 0;
  if (row_seconds_ == 0.0) return kLeastRows;
  const double rows = (slowdown_ - 1.0) * decode_seconds_ / row_seconds_;
  return std::max(kLeastRows, static_cast<int64_t>(std::min(rows, static_cast<double>(kMost))));
}

void PromptPace::Record(int64_t prompt_rows, double seconds) {
  if (prompt_rows == 0) {
    steps_since_ = 0;
    Learn(decode_seconds_, seconds);
    return;
  }
  ++steps_since_;
  // The weights are read once a step however many rows there are, so the first rows of a step cost
  // nearly nothing and none costs less than that.
  constexpr double kLeastSeconds = 1e-9;
  const double added = (seconds - decode_seconds_) / static_cast<double>(prompt_rows);
  Learn(row_seconds_, std::max(added, kLeastSeconds));
}

}  // namespace lookback
