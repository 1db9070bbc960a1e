// `lookback verify`: a file's own golden, or expected results from elsewhere, against this machine.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "engine/golden.h"
#include "tools/commands.h"
#include "tools/engine_flags.h"
#include "tools/expected.h"

namespace lookback::tools {
namespace {

// Over the range of the expected logits. Other kernels sum in another order: exact arithmetic stays
// well below the first; a bf16 cache moves logits by up to a few thousandths, quantized activations
// those of trained models by up to a few hundredths.
constexpr double kExactTolerance = 1e-4;
constexpr double kFastTolerance = 2e-2;
constexpr double kIntegerTolerance = 1e-1;

struct VerifyFlags {
  std::string file;
  std::string expected;
  double tolerance = 0.0;
  bool json = false;
  EngineFlags engine;
};

/// The outcome of one comparison.
struct Check {
  std::string name;
  bool passed;
  Json details;      ///< what a program reads
  std::string text;  ///< the same for a person
};

Check LogitCheck(const std::string& name, const GoldenError& error, double tolerance) {
  const double limit = tolerance * error.range;
  return {name, error.Within(tolerance),
          Json{{"worst_error", error.worst},
               {"position", error.position},
               {"id", error.id},
               {"limit", limit}},
          StrCat("worst error ", error.worst, " at position ", error.position, ", id ", error.id,
                 "; limit ", limit)};
}

Result<Check> CheckLogits(const std::shared_ptr<const LoadedModel>& model,
                          const ExpectedLogits& expected, EngineOptions options, double tolerance) {
  options.max_context = std::max(options.max_context, std::ssize(expected.ids));
  LOOKBACK_ASSIGN_OR_RETURN(const auto evaluator, Evaluator::Create(model, options));
  GoldenError error;
  size_t next = 0;
  const size_t width = expected.logits.size() / expected.positions.size();
  LOOKBACK_RETURN_IF_ERROR(
      evaluator->Run(expected.ids, [&](int64_t position, std::span<const float> logits) -> Status {
        if (next == expected.positions.size() || position != expected.positions[next]) return {};
        for (size_t i = 0; i < width; ++i) {
          const int64_t id =
              expected.columns.empty() ? static_cast<int64_t>(i) : expected.columns[i];
          error.Add(position, id, logits[static_cast<size_t>(id)],
                    expected.logits[next * width + i]);
        }
        ++next;
        return {};
      }));
  return LogitCheck(expected.name, error, tolerance);
}

Result<Check> CheckGreedy(const std::shared_ptr<const LoadedModel>& model,
                          const ExpectedGreedy& expected, EngineOptions options) {
  const auto total = std::ssize(expected.prompt) + std::ssize(expected.ids);
  options.max_context = std::max(options.max_context, total);
  options.limits.max_requests = 1;
  LOOKBACK_ASSIGN_OR_RETURN(const auto engine, Engine::Create(model, options));
  GenerateRequest request;
  request.prompt_ids = expected.prompt;
  request.temperature = 0.0;
  request.repetition_penalty = 1.0;
  request.max_new_tokens = std::ssize(expected.ids);
  request.ignore_eos = true;
  LOOKBACK_ASSIGN_OR_RETURN(GenerateParams params, engine->Resolve(std::move(request)));
  LOOKBACK_ASSIGN_OR_RETURN(const auto stream, engine->Submit(std::move(params)));
  StreamBatch batch;
  size_t equal = 0;
  bool all = true;
  do {
    stream->WaitAndTake(batch);
    for (const TokenEvent& token : batch.tokens) {
      all = all && token.id == expected.ids[equal];
      if (all) ++equal;
    }
  } while (!batch.done);
  LOOKBACK_RETURN_IF_ERROR(batch.error);
  const auto count = std::ssize(expected.ids);
  return Check{expected.name, all, Json{{"equal_ids", equal}, {"ids", count}},
               StrCat(equal, " of ", count, " greedy ids equal")};
}

bool HasQuantizedWeights(const Checkpoint& checkpoint) {
  const auto& entries = checkpoint.file().entries();
  return std::any_of(entries.begin(), entries.end(),
                     [](const auto& entry) { return entry.first.ends_with(".weight.scale"); });
}

double UsualTolerance(const Checkpoint& checkpoint, const EngineOptions& options) {
  if (options.compute == ComputeMode::kFast) {
    return HasQuantizedWeights(checkpoint) ? kIntegerTolerance : kFastTolerance;
  }
  return options.kv == KvType::kBF16 ? kFastTolerance : kExactTolerance;
}

Result<std::vector<Check>> RunChecks(const VerifyFlags& flags) {
  LOOKBACK_ASSIGN_OR_RETURN(const auto model, LoadedModel::Open(flags.file));
  const EngineOptions options = flags.engine.Resolve();
  const double tolerance =
      flags.tolerance > 0.0 ? flags.tolerance : UsualTolerance(*model->checkpoint, options);
  std::vector<Check> checks;
  if (flags.expected.empty()) {
    LOOKBACK_ASSIGN_OR_RETURN(const Golden golden, ReadGolden(*model->checkpoint));
    LOOKBACK_ASSIGN_OR_RETURN(const GoldenError error, CheckGolden(model, golden, options));
    checks.push_back(LogitCheck("golden", error, tolerance));
    return checks;
  }
  LOOKBACK_ASSIGN_OR_RETURN(const Expected expected,
                            ReadExpected(flags.expected, model->config().vocab_size));
  for (const ExpectedLogits& logits : expected.logits) {
    LOOKBACK_ASSIGN_OR_RETURN(Check check, CheckLogits(model, logits, options, tolerance));
    checks.push_back(std::move(check));
  }
  for (const ExpectedGreedy& greedy : expected.greedy) {
    LOOKBACK_ASSIGN_OR_RETURN(Check check, CheckGreedy(model, greedy, options));
    checks.push_back(std::move(check));
  }
  return checks;
}

int RunVerify(const VerifyFlags& flags) {
  const Result<std::vector<Check>> checks = RunChecks(flags);
  if (!checks.ok()) return Report(checks.status());
  bool passed = true;
  Json list = Json::array();
  for (const Check& check : *checks) {
    passed = passed && check.passed;
    if (!flags.json) {
      std::printf("%-8s %s: %s\n", check.passed ? "ok" : "MISMATCH", check.name.c_str(),
                  check.text.c_str());
    }
    Json entry = check.details;
    entry["name"] = check.name;
    entry["passed"] = check.passed;
    list.push_back(std::move(entry));
  }
  if (flags.json) {
    std::printf("%s\n", DumpJson(Json{{"passed", passed}, {"checks", std::move(list)}}, 1).c_str());
  }
  return passed ? 0 : 1;
}

}  // namespace

void AddVerify(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* command = app.add_subcommand(
      "verify", "Check a file against the logits that it carries, or against expected results");
  command->add_option("FILE", flags->file, "Converted checkpoint")->required();
  command->add_option(
      "--expected", flags->expected,
      "safetensors file with expected results: input_ids + logits (+ "
      "logit_positions), prompt + static_logits (+ static_positions), greedy_prompt "
      "+ greedy, NAME.input_ids + NAME.logits / NAME.top_ids and NAME.top_logits / "
      "NAME.greedy_ids, prompt_N_ids + greedy_N_ids");
  command
      ->add_option("--tolerance", flags->tolerance,
                   "Largest error allowed, over the range of the expected logits (default 1e-4; "
                   "2e-2 with --compute fast or --kv bf16; 1e-1 with --compute fast where "
                   "weights are quantized)")
      ->check(CLI::Range(1e-9, 1.0));
  command->add_flag("--json", flags->json, "Print one JSON document");
  AddEngineFlags(*command, flags->engine);
  command->footer(
      "Exit code 0 if all agrees, 1 if something does not.\n"
      "Examples:\n"
      "  lookback verify demo.safetensors\n"
      "  lookback verify demo.safetensors --expected tools/demo/expected.safetensors");
  command->callback([flags, &exit_code] { exit_code = RunVerify(*flags); });
}

}  // namespace lookback::tools
