#include "server/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "engine/cpus.h"

namespace lookback::server {
namespace {

/// "--max-queue" is LOOKBACK_MAX_QUEUE in the environment.
std::string EnvironmentName(const std::string& flag) {
  std::string name = "LOOKBACK_";
  for (const char c : flag.substr(2)) {
    name.push_back(c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  return name;
}

template <typename T>
CLI::Option* Add(CLI::App& app, const std::string& flag, T& value, const std::string& help) {
  return app.add_option(flag, value, help)->envname(EnvironmentName(flag))->capture_default_str();
}

CLI::Option* AddCount(CLI::App& app, const std::string& flag, int64_t& value, int64_t low,
                      int64_t high, const std::string& help) {
  return Add(app, flag, value, help)->check(CLI::Range(low, high));
}

void AddEngineFlags(CLI::App& app, EngineOptions& engine, std::string& kv) {
  static const std::map<std::string, ComputeMode> kCompute = {{"exact", ComputeMode::kExact},
                                                              {"fast", ComputeMode::kFast}};
  app.add_option(
         "--compute", engine.compute,
         "exact: f32 activations and KV; fast (default): bf16 KV, int8 activations for q8 and q4 "
         "weights, and bf16 ones for bf16 weights where the CPU multiplies them faster")
      ->envname("LOOKBACK_COMPUTE")
      ->transform(CLI::CheckedTransformer(kCompute));
  Add(app, "--kv", kv, "type of keys and values; default: f32 for exact, bf16 for fast")
      ->check(CLI::IsMember({"f32", "bf16"}));
  Add(app, "--block-tokens", engine.block_tokens, "tokens a KV block")
      ->check(CLI::IsMember({16, 32}));
  AddCount(app, "--threads", engine.threads, 0, 1024,
           "compute threads; 0 = one a CPU of --cpus, or of those it may use");
  app.add_option_function<std::string>(
         "--cpus",
         [&engine](const std::string& text) {
           Result<std::vector<int>> cpus = ParseCpus(text, UsableCpus());
           if (!cpus.ok()) throw CLI::ValidationError("--cpus", cpus.status().message());
           engine.cpus = std::move(cpus).value();
         },
         "CPUs to keep the compute threads on, one each, as 0-3,8; default: anywhere")
      ->envname("LOOKBACK_CPUS");
  AddCount(app, "--max-context", engine.max_context, 0, 1 << 30,
           "tokens a sequence; 0 = what the model was trained with");
  Add(app, "--kv-memory", engine.kv_memory_bytes,
      "bytes of the KV pool (K, M, G, T as suffix); 0 = half of what is free")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::NonNegativeNumber);
  AddCount(app, "--max-chunk", engine.max_chunk, 1, 1 << 20,
           "prompt tokens of one sequence a step");
  Add(app, "--prompt-slowdown", engine.prompt_slowdown,
      "how many times as long a decoding step may take because prompts join it, from 1; 0 = any");
  AddCount(app, "--max-step-rows", engine.max_step_rows, 1, 1 << 20,
           "prompt and decode rows a step, at least --max-requests");
}

void AddLimitFlags(CLI::App& app, Limits& limits) {
  AddCount(app, "--max-requests", limits.max_requests, 1, 1 << 20,
           "choices decoded at the same time");
  AddCount(app, "--max-queue", limits.max_queue, 1, 1 << 20, "requests that wait");
  AddCount(app, "--max-choices", limits.max_choices, 1, 1 << 10, "n of a request");
  AddCount(app, "--max-stops", limits.max_stops, 0, 1 << 10, "stop texts of a request");
  AddCount(app, "--max-stop-bytes", limits.max_stop_bytes, 1, 1 << 16, "bytes of a stop text");
  AddCount(app, "--max-stop-token-ids", limits.max_stop_token_ids, 0, 1 << 16,
           "stop ids of a request");
  AddCount(app, "--max-top-logprobs", limits.max_top_logprobs, 0, 1 << 10,
           "alternatives a token in log-probabilities");
  AddCount(app, "--max-logit-bias", limits.max_logit_bias, 0, 1 << 20, "biased ids of a request");
  AddCount(app, "--max-prompt-bytes", limits.max_prompt_bytes, 1, 1 << 30,
           "bytes of a text prompt");
  AddCount(app, "--max-request-id-bytes", limits.max_request_id_bytes, 1, 1 << 12,
           "bytes of a request id");
}

void AddServiceFlags(CLI::App& app, ServerOptions& options, double& drain, double& stall) {
  app.add_option("MODEL,--model", options.model_path, "the converted file")
      ->envname("LOOKBACK_MODEL")
      ->required();
  Add(app, "--listen", options.listen, "HOST:PORT (port 0 = any free one) or unix:PATH");
  Add(app, "--control-listen", options.control_listen,
      "serve lookback.v1.Control here alone, instead of on --listen");
  Add(app, "--name", options.name, "the model's name in requests; default: the file's name");
  Add(app, "--drain-timeout", drain, "seconds that running requests may take after SIGTERM")
      ->check(CLI::Range(0.0, 86400.0));
  Add(app, "--stall-timeout", stall,
      "seconds without an engine step, while work waits, until health says NOT_SERVING")
      ->check(CLI::Range(0.1, 86400.0));
  app.add_flag("--log-requests", options.log_requests,
               "one JSON line a request on stderr; never prompt or answer text")
      ->envname("LOOKBACK_LOG_REQUESTS");
  Add(app, "--port-file", options.port_file, "write the bound port here once serving");
  AddCount(app, "--max-message-bytes", options.max_message_bytes, 1 << 10, 1 << 30,
           "bytes of a gRPC message, either way");
  AddCount(app, "--max-metadata-bytes", options.max_metadata_bytes, 1 << 10, 1 << 20,
           "bytes of a call's metadata");
  AddCount(app, "--max-concurrent-streams", options.max_concurrent_streams, 1, 1 << 20,
           "calls a connection");
  Add(app, "--transport-memory", options.transport_memory_bytes,
      "bytes that gRPC may use for its buffers (K, M, G, T as suffix)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 40));
}

Status CheckTogether(const ServerOptions& options) {
  if (options.engine.max_step_rows < options.engine.limits.max_requests) {
    return Mismatch("--max-step-rows", options.engine.max_step_rows,
                    StrCat("at least --max-requests (", options.engine.limits.max_requests, ")"));
  }
  return {};
}

/// One line, without the list of all flags that CLI11 adds.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

}  // namespace

Result<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  ServerOptions& options = line.options;
  options.engine.compute = ComputeMode::kFast;
  std::string kv;
  double drain_seconds = 90.0;
  double stall_seconds = 30.0;
  CLI::App app{"Serves one converted lookback file over gRPC."};
  app.name("lookback-server");
  app.set_version_flag("--version", LOOKBACK_VERSION);
  app.footer("Every flag can be given in the environment: --max-queue as LOOKBACK_MAX_QUEUE.");
  AddServiceFlags(app, options, drain_seconds, stall_seconds);
  AddEngineFlags(app, options.engine, kv);
  AddLimitFlags(app, options.engine.limits);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      line.exit_code = app.exit(error);
      return line;
    }
    return InvalidArgument(OneLine(error.what()), " (see --help)");
  }
  // CLI::Range lets NaN through.
  if (std::isnan(drain_seconds)) return Mismatch("--drain-timeout", "nan", "seconds");
  if (std::isnan(stall_seconds)) return Mismatch("--stall-timeout", "nan", "seconds");
  if (kv == "f32") options.engine.kv = KvType::kF32;
  if (kv == "bf16") options.engine.kv = KvType::kBF16;
  options.drain_timeout_ms = static_cast<int64_t>(drain_seconds * 1000.0);
  options.stall_timeout_ms = static_cast<int64_t>(stall_seconds * 1000.0);
  LOOKBACK_RETURN_IF_ERROR(CheckTogether(options));
  return line;
}

}  // namespace lookback::server
