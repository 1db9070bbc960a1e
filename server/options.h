// The command line of lookback-server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "engine/status.h"

namespace lookback::server {

struct ServerOptions {
  std::string model_path;
  std::string listen = "127.0.0.1:50051";  ///< HOST:PORT (port 0 = any free one) or unix:PATH
  std::string control_listen;              ///< "" = Control is served on `listen`
  std::string name;                        ///< "" = the file's name without its extension
  EngineOptions engine;
  int64_t drain_timeout_ms = 90'000;
  int64_t stall_timeout_ms = 30'000;  ///< work waits and no step for so long: NOT_SERVING
  bool log_requests = false;
  std::string port_file;
  int64_t max_message_bytes = 16 << 20;
  int64_t max_metadata_bytes = 16 << 10;
  int64_t max_concurrent_streams = 1024;         ///< calls a connection
  int64_t transport_memory_bytes = 512LL << 20;  ///< gRPC's ResourceQuota
};

/// The options, or the exit code of a command line that asked for something else (--help,
/// --version).
struct CommandLine {
  ServerOptions options;
  std::optional<int> exit_code;
};

/// Reads flags, then the environment (LOOKBACK_LISTEN for --listen, and so on), then defaults.
/// InvalidArgument names the flag.
Result<CommandLine> ParseCommandLine(int argc, const char* const* argv);

}  // namespace lookback::server
