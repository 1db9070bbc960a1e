#include "tools/convert/aah_config.h"

#include <algorithm>
#include <utility>

#include "engine/json.h"
#include "engine/sha256.h"
#include "tools/convert/yaml_reader.h"

namespace lookback::tools {

namespace {

constexpr std::string_view kPrefix = "aah_v3_";
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxSidecarBytes = int64_t{1} << 20;

Status ReadBlocks(const JsonObject& root, AahRun& run) {
  static const Json kEmpty = Json::object();
  const auto block = [&](std::string_view name, bool required) -> Result<JsonObject> {
    const Json* value = root.Find(name);
    if (value == nullptr && !required) value = &kEmpty;
    if (value == nullptr) {
      return Mismatch(StrCat(name, " in ", run.path), "nothing", "a block of keys");
    }
    return JsonObject::From(*value, StrCat(name, " of ", run.path));
  };
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject experiment, block("experiment", false));
  LOOKBACK_ASSIGN_OR_RETURN(run.name, experiment.String("name", ""));
  LOOKBACK_ASSIGN_OR_RETURN(run.variant, experiment.String("variant", ""));
  if (experiment.Find("seed") != nullptr) {
    LOOKBACK_ASSIGN_OR_RETURN(run.seed, experiment.Int("seed", INT64_MIN, INT64_MAX));
  }
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject data, block("data", true));
  LOOKBACK_ASSIGN_OR_RETURN(run.tokenizer, data.String("tokenizer", ""));
  LOOKBACK_ASSIGN_OR_RETURN(run.seq_len, data.Int("seq_len", 1, kMaxSize));
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject model, block("model", true));
  LOOKBACK_ASSIGN_OR_RETURN(run.layers, model.Int("n_layer", 1, 1024));
  LOOKBACK_ASSIGN_OR_RETURN(run.heads, model.Int("n_head", 1, 1024));
  LOOKBACK_ASSIGN_OR_RETURN(run.width, model.Int("n_embd", 1, kMaxSize));
  LOOKBACK_ASSIGN_OR_RETURN(run.ffn, model.Int("n_ff", 1, kMaxSize));
  if (run.width % run.heads == 0) return {};
  return Mismatch(StrCat("n_head in ", model.where()), run.heads,
                  StrCat("a divisor of n_embd ", run.width));
}

/// Runs of the second version have strides beside their windows, which nothing here computes.
Status RefuseVersion2(const Json& model, const std::string& where) {
  const auto enabled = model.find("aah_v2_enabled");
  if (enabled != model.end() && enabled->is_boolean() && !*enabled->get_ptr<const bool*>()) {
    return {};
  }
  for (const auto& [key, value] : model.items()) {
    if (!key.starts_with("aah_v2_")) continue;
    return Mismatch(StrCat(key, " in ", where), DescribeJson(value),
                    "an AAH-v3 run (AAH-v2, windows with strides, is not supported)");
  }
  return {};
}

Status ReadController(const JsonObject& model, AahRun& run) {
  controller::NativeConfig defaults;
  defaults.windows = {64, 128, 256, run.seq_len};
  if (run.seed) defaults.fixed_hierarchy_seed = *run.seed;
  LOOKBACK_ASSIGN_OR_RETURN(static_cast<controller::NativeConfig&>(run),
                            controller::ReadNativeConfig(model, kPrefix, defaults));
  return {};
}

/// First of the choices nearest to `tokens`.
int64_t Nearest(const std::vector<int64_t>& choices, int64_t tokens) {
  // Both positive: the difference cannot overflow.
  return *std::min_element(choices.begin(), choices.end(), [&](int64_t a, int64_t b) {
    return std::max(a, tokens) - std::min(a, tokens) < std::max(b, tokens) - std::min(b, tokens);
  });
}

WindowTable UniformTable(const AahRun& run, int64_t tokens, std::string source) {
  Result<WindowTable> table =
      WindowTable::Uniform(run.layers, run.heads, tokens, 0, std::move(source));
  LOOKBACK_CHECK(table.ok());  // choices and seq_len are checked on reading
  table->set_train_context(run.seq_len);
  return *std::move(table);
}

}  // namespace

Result<AahRun> ParseAahRun(std::string_view text, const std::string& path) {
  AahRun run;
  run.path = path;
  run.config_hash = Sha256Hex(text);
  LOOKBACK_ASSIGN_OR_RETURN(const Json yaml, ParseYaml(text, path));
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::From(yaml, path));
  if (const Json* model = root.Find("model"); model != nullptr && model->is_object()) {
    LOOKBACK_RETURN_IF_ERROR(RefuseVersion2(*model, path));
  }
  LOOKBACK_RETURN_IF_ERROR(ReadBlocks(root, run));
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject model,
                            JsonObject::From(*root.Find("model"), StrCat("model of ", path)));
  LOOKBACK_RETURN_IF_ERROR(ReadController(model, run));
  return run;
}

Result<AahRun> ReadAahRun(const std::string& path) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxYamlBytes));
  return ParseAahRun(text, path);
}

Result<AahSidecar> ReadAahSidecar(const std::string& path, const AahRun& run) {
  LOOKBACK_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path, kMaxSidecarBytes));
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(json, path));
  LOOKBACK_ASSIGN_OR_RETURN(const std::string hash, object.String("config_hash"));
  if (hash != run.config_hash) {
    return Mismatch(StrCat("config_hash in ", path), Quoted(hash),
                    StrCat("that of ", run.path, ", ", run.config_hash));
  }
  AahSidecar sidecar;
  LOOKBACK_ASSIGN_OR_RETURN(sidecar.role, object.String("checkpoint_role"));
  if (sidecar.role != "final" && sidecar.role != "near_end") {
    return Mismatch(StrCat("checkpoint_role in ", path), Quoted(sidecar.role), "final or near_end");
  }
  LOOKBACK_ASSIGN_OR_RETURN(sidecar.run_name, object.String("run_name", ""));
  LOOKBACK_ASSIGN_OR_RETURN(sidecar.variant, object.String("variant", ""));
  LOOKBACK_ASSIGN_OR_RETURN(sidecar.step, object.Int("step", 0, INT64_MAX, 0));
  return sidecar;
}

std::optional<WindowTable> FixedWindows(const AahRun& run, int64_t context) {
  if (run.full_attention()) {
    WindowTable table = WindowTable::Full(run.layers, run.heads);
    table.set_source("the run's config: full attention");
    table.set_train_context(run.seq_len);
    return table;
  }
  const std::vector<int64_t>& choices = run.windows;
  if (!run.apply_window_control) {
    // The hierarchy is built, but nothing chooses: the release takes T where it is a choice.
    const int64_t t = context > 0 ? context : run.seq_len;
    const bool has_t = std::find(choices.begin(), choices.end(), t) != choices.end();
    return UniformTable(run, has_t ? t : *std::min_element(choices.begin(), choices.end()),
                        StrCat("the run's config: window control off, at ", t, " tokens"));
  }
  if (run.controller_choice_mode == AahChoice::kFixedTokens) {
    return UniformTable(run, Nearest(choices, run.fixed_choice),
                        StrCat("the run's config: fixed_window_", run.fixed_choice));
  }
  if (run.controller_choice_mode == AahChoice::kFixedIndex) {
    const auto last = static_cast<int64_t>(choices.size()) - 1;
    const int64_t index = std::clamp<int64_t>(run.fixed_choice, 0, last);
    return UniformTable(run, choices[static_cast<size_t>(index)],
                        StrCat("the run's config: fixed_window_idx_", run.fixed_choice));
  }
  return std::nullopt;
}

}  // namespace lookback::tools
