#include "tools/engine_flags.h"

#include <cstdio>

#include "engine/cpus.h"

namespace lookback::tools {

void AddThreadFlags(CLI::App& command, int64_t& threads, std::vector<int>& cpus) {
  command
      .add_option("--threads", threads,
                  "Compute threads (default: one a CPU of --cpus, or of those it may use)")
      ->check(CLI::Range(0, 1024));
  command.add_option_function<std::string>(
      "--cpus",
      [&cpus](const std::string& text) {
        Result<std::vector<int>> parsed = ParseCpus(text, UsableCpus());
        if (!parsed.ok()) throw CLI::ValidationError("--cpus", parsed.status().message());
        cpus = std::move(parsed).value();
      },
      "CPUs to keep the threads on, one each, as 0-3,8 (default: anywhere)");
}

void AddEngineFlags(CLI::App& command, EngineFlags& flags) {
  EngineOptions& options = flags.options;
  command
      .add_option(
          "--compute", flags.compute,
          "exact: f32 activations and KV; fast: bf16 KV, int8 activations for q8 and q4, and bf16 "
          "ones for bf16 where the CPU multiplies them faster")
      ->check(CLI::IsMember({"exact", "fast"}))
      ->capture_default_str();
  command.add_option("--kv", flags.kv, "Type of cached keys and values (default: by --compute)")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command.add_option("--block-tokens", options.block_tokens, "Tokens of a KV block: 16 or 32")
      ->capture_default_str();
  AddThreadFlags(command, options.threads, options.cpus);
  command.add_option("--max-context", options.max_context,
                     "Tokens of a sequence (default: what the model was trained with)");
  command.add_option("--max-chunk", options.max_chunk, "Prompt tokens fed at once")
      ->capture_default_str();
}

EngineOptions EngineFlags::Resolve() const {
  EngineOptions resolved = options;
  resolved.compute = compute == "fast" ? ComputeMode::kFast : ComputeMode::kExact;
  if (!kv.empty()) resolved.kv = kv == "f32" ? KvType::kF32 : KvType::kBF16;
  resolved.max_step_rows = std::max(resolved.max_step_rows, resolved.max_chunk);
  return resolved;
}

void WarnBeyondTraining(const ModelConfig& config, const EngineOptions& options) {
  if (options.max_context <= config.train_context) return;
  std::fprintf(stderr,
               "lookback: warning: --max-context %lld is beyond the %lld tokens that the model was "
               "trained with\n",
               static_cast<long long>(options.max_context),
               static_cast<long long>(config.train_context));
}

}  // namespace lookback::tools
