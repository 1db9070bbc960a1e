// `lookback bench`: how fast a model runs here, beside what the memory could do.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>

#include "engine/thread_pool.h"
#include "tools/bench_kernels.h"
#include "tools/bench_shapes.h"
#include "tools/commands.h"
#include "tools/engine_flags.h"

namespace lookback::tools {
namespace {

constexpr int64_t kStreamBytes = int64_t{256} << 20;
constexpr int64_t kDefaultContext = 4096;

enum class Work : uint8_t { kDecode, kPrefill };

struct BenchFlags {
  Work work = Work::kDecode;
  std::string file;
  std::string shape;
  std::string weights = "bf16";
  int64_t context = -1;
  int64_t tokens = -1;
  int64_t sequences = 1;
  int64_t repeat = 5;
  bool json = false;
  EngineFlags engine;
};

/// The figures of one subject; bytes are the engine's own counts.
struct BenchRow {
  std::string what;
  int64_t context = 0;  // tokens in the cache at the start
  int64_t tokens = 0;   // timed, a run and sequence
  int64_t sequences = 1;
  std::vector<double> tokens_per_s;
  double weight_bytes_a_token = 0.0;
  double kv_bytes_a_token = 0.0;
  double products_ratio = 0.0;  // executed over those with every window full
  double acr = 0.0;
  double stream_before = 0.0;  // bytes a second
  double stream_after = 0.0;

  double median() const { return Median(tokens_per_s); }
  double bytes_a_token() const { return weight_bytes_a_token + kv_bytes_a_token; }
  double stream() const { return (stream_before + stream_after) / 2; }
};

/// What is timed: one model with one set of options.
struct Subject {
  BenchRow row;
  std::unique_ptr<Evaluator> evaluator;
};

Result<std::shared_ptr<const LoadedModel>> OpenModel(const BenchFlags& flags) {
  if (flags.file.empty() == flags.shape.empty()) {
    return Mismatch("FILE and --shape", flags.file.empty() ? "neither" : "both", "one of them");
  }
  if (flags.shape.empty()) return LoadedModel::Open(flags.file);
  LOOKBACK_ASSIGN_OR_RETURN(const ModelConfig config, ShapeConfig(flags.shape));
  return OpenRandomModel(config, flags.weights);
}

/// `change`: of the options of the flags.
Result<Subject> MakeSubject(const BenchFlags& flags, std::string what,
                            std::shared_ptr<const LoadedModel> model,
                            const std::function<void(EngineOptions&)>& change = {}) {
  const bool decode = flags.work == Work::kDecode;
  const ModelConfig& config = model->config();
  EngineOptions options = flags.engine.Resolve();
  if (change) change(options);
  const int64_t limit = options.max_context != 0 ? options.max_context : config.train_context;
  Subject subject;
  BenchRow& row = subject.row;
  row.what = std::move(what);
  row.sequences = decode ? flags.sequences : 1;
  row.tokens = flags.tokens >= 0 ? flags.tokens : std::min<int64_t>(decode ? 64 : 512, limit);
  row.context = !decode ? 0
                : flags.context >= 0
                    ? flags.context
                    : std::max<int64_t>(0, std::min(limit, kDefaultContext) - row.tokens);
  if (row.tokens < 1 || row.context < 0 || row.context + row.tokens > limit) {
    return Mismatch("--context + --tokens", row.context + row.tokens,
                    StrCat("1 to ", limit, " (see --max-context)"));
  }
  row.acr = options.full_windows ? 1.0 : config.windows.Acr(row.context + row.tokens);
  // No pool for more than is run.
  if (options.max_context == 0) options.max_context = row.context + row.tokens;
  LOOKBACK_ASSIGN_OR_RETURN(subject.evaluator,
                            Evaluator::Create(std::move(model), options, flags.sequences));
  return subject;
}

/// Times the subjects in turns: A B, B A, A B, … Each has run once before, so that its weights are
/// mapped.
Status Measure(const BenchFlags& flags, std::span<Subject> subjects) {
  EngineOptions options = flags.engine.Resolve();
  LOOKBACK_RETURN_IF_ERROR(ResolveThreads(options.threads, options.cpus));
  ThreadPool threads(options.threads, options.cpus);
  for (const Subject& subject : subjects) {
    LOOKBACK_RETURN_IF_ERROR(subject.evaluator->TimePrefill(1).status());
  }
  std::vector<EngineCounters> before;
  for (const Subject& subject : subjects) before.push_back(subject.evaluator->counters());
  const double stream_before = MeasureStreamBandwidth(threads, kStreamBytes);
  for (int64_t run = 0; run < flags.repeat; ++run) {
    for (size_t turn = 0; turn < subjects.size(); ++turn) {
      Subject& subject = subjects[run % 2 == 0 ? turn : subjects.size() - 1 - turn];
      BenchRow& row = subject.row;
      const Result<double> seconds =
          flags.work == Work::kDecode
              ? subject.evaluator->TimeDecode(row.context, row.tokens, row.sequences)
              : subject.evaluator->TimePrefill(row.tokens);
      LOOKBACK_RETURN_IF_ERROR(seconds.status());
      row.tokens_per_s.push_back(static_cast<double>(row.tokens * row.sequences) / *seconds);
    }
  }
  const double stream_after = MeasureStreamBandwidth(threads, kStreamBytes);
  for (size_t i = 0; i < subjects.size(); ++i) {
    BenchRow& row = subjects[i].row;
    const EngineCounters after = subjects[i].evaluator->counters();
    const auto timed = static_cast<double>(row.tokens * row.sequences * flags.repeat);
    row.stream_before = stream_before;
    row.stream_after = stream_after;
    row.weight_bytes_a_token =
        static_cast<double>(after.weight_bytes_read - before[i].weight_bytes_read) / timed;
    row.kv_bytes_a_token =
        static_cast<double>(after.kv_bytes_read - before[i].kv_bytes_read) / timed;
    row.products_ratio =
        static_cast<double>(after.attention_products - before[i].attention_products) /
        static_cast<double>(after.attention_products_full - before[i].attention_products_full);
  }
  return {};
}

void PrintTable(const BenchRow& row) {
  const auto [low, high] = std::minmax_element(row.tokens_per_s.begin(), row.tokens_per_s.end());
  std::printf("%s: %lld tokens from context %lld", row.what.c_str(),
              static_cast<long long>(row.tokens), static_cast<long long>(row.context));
  if (row.sequences > 1) {
    std::printf(", %lld sequences at once", static_cast<long long>(row.sequences));
  }
  std::printf(", %zu runs\n", row.tokens_per_s.size());
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

Json RowJson(const BenchRow& row) {
  return {{"bench", row.what},
          {"context_tokens", row.context},
          {"tokens", row.tokens},
          {"sequences", row.sequences},
          {"tokens_per_s", row.tokens_per_s},
          {"tokens_per_s_median", row.median()},
          {"weight_bytes_per_token", row.weight_bytes_a_token},
          {"kv_bytes_per_token", row.kv_bytes_a_token},
          {"bytes_per_token", row.bytes_a_token()},
          {"attention_measured_ratio", row.products_ratio},
          {"acr", row.acr},
          {"stream_bytes_per_s_before", row.stream_before},
          {"stream_bytes_per_s_after", row.stream_after}};
}

/// One subject: its row. Two: both, and how much faster the first is than the second, as timed in
/// turns and as their bytes would have it.
void Print(const BenchFlags& flags, const std::string& name, std::span<const Subject> subjects) {
  const BenchRow& first = subjects.front().row;
  if (subjects.size() == 1) {
    if (flags.json) return void(std::printf("%s\n", RowJson(first).dump(2).c_str()));
    return PrintTable(first);
  }
  const BenchRow& second = subjects.back().row;
  std::vector<double> ratios;
  for (size_t run = 0; run < first.tokens_per_s.size(); ++run) {
    ratios.push_back(first.tokens_per_s[run] / second.tokens_per_s[run]);
  }
  const double by_bytes = second.bytes_a_token() / first.bytes_a_token();
  if (flags.json) {
    const Json json = {{"bench", name},
                       {"rows", {RowJson(first), RowJson(second)}},
                       {"speed_ratio", ratios},
                       {"speed_ratio_median", Median(ratios)},
                       {"bytes_ratio", by_bytes}};
    return void(std::printf("%s\n", json.dump(2).c_str()));
  }
  PrintTable(first);
  PrintTable(second);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  std::printf("%s / %s: %.3f times the tokens/s (median; %.3f to %.3f), %.3f by their bytes\n",
              first.what.c_str(), second.what.c_str(), Median(ratios), *low, *high, by_bytes);
}

Result<std::vector<Subject>> Alone(const BenchFlags& flags, const std::string& name) {
  LOOKBACK_ASSIGN_OR_RETURN(auto model, OpenModel(flags));
  std::vector<Subject> subjects(1);
  LOOKBACK_ASSIGN_OR_RETURN(subjects[0], MakeSubject(flags, name, std::move(model)));
  return subjects;
}

Result<std::vector<Subject>> AgainstFullWindows(const BenchFlags& flags) {
  LOOKBACK_ASSIGN_OR_RETURN(const auto model, OpenModel(flags));
  std::vector<Subject> subjects(2);
  LOOKBACK_ASSIGN_OR_RETURN(subjects[0], MakeSubject(flags, "own windows", model));
  LOOKBACK_ASSIGN_OR_RETURN(
      subjects[1], MakeSubject(flags, "full windows", model,
                               [](EngineOptions& options) { options.full_windows = true; }));
  return subjects;
}

Result<std::vector<Subject>> AgainstAdditive(const BenchFlags& flags) {
  LOOKBACK_ASSIGN_OR_RETURN(const auto model, OpenModel(flags));
  if (model->config().residual == ResidualMode::kAdditive) {
    return Mismatch(flags.shape.empty() ? "FILE" : "--shape",
                    Quoted(flags.shape.empty() ? flags.file : flags.shape),
                    "one with a residual mode (as the shapes mhar-… and llama-8b-delta)");
  }
  std::vector<Subject> subjects(2);
  LOOKBACK_ASSIGN_OR_RETURN(subjects[0], MakeSubject(flags, "routed", model));
  LOOKBACK_ASSIGN_OR_RETURN(subjects[1],
                            MakeSubject(flags, "additive", model,
                                        [](EngineOptions& options) { options.additive = true; }));
  return subjects;
}

/// What a kind of bench times.
using Subjects = std::function<Result<std::vector<Subject>>(const BenchFlags&)>;

/// Adds `bench NAME`; flags of its own are added to the result, where `flags` holds them.
CLI::App& AddBenchKind(CLI::App& bench, const std::string& name, const std::string& about,
                       const std::shared_ptr<BenchFlags>& flags, const Subjects& subjects,
                       int& exit_code) {
  CLI::App* command = bench.add_subcommand(name, about);
  command->add_option("FILE", flags->file, "Converted checkpoint");
  command->add_option("--shape", flags->shape, "Instead of FILE: random weights of a named shape")
      ->check(CLI::IsMember(ShapeNames()));
  command->add_option("--weights", flags->weights, "With --shape: f32, bf16, q8 or q4")
      ->check(CLI::IsMember({"f32", "bf16", "q8", "q4"}))
      ->capture_default_str();
  command->add_option("--tokens", flags->tokens, "Tokens a run");
  command->add_option("--repeat", flags->repeat, "Runs")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON document");
  AddEngineFlags(*command, flags->engine);
  command->callback([flags, name, subjects, &exit_code] {
    Result<std::vector<Subject>> made = subjects(*flags);
    const Status status = made.ok() ? Measure(*flags, *made) : made.status();
    exit_code = Report(status);
    if (status.ok()) Print(*flags, name, *made);
  });
  return *command;
}

void AddContext(CLI::App& command, BenchFlags& flags) {
  command.add_option("--context", flags.context,
                     "Tokens in the cache at the start (default: what leaves room for --tokens, up "
                     "to 4096 in all)");
}

void AddSequences(CLI::App& command, BenchFlags& flags) {
  command.add_option("--sequences", flags.sequences, "Sequences decoded together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}

void AddModelBenches(CLI::App& bench, int& exit_code) {
  const auto alone = [](const std::string& name) {
    return [name](const BenchFlags& flags) { return Alone(flags, name); };
  };
  auto flags = std::make_shared<BenchFlags>();
  AddContext(AddBenchKind(bench, "decode", "One sequence, one token a step, on a filled cache",
                          flags, alone("decode"), exit_code),
             *flags);

  flags = std::make_shared<BenchFlags>();
  flags->work = Work::kPrefill;
  AddBenchKind(bench, "prefill", "One prompt from an empty cache", flags, alone("prefill"),
               exit_code);

  flags = std::make_shared<BenchFlags>();
  flags->sequences = 16;
  CLI::App& batch = AddBenchKind(bench, "batch", "Many sequences, one token each a step", flags,
                                 alone("batch"), exit_code);
  AddContext(batch, *flags);
  AddSequences(batch, *flags);

  flags = std::make_shared<BenchFlags>();
  CLI::App& windows =
      AddBenchKind(bench, "windows", "Decode with the model's windows and with full ones, in turns",
                   flags, AgainstFullWindows, exit_code);
  AddContext(windows, *flags);
  AddSequences(windows, *flags);

  flags = std::make_shared<BenchFlags>();
  CLI::App& routing =
      AddBenchKind(bench, "routing", "A model with its residual mode and with plain sums, in turns",
                   flags, AgainstAdditive, exit_code);
  AddContext(routing, *flags);
  AddSequences(routing, *flags);
  routing.add_flag_callback(
      "--prefill", [flags] { flags->work = Work::kPrefill; }, "Prefill instead of decode");
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measure a model, the kernels or the machine");
  bench->require_subcommand(1);
  bench->footer(
      "Examples:\n  lookback bench decode demo.safetensors --context 448\n"
      "  lookback bench prefill demo.safetensors --tokens 512 --json\n"
      "  lookback bench batch --shape mhar-350m --weights q8 --sequences 16 --context 1024\n"
      "  lookback bench windows --shape aah-1b --context 4000 --compute fast\n"
      "  lookback bench routing --shape mhar-1b --prefill\n"
      "  lookback bench kernels --k 4096\n  lookback bench cpu");
  AddModelBenches(*bench, exit_code);
  AddKernelBenches(*bench, exit_code);
}

}  // namespace lookback::tools
