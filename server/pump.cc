#include "server/pump.h"

#include <utility>

namespace lookback::server {

Pump::Pump() : thread_([this] { Loop(); }) {}

Pump::~Pump() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_one();
  thread_.join();
}

void Pump::Wake(std::shared_ptr<PumpTarget> target) {
  if (target->queued_.exchange(true)) return;
  {
    const std::lock_guard lock(mutex_);
    PumpTarget* raw = target.get();
    (tail_ == nullptr ? head_ : tail_->next_) = std::move(target);
    tail_ = raw;
  }
  ready_.notify_one();
}

void Pump::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    ready_.wait(lock, [this] { return head_ != nullptr || stopping_; });
    if (head_ == nullptr) return;
    std::shared_ptr<PumpTarget> target = std::move(head_);
    head_ = std::move(target->next_);
    if (head_ == nullptr) tail_ = nullptr;
    lock.unlock();
    // Cleared before Run(): news that arrive while it runs queue the target once more.
    // exchange, not store: it also acquires what a waker wrote that found the target queued.
    target->queued_.exchange(false);
    target->Run();
    target.reset();  // outside the lock: this may be the last reference
    lock.lock();
  }
}

}  // namespace lookback::server
