// One thread that carries events from the engine to gRPC, so that the engine thread never converts,
// serializes or writes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace lookback::server {

/// Something the pump runs when it has been woken. The links are inside, so waking allocates
/// nothing.
class PumpTarget {
 public:
  virtual ~PumpTarget() = default;

 protected:
  /// Runs on the pump's thread alone: state that only Run() touches needs no lock. Must not block.
  virtual void Run() = 0;

 private:
  friend class Pump;
  std::atomic<bool> queued_{false};
  std::shared_ptr<PumpTarget> next_;  // guarded by the pump's mutex while queued
};

/// A first-in, first-out ready list and its thread.
class Pump {
 public:
  Pump();
  /// Runs what is queued, then joins.
  ~Pump();
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  /// Queues `target` unless it is queued already. Any thread; never blocks for longer than it takes
  /// to link a list node. What happened before Wake() is visible to the Run() that it causes.
  void Wake(std::shared_ptr<PumpTarget> target);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable ready_;
  std::shared_ptr<PumpTarget> head_;  // the queue's links hold the targets alive
  PumpTarget* tail_ = nullptr;
  bool stopping_ = false;
  std::thread thread_;  // last: starts when everything else is there
};

}  // namespace lookback::server
