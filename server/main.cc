// lookback-server: exit 0 after a drain, 1 where the engine does not fit this machine, 2 for bad
// flags, a missing or broken model, or an address that cannot be bound.
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "server/options.h"
#include "server/server.h"

namespace {

using lookback::Status;
using lookback::StatusCode;
using lookback::server::CommandLine;
using lookback::server::Server;

int Fail(const Status& status) {
  std::string line = status.message();
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fprintf(stderr, "lookback-server: %s\n", line.c_str());
  return status.code() == StatusCode::kResourceExhausted ? 1 : 2;
}

/// Receives SIGTERM and SIGINT on a thread of its own: the first begins a drain, the second ends
/// the process at once. Made before any other thread, so that all of them inherit the blocked mask.
class SignalThread {
 public:
  SignalThread() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    signal(SIGPIPE, SIG_IGN);
    thread_ = std::thread([this] { Loop(); });
  }
  ~SignalThread() {
    stopping_.store(true);
    thread_.join();
  }
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

  /// The server that a signal drains; one that came before drains it now. Null: none any more.
  void Attach(Server* server) {
    const std::lock_guard lock(mutex_);
    server_ = server;
    if (server_ != nullptr && received_) server_->BeginDrain();
  }

 private:
  void Loop() {
    const timespec tick{0, 100'000'000};
    while (!stopping_.load()) {
      if (sigtimedwait(&signals_, nullptr, &tick) < 0) continue;
      const std::lock_guard lock(mutex_);
      if (received_) _exit(1);
      received_ = true;
      if (server_ != nullptr) server_->BeginDrain();
    }
  }

  sigset_t signals_{};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  bool received_ = false;
  Server* server_ = nullptr;
  std::thread thread_;
};

int Run(int argc, char** argv) {
  auto line = lookback::server::ParseCommandLine(argc, argv);
  if (!line.ok()) return Fail(line.status());
  if (line->exit_code) return *line->exit_code;
  SignalThread signals;
  auto server = Server::Start(std::move(line->options));
  if (!server.ok()) return Fail(server.status());
  std::printf("lookback-server: %s\n", (*server)->Banner().c_str());
  std::fflush(stdout);
  signals.Attach(server->get());
  (*server)->WaitDrained();
  signals.Attach(nullptr);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {  // out of memory
    return Fail({StatusCode::kResourceExhausted, error.what()});
  }
}
