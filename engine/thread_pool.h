// One pool of compute threads for the engine's single loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "engine/cpus.h"

namespace lookback {

/// Splits loops over `threads` threads, the caller among them. One loop at a time; allocates
/// nothing after construction. Idle workers spin for some microseconds, then sleep.
class ThreadPool {
 public:
  /// Thread i runs on cpus[i] alone; with no `cpus` wherever the system puts it.
  explicit ThreadPool(int64_t threads, std::vector<int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int64_t threads() const { return static_cast<int64_t>(workers_.size()) + 1; }

  /// Keeps the calling thread on the CPU of thread 0, which it is in every loop that it runs. Not
  /// done by For(): for a loop of microseconds it would take too long.
  PinnedThread PinCaller() const { return Pin(0); }

  /// Calls body(begin, end, thread) for ranges that cover [0, items) once, each a multiple of
  /// `grain` long but the last; thread is in [0, threads()). Returns when all are done. Which
  /// thread takes which range is not fixed: no result may depend on it.
  template <typename Body>
  void For(int64_t items, int64_t grain, const Body& body) {
    Run(
        items, grain,
        [](const void* context, int64_t begin, int64_t end, int64_t thread) {
          (*static_cast<const Body*>(context))(begin, end, thread);
        },
        &body);
  }

 private:
  using Function = void (*)(const void* context, int64_t begin, int64_t end, int64_t thread);
  PinnedThread Pin(int64_t thread) const;
  void Run(int64_t items, int64_t grain, Function function, const void* context);
  void WorkerLoop(int64_t thread);
  void TakeRanges(int64_t thread);

  // The loop being run. A worker may read these while the next loop is being written: what it read
  // counts only once it has claimed a range of the same generation from ticket_.
  std::atomic<Function> function_{nullptr};
  std::atomic<const void*> context_{nullptr};
  std::atomic<int64_t> items_{0};
  std::atomic<int64_t> range_{0};  ///< items of a range

  /// Generation of the loop in the high half, next range to be claimed (or all ones: none) in the
  /// low half. The caller waits for ranges and not for workers: one that sleeps or has lost its
  /// core holds nothing up.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};  ///< what idle workers wait on
  alignas(64) std::atomic<int32_t> unfinished_{0};   ///< ranges
  std::atomic<bool> stop_{false};
  const std::vector<int> cpus_;  ///< [threads], or empty
  std::vector<std::thread> workers_;
};

}  // namespace lookback
