// How many prompt tokens join a step in which others decode, so that those who read along notice
// little of the prompts that arrive. It changes when a token is computed, never what it is.
#pragma once

#include <cstdint>

namespace lookback {

/// Learns from the time of each step what decoding alone takes and what a prompt's row adds. Not
/// thread-safe.
class PromptPace {
 public:
  /// `slowdown`: how many times as long as decoding alone a step may take; 0 = no limit.
  explicit PromptPace(double slowdown) : slowdown_(slowdown) {}

  /// Most prompt rows of the next step, should others decode in it. 0 now and then, for a step that
  /// shows what decoding alone takes.
  int64_t rows() const;
  /// A step in which at least one sequence decoded has taken `seconds`.
  void Record(int64_t prompt_rows, double seconds);

 private:
  double slowdown_;
  double decode_seconds_ = 0.0;  // of a step without prompts; 0 = not known
  double row_seconds_ = 0.0;     // what a prompt's row adds; 0 = not known
  int64_t steps_since_ = 0;      // with prompts, since a step without
};

}  // namespace lookback
