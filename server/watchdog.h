// Tells a busy engine from a hung one.
#pragma once

#include <chrono>
#include <cstdint>

namespace lookback::server {

/// Healthy while the engine idles or its step counter moves.
class StallDetector {
 public:
  using Clock = std::chrono::steady_clock;

  explicit StallDetector(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  /// Reports what the engine shows at `now`; returns whether it is healthy. Call every second or
  /// so.
  bool Observe(Clock::time_point now, bool work_pending, int64_t steps) {
    if (!started_ || !work_pending || steps != steps_) {
      started_ = true;
      steps_ = steps;
      moved_at_ = now;
    }
    return now - moved_at_ < timeout_;
  }

 private:
  std::chrono::milliseconds timeout_;
  bool started_ = false;
  int64_t steps_ = 0;
  Clock::time_point moved_at_{};
};

}  // namespace lookback::server
