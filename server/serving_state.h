// What the services of one server share.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/engine.h"
#include "server/convert.h"
#include "server/options.h"
#include "server/pump.h"

namespace lookback::server {

/// Ids of the requests that hold a call open. Thread-safe.
class LiveRequests {
 public:
  /// False if the id is held already.
  bool Add(const std::string& request_id) {
    const std::lock_guard lock(mutex_);
    return ids_.insert(request_id).second;
  }
  void Remove(const std::string& request_id) {
    {
      const std::lock_guard lock(mutex_);
      ids_.erase(request_id);
    }
    removed_.notify_all();
  }
  /// Waits until no call is open, or until `deadline`.
  void WaitEmpty(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    removed_.wait_until(lock, deadline, [this] { return ids_.empty(); });
  }
  std::vector<std::string> All() const {
    const std::lock_guard lock(mutex_);
    return {ids_.begin(), ids_.end()};
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable removed_;
  std::unordered_set<std::string> ids_;
};

/// Outlives every call. The order of the members is the order of their needs: the engine notifies
/// the pump until it is destroyed, so it goes first.
struct ServingState {
  ServerOptions options;
  std::shared_ptr<const LoadedModel> model;
  ModelIdentity identity;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  std::atomic<bool> draining{false};   ///< new work is refused
  std::atomic<bool> cut_short{false};  ///< the drain's time is up: what ran was cancelled by us
  LiveRequests live;
  /// Asks the owner to drain and stop, with another timeout than the flag's if given. Does not
  /// wait.
  std::function<void(std::optional<std::chrono::milliseconds>)> request_drain;
  Pump pump;
  std::unique_ptr<Engine> engine;

  Status CheckNotDraining() const {
    if (!draining.load()) return {};
    return {StatusCode::kUnavailable, "the server is draining"};
  }
};

}  // namespace lookback::server
