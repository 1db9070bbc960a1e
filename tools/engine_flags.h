// Flags that every command which runs a model shares.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "engine/engine.h"

namespace lookback::tools {

/// Values of the shared flags, before they are resolved.
struct EngineFlags {
  std::string compute = "exact";
  std::string kv;
  EngineOptions options;

  /// The options that the flags ask for.
  EngineOptions Resolve() const;
};

/// Adds --threads and --cpus to `command`.
void AddThreadFlags(CLI::App& command, int64_t& threads, std::vector<int>& cpus);

/// Adds --compute, --kv, --block-tokens, --threads, --cpus, --max-context and --max-chunk to
/// `command`.
void AddEngineFlags(CLI::App& command, EngineFlags& flags);

/// One line on stderr if the asked context passes what the model was trained with.
void WarnBeyondTraining(const ModelConfig& config, const EngineOptions& options);

}  // namespace lookback::tools
