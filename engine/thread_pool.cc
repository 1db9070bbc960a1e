#include "engine/thread_pool.h"

#include <algorithm>
#include <utility>

namespace lookback {
namespace {

// Long enough to bridge the serial gaps inside a step, short enough to leave the cores to others
// when there is no work.
constexpr int kSpins = 4000;
// Ranges a thread: uneven items (attention over windows of all lengths) even out.
constexpr int64_t kRangesPerThread = 4;

// Low half of a ticket whose loop is over.
constexpr uint64_t kClosed = UINT32_MAX;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Waits until `value` differs from `old`.
template <typename T>
void SpinThenSleep(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int64_t threads, std::vector<int> cpus) : cpus_(std::move(cpus)) {
  LOOKBACK_CHECK(cpus_.empty() || std::ssize(cpus_) == threads);
  for (int64_t thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_acq_rel);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

PinnedThread ThreadPool::Pin(int64_t thread) const {
  return cpus_.empty() ? PinnedThread() : PinnedThread(cpus_[static_cast<size_t>(thread)]);
}

void ThreadPool::Run(int64_t items, int64_t grain, Function function, const void* context) {
  if (items <= 0) return;
  const int64_t ranges = std::min((items + grain - 1) / grain, threads() * kRangesPerThread);
  if (workers_.empty() || ranges == 1) {
    function(context, 0, items, 0);
    return;
  }
  // Whole grains: a kernel takes so many outputs at once.
  const int64_t range = (items + ranges * grain - 1) / (ranges * grain) * grain;
  // Closed first: a late worker of the last loop must not claim a range by the fields of this one.
  ticket_.store(ticket_.load(std::memory_order_relaxed) | kClosed, std::memory_order_relaxed);
  function_.store(function, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  items_.store(items, std::memory_order_release);
  range_.store(range, std::memory_order_release);
  unfinished_.store(static_cast<int32_t>((items + range - 1) / range), std::memory_order_relaxed);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  ticket_.store(uint64_t{generation} << 32, std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  generation_.notify_all();
  TakeRanges(0);
  for (int32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire)) {
    SpinThenSleep(unfinished_, left);
  }
}

void ThreadPool::TakeRanges(int64_t thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (true) {
    const Function function = function_.load(std::memory_order_acquire);
    const void* context = context_.load(std::memory_order_acquire);
    const int64_t items = items_.load(std::memory_order_acquire);
    const int64_t range = range_.load(std::memory_order_acquire);
    const int64_t begin = static_cast<int64_t>(ticket & UINT32_MAX) * range;
    // A mix of two loops' fields fails the exchange, or leads here and ends the worker's turn.
    if ((ticket & kClosed) == kClosed || begin >= items) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    function(context, begin, std::min(begin + range, items), thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_all();
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::WorkerLoop(int64_t thread) {
  const PinnedThread pinned = Pin(thread);
  uint32_t seen = 0;
  while (true) {
    SpinThenSleep(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    TakeRanges(thread);
  }
}

}  // namespace lookback
