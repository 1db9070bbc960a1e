// One served model: engine, services, health, and the orderly way out.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "server/options.h"

namespace lookback::server {

/// All methods are thread-safe.
class Server {
 public:
  /// Loads the model, warms the engine up, binds and serves; health says SERVING when this returns.
  /// ResourceExhausted: the engine does not fit this machine; others: bad options, file or address.
  static Result<std::unique_ptr<Server>> Start(ServerOptions options);
  /// Cancels what still runs.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Where clients connect, with the port that was bound ("127.0.0.1:40123", "unix:/run/x").
  const std::string& address() const;
  const std::string& control_address() const;  ///< the same unless --control-listen is set
  /// The port of address(); 0 for a Unix socket.
  int port() const;
  /// One line for people: model, compute mode, kernels, KV pool, address.
  std::string Banner() const;
  Engine& engine();

  /// First health says NOT_SERVING, then new work is refused. What runs goes on. Idempotent; the
  /// first call's timeout (default: the options') counts.
  void BeginDrain(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// Waits until somebody begins a drain, here or through Control.Drain, and until it is over: what
  /// ran has finished, or was cancelled when the time was up. Then closes the ports.
  void WaitDrained();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lookback::server
