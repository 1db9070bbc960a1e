#include "tools/convert/aah_config.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "engine/json.h"
#include "engine/sha256.h"
#include "tools/convert/yaml_reader.h"

namespace lookback::tools {

namespace {

constexpr std::string_view kPrefix = "aah_v3_";
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxChoices = 64;
constexpr int64_t kMaxSidecarBytes = int64_t{1} << 20;
constexpr double kMaxReal = 1e9;

template <typename Enum>
using Names = std::initializer_list<std::pair<std::string_view, Enum>>;

/// One of `names`; absent = the first.
template <typename Enum>
Status ReadMode(const JsonObject& model, std::string_view key, Names<Enum> names, Enum& out) {
  const std::string full_key = StrCat(kPrefix, key);
  LOOKBACK_ASSIGN_OR_RETURN(const std::string text,
                            model.String(full_key, std::string(names.begin()->first)));
  std::string known;
  for (const auto& [name, value] : names) {
    if (name == text) {
      out = value;
      return {};
    }
    known += known.empty() ? std::string(name) : StrCat(", ", name);
  }
  return Mismatch(StrCat(full_key, " in ", model.where()), Quoted(text), StrCat("one of ", known));
}

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

Status ReadWindows(const JsonObject& model, AahRun& run) {
  run.windows = {64, 128, 256, run.seq_len};
  const Json* list = model.Find("aah_v3_windows");
  if (list == nullptr) return {};
  const std::string where = StrCat("aah_v3_windows in ", model.where());
  if (!list->is_array() || list->empty() || list->size() > kMaxChoices) {
    return Mismatch(where, DescribeJson(*list),
                    StrCat("a list of 1 to ", kMaxChoices, " windows in tokens"));
  }
  run.windows.clear();
  for (const Json& element : *list) {
    const std::optional<int64_t> tokens = JsonInt(element);
    if (!tokens || *tokens < 1 || *tokens > kMaxTokens) {
      return Mismatch(where, DescribeJson(element),
                      StrCat("windows from 1 to ", kMaxTokens, " tokens"));
    }
    run.windows.push_back(*tokens);
  }
  return {};
}

Status ReadChoice(const JsonObject& model, AahRun& run) {
  constexpr std::string_view kKey = "aah_v3_controller_choice_mode";
  constexpr std::string_view kIndex = "fixed_window_idx_";
  constexpr std::string_view kTokens = "fixed_window_";
  LOOKBACK_ASSIGN_OR_RETURN(const std::string mode, model.String(kKey, "learned"));
  std::string_view number = mode;
  if (mode == "learned") {
    run.controller_choice_mode = AahChoice::kLearned;
    return {};
  }
  if (mode == "oracle_alternating") {
    run.controller_choice_mode = AahChoice::kOracleAlternating;
    return {};
  }
  if (number.starts_with(kIndex)) {
    run.controller_choice_mode = AahChoice::kFixedIndex;
    number.remove_prefix(kIndex.size());
  } else if (number.starts_with(kTokens)) {
    run.controller_choice_mode = AahChoice::kFixedTokens;
    number.remove_prefix(kTokens.size());
  }
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), run.fixed_choice);
  const bool whole = error == std::errc() && end == number.data() + number.size();
  if (whole && run.controller_choice_mode == AahChoice::kFixedIndex) return {};
  if (whole && run.controller_choice_mode == AahChoice::kFixedTokens && run.fixed_choice >= 1) {
    return {};
  }
  return Mismatch(StrCat(kKey, " in ", model.where()), Quoted(mode),
                  "learned, oracle_alternating, fixed_window_TOKENS or fixed_window_idx_INDEX");
}

Status ReadModes(const JsonObject& model, AahRun& run) {
  LOOKBACK_RETURN_IF_ERROR(ReadChoice(model, run));
  LOOKBACK_RETURN_IF_ERROR(
      ReadMode<AahHierarchy>(model, "hierarchy_ablation_mode",
                             {{"adaptive", AahHierarchy::kAdaptive},
                              {"freeze_learned_topology", AahHierarchy::kFreezeLearnedTopology},
                              {"fixed_random", AahHierarchy::kFixedRandom},
                              {"fixed_deterministic", AahHierarchy::kFixedDeterministic},
                              {"freeze_after_warmup", AahHierarchy::kFreezeAfterWarmup}},
                             run.hierarchy_ablation_mode));
  LOOKBACK_RETURN_IF_ERROR(ReadMode<AahPairwise>(model, "controller_pairwise_mode",
                                                 {{"none", AahPairwise::kNone},
                                                  {"joint_sibling", AahPairwise::kJointSibling},
                                                  {"sibling_bias", AahPairwise::kSiblingBias}},
                                                 run.controller_pairwise_mode));
  LOOKBACK_RETURN_IF_ERROR(
      ReadMode<AahAggregation>(model, "group_feature_mode",
                               {{"mean", AahAggregation::kMean},
                                {"mean_std", AahAggregation::kMeanStd},
                                {"mean_var", AahAggregation::kMeanVar},
                                {"mean_global_offset", AahAggregation::kMeanGlobalOffset}},
                               run.group_feature_mode));
  LOOKBACK_RETURN_IF_ERROR(ReadMode<AahMetric>(model, "upper_cluster_metric",
                                               {{"cosine", AahMetric::kCosine},
                                                {"cosine_normdiff", AahMetric::kCosineNormdiff},
                                                {"l2", AahMetric::kL2},
                                                {"centered_cosine", AahMetric::kCenteredCosine}},
                                               run.upper_cluster_metric));
  LOOKBACK_RETURN_IF_ERROR(
      ReadMode<AahInput>(model, "controller_input_mode",
                         {{"base", AahInput::kBase},
                          {"enriched", AahInput::kEnriched},
                          {"contrastive", AahInput::kContrastive},
                          {"position_aware", AahInput::kPositionAware},
                          {"relative_sibling_mean", AahInput::kRelativeSiblingMean}},
                         run.controller_input_mode));
  return ReadMode<AahArch>(model, "controller_arch",
                           {{"mlp", AahArch::kMlp}, {"deep_mlp", AahArch::kDeepMlp}},
                           run.controller_arch);
}

/// The current key, else the older one, else true.
Status ReadEitherFlag(const JsonObject& model, std::string_view key, std::string_view older,
                      bool& out) {
  LOOKBACK_ASSIGN_OR_RETURN(out, model.Bool(StrCat(kPrefix, older), true));
  LOOKBACK_ASSIGN_OR_RETURN(out, model.Bool(StrCat(kPrefix, key), out));
  return {};
}

struct IntField {
  std::string_view key;
  int64_t AahRun::*field;
  int64_t low;
  int64_t high;
};
constexpr IntField kIntFields[] = {
    {"control_dim", &AahRun::control_dim, 1, 65536},
    {"joint_hidden_dim", &AahRun::joint_hidden_dim, 0, 65536},
    {"control_interval", &AahRun::control_interval, 0, kMaxTokens},
    {"max_depth", &AahRun::max_depth, 1, 64},
    {"min_group_size", &AahRun::min_group_size, 0, 65536},
    {"warmup_steps", &AahRun::warmup_steps, 0, INT64_MAX},
    {"post_warmup_ramp_steps", &AahRun::post_warmup_ramp_steps, 0, INT64_MAX},
    {"W_min_gpu", &AahRun::w_min_gpu, 0, kMaxTokens},
    {"fixed_hierarchy_seed", &AahRun::fixed_hierarchy_seed, INT64_MIN, INT64_MAX},
};

struct RealField {
  std::string_view key;
  double AahRun::*field;
  double low;
  double high;
};
constexpr RealField kRealFields[] = {
    {"sim_threshold", &AahRun::sim_threshold, -kMaxReal, kMaxReal},
    {"super_threshold", &AahRun::super_threshold, -kMaxReal, kMaxReal},
    {"ema_alpha", &AahRun::ema_alpha, 0.0, 1.0},
    {"resolution_ema_alpha", &AahRun::resolution_ema_alpha, 0.0, 1.0},
    {"churn_penalty", &AahRun::churn_penalty, -kMaxReal, kMaxReal},
    {"upper_l2_threshold", &AahRun::upper_l2_threshold, -kMaxReal, kMaxReal},
    {"cosine_normdiff_scale", &AahRun::cosine_normdiff_scale, -kMaxReal, kMaxReal},
    {"controller_logit_scale", &AahRun::controller_logit_scale, -kMaxReal, kMaxReal},
    {"pairwise_bias_scale", &AahRun::pairwise_bias_scale, -kMaxReal, kMaxReal},
    {"joint_output_scale", &AahRun::joint_output_scale, -kMaxReal, kMaxReal},
};

/// Keys without a field: those that are read elsewhere and those that only training heeds.
constexpr std::string_view kOtherKeys[] = {
    "enabled",
    "windows",
    "build_hierarchy",
    "grouping_enabled",
    "apply_window_control",
    "control_enabled",
    "reuse_group_hierarchy",
    "parent_constraint",
    "hierarchy_ablation_mode",
    "controller_choice_mode",
    "controller_pairwise_mode",
    "group_feature_mode",
    "upper_cluster_metric",
    "controller_input_mode",
    "controller_arch",
    "controller_rng_reference_dim",
    "diagnostic_detail",
    "resolution_collapse_min_frac",
    "resolution_collapse_max_frac",
};

bool IsKnownKey(std::string_view key) {
  const auto same = [&](const auto& field) { return field.key == key; };
  return std::any_of(std::begin(kIntFields), std::end(kIntFields), same) ||
         std::any_of(std::begin(kRealFields), std::end(kRealFields), same) ||
         std::find(std::begin(kOtherKeys), std::end(kOtherKeys), key) != std::end(kOtherKeys);
}

Status ReadController(const JsonObject& model, AahRun& run) {
  LOOKBACK_ASSIGN_OR_RETURN(run.enabled, model.Bool("aah_v3_enabled", false));
  LOOKBACK_RETURN_IF_ERROR(ReadWindows(model, run));
  LOOKBACK_RETURN_IF_ERROR(
      ReadEitherFlag(model, "build_hierarchy", "grouping_enabled", run.build_hierarchy));
  LOOKBACK_RETURN_IF_ERROR(
      ReadEitherFlag(model, "apply_window_control", "control_enabled", run.apply_window_control));
  LOOKBACK_ASSIGN_OR_RETURN(run.reuse_group_hierarchy,
                            model.Bool("aah_v3_reuse_group_hierarchy", false));
  LOOKBACK_ASSIGN_OR_RETURN(run.parent_constraint, model.Bool("aah_v3_parent_constraint", true));
  LOOKBACK_RETURN_IF_ERROR(ReadModes(model, run));
  if (run.seed) run.fixed_hierarchy_seed = *run.seed;
  for (const IntField& field : kIntFields) {
    LOOKBACK_ASSIGN_OR_RETURN(run.*field.field, model.Int(StrCat(kPrefix, field.key), field.low,
                                                          field.high, run.*field.field));
  }
  for (const RealField& field : kRealFields) {
    LOOKBACK_ASSIGN_OR_RETURN(run.*field.field, model.Number(StrCat(kPrefix, field.key), field.low,
                                                             field.high, run.*field.field));
  }
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
    for (const auto& [key, value] : model->items()) {
      if (!key.starts_with(kPrefix) || IsKnownKey(std::string_view(key).substr(kPrefix.size()))) {
        continue;
      }
      run.unknown_keys.push_back(key);
    }
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
