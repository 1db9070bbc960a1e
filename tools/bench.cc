// `lookback bench`: how fast a model file runs here, beside what the memory could do.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "tools/commands.h"
#include "tools/engine_flags.h"

namespace lookback::tools {
namespace {

constexpr int64_t kStreamBytes = int64_t{256} << 20;

struct BenchFlags {
  std::string file;
  int64_t context = -1;
  int64_t tokens = -1;
  int64_t repeat = 5;
  bool json = false;
  EngineFlags engine;
};

/// The figures of one bench run; bytes are the engine's own counts.
struct BenchRow {
  std::string what;
  int64_t context = 0;  // tokens in the cache at the start
  int64_t tokens = 0;   // timed, a run
  std::vector<double> tokens_per_s;
  double weight_bytes_a_token = 0.0;
  double kv_bytes_a_token = 0.0;
  double products_ratio = 0.0;  // executed over those with every window full
  double acr = 0.0;
  double stream_before = 0.0;  // bytes a second
  double stream_after = 0.0;

  double median() const {
    std::vector<double> sorted = tokens_per_s;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double bytes_a_token() const { return weight_bytes_a_token + kv_bytes_a_token; }
  double stream() const { return (stream_before + stream_after) / 2; }
};

Result<BenchRow> Measure(const BenchFlags& flags, bool decode) {
  LOOKBACK_ASSIGN_OR_RETURN(const auto model, LoadedModel::Open(flags.file));
  const ModelConfig& config = model->config();
  EngineOptions options = flags.engine.Resolve();
  const int64_t limit = options.max_context != 0 ? options.max_context : config.train_context;
  BenchRow row;
  row.what = decode ? "decode" : "prefill";
  row.tokens = flags.tokens >= 0 ? flags.tokens : std::min<int64_t>(decode ? 64 : 512, limit);
  row.context = !decode              ? 0
                : flags.context >= 0 ? flags.context
                                     : std::max<int64_t>(0, limit - row.tokens);
  if (row.tokens < 1 || row.context < 0 || row.context + row.tokens > limit) {
    return Mismatch("--context + --tokens", row.context + row.tokens,
                    StrCat("1 to ", limit, " (see --max-context)"));
  }
  LOOKBACK_ASSIGN_OR_RETURN(const auto evaluator, Evaluator::Create(model, options));
  const int64_t threads = evaluator->info().threads;
  row.stream_before = MeasureStreamBandwidth(threads, kStreamBytes);
  const EngineCounters before = evaluator->counters();
  for (int64_t run = 0; run < flags.repeat; ++run) {
    LOOKBACK_ASSIGN_OR_RETURN(const double seconds,
                              decode ? evaluator->TimeDecode(row.context, row.tokens)
                                     : evaluator->TimePrefill(row.tokens));
    row.tokens_per_s.push_back(static_cast<double>(row.tokens) / seconds);
  }
  row.stream_after = MeasureStreamBandwidth(threads, kStreamBytes);
  const EngineCounters after = evaluator->counters();
  const auto timed = static_cast<double>(row.tokens * flags.repeat);
  row.weight_bytes_a_token =
      static_cast<double>(after.weight_bytes_read - before.weight_bytes_read) / timed;
  row.kv_bytes_a_token = static_cast<double>(after.kv_bytes_read - before.kv_bytes_read) / timed;
  row.products_ratio =
      static_cast<double>(after.attention_products - before.attention_products) /
      static_cast<double>(after.attention_products_full - before.attention_products_full);
  row.acr = config.windows.Acr(row.context + row.tokens);
  return row;
}

void PrintTable(const BenchRow& row) {
  const auto [low, high] = std::minmax_element(row.tokens_per_s.begin(), row.tokens_per_s.end());
  std::printf("%s: %lld tokens from context %lld, %zu runs\n", row.what.c_str(),
              static_cast<long long>(row.tokens), static_cast<long long>(row.context),
              row.tokens_per_s.size());
  std::printf("  tokens/s        %.1f (median; %.1f to %.1f)\n", row.median(), *low, *high);
  std::printf("  bytes/token     %.0f = weights %.0f + KV %.0f\n", row.bytes_a_token(),
              row.weight_bytes_a_token, row.kv_bytes_a_token);
  std::printf("  bytes/s         %.2f GB/s\n", row.bytes_a_token() * row.median() / 1e9);
  std::printf("  stream probe    %.2f GB/s before, %.2f after: the run moved %.1f %% of it\n",
              row.stream_before / 1e9, row.stream_after / 1e9,
              100.0 * row.bytes_a_token() * row.median() / row.stream());
  std::printf(
      "  attention       %.4f of the products with every window full (ACR at the end %.4f)\n",
      row.products_ratio, row.acr);
}

void PrintJson(const BenchRow& row) {
  const Json json = {{"bench", row.what},
                     {"context_tokens", row.context},
                     {"tokens", row.tokens},
                     {"tokens_per_s", row.tokens_per_s},
                     {"tokens_per_s_median", row.median()},
                     {"weight_bytes_per_token", row.weight_bytes_a_token},
                     {"kv_bytes_per_token", row.kv_bytes_a_token},
                     {"bytes_per_token", row.bytes_a_token()},
                     {"attention_measured_ratio", row.products_ratio},
                     {"acr", row.acr},
                     {"stream_bytes_per_s_before", row.stream_before},
                     {"stream_bytes_per_s_after", row.stream_after}};
  std::printf("%s\n", json.dump(2).c_str());
}

void AddBenchKind(CLI::App& bench, const std::string& name, const std::string& about, bool decode,
                  int& exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = bench.add_subcommand(name, about);
  command->add_option("FILE", flags->file, "Converted checkpoint")->required();
  if (decode) {
    command->add_option(
        "--context", flags->context,
        "Tokens in the cache at the start (default: what leaves room for --tokens)");
  }
  command->add_option("--tokens", flags->tokens, "Tokens a run");
  command->add_option("--repeat", flags->repeat, "Runs")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON document");
  AddEngineFlags(*command, flags->engine);
  command->callback([flags, decode, &exit_code] {
    const Result<BenchRow> row = Measure(*flags, decode);
    exit_code = Report(row.status());
    if (!row.ok()) return;
    if (flags->json) {
      PrintJson(*row);
    } else {
      PrintTable(*row);
    }
  });
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measure decode or prefill of a model file");
  bench->require_subcommand(1);
  bench->footer(
      "Examples:\n  lookback bench decode demo.safetensors --context 448\n"
      "  lookback bench prefill demo.safetensors --tokens 512 --json");
  AddBenchKind(*bench, "decode", "One sequence, one token a step, on a filled cache", true,
               exit_code);
  AddBenchKind(*bench, "prefill", "One prompt from an empty cache", false, exit_code);
}

}  // namespace lookback::tools
