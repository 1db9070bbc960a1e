#include "engine/controller/config.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace lookback::controller {
namespace {

constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxChoices = 64;
constexpr double kMaxReal = 1e9;
constexpr std::string_view kChoiceKey = "controller_choice_mode";

template <typename Enum>
using Pair = std::pair<std::string_view, Enum>;

constexpr Pair<HierarchyMode> kHierarchyModes[] = {
    {"adaptive", HierarchyMode::kAdaptive},
    {"freeze_learned_topology", HierarchyMode::kFreezeLearnedTopology},
    {"fixed_random", HierarchyMode::kFixedRandom},
    {"fixed_deterministic", HierarchyMode::kFixedDeterministic},
    {"freeze_after_warmup", HierarchyMode::kFreezeAfterWarmup}};
constexpr Pair<PairwiseMode> kPairwiseModes[] = {{"none", PairwiseMode::kNone},
                                                 {"joint_sibling", PairwiseMode::kJointSibling},
                                                 {"sibling_bias", PairwiseMode::kSiblingBias}};
constexpr Pair<Aggregation> kAggregations[] = {
    {"mean", Aggregation::kMean},
    {"mean_std", Aggregation::kMeanStd},
    {"mean_var", Aggregation::kMeanVar},
    {"mean_global_offset", Aggregation::kMeanGlobalOffset}};
constexpr Pair<Metric> kMetrics[] = {{"cosine", Metric::kCosine},
                                     {"cosine_normdiff", Metric::kCosineNormdiff},
                                     {"l2", Metric::kL2},
                                     {"centered_cosine", Metric::kCenteredCosine}};
constexpr Pair<InputMode> kInputModes[] = {
    {"base", InputMode::kBase},
    {"enriched", InputMode::kEnriched},
    {"contrastive", InputMode::kContrastive},
    {"position_aware", InputMode::kPositionAware},
    {"relative_sibling_mean", InputMode::kRelativeSiblingMean}};
constexpr Pair<Arch> kArchs[] = {{"mlp", Arch::kMlp}, {"deep_mlp", Arch::kDeepMlp}};
constexpr Pair<AdapterRegime> kRegimes[] = {
    {"grouping_off", AdapterRegime::kGroupingOff},
    {"full_adaptive", AdapterRegime::kFullAdaptive},
    {"shallow_freeze", AdapterRegime::kShallowFreeze},
    {"deep_practical_reuse", AdapterRegime::kDeepPracticalReuse}};

struct IntField {
  std::string_view key;
  int64_t NativeConfig::*field;
  int64_t low;
  int64_t high;
};
constexpr IntField kIntFields[] = {
    {"control_dim", &NativeConfig::control_dim, 1, 65536},
    {"joint_hidden_dim", &NativeConfig::joint_hidden_dim, 0, 65536},
    {"control_interval", &NativeConfig::control_interval, 0, kMaxTokens},
    {"max_depth", &NativeConfig::max_depth, 1, 64},
    {"min_group_size", &NativeConfig::min_group_size, 0, 65536},
    {"warmup_steps", &NativeConfig::warmup_steps, 0, INT64_MAX},
    {"post_warmup_ramp_steps", &NativeConfig::post_warmup_ramp_steps, 0, INT64_MAX},
    {"W_min_gpu", &NativeConfig::w_min_gpu, 0, kMaxTokens},
    {"fixed_hierarchy_seed", &NativeConfig::fixed_hierarchy_seed, INT64_MIN, INT64_MAX},
};

struct RealField {
  std::string_view key;
  double NativeConfig::*field;
  double low;
  double high;
};
constexpr RealField kRealFields[] = {
    {"sim_threshold", &NativeConfig::sim_threshold, -kMaxReal, kMaxReal},
    {"super_threshold", &NativeConfig::super_threshold, -kMaxReal, kMaxReal},
    {"ema_alpha", &NativeConfig::ema_alpha, 0.0, 1.0},
    {"resolution_ema_alpha", &NativeConfig::resolution_ema_alpha, 0.0, 1.0},
    {"churn_penalty", &NativeConfig::churn_penalty, -kMaxReal, kMaxReal},
    {"upper_l2_threshold", &NativeConfig::upper_l2_threshold, -kMaxReal, kMaxReal},
    {"cosine_normdiff_scale", &NativeConfig::cosine_normdiff_scale, -kMaxReal, kMaxReal},
    {"controller_logit_scale", &NativeConfig::controller_logit_scale, -kMaxReal, kMaxReal},
    {"pairwise_bias_scale", &NativeConfig::pairwise_bias_scale, -kMaxReal, kMaxReal},
    {"joint_output_scale", &NativeConfig::joint_output_scale, -kMaxReal, kMaxReal},
};

struct BoolField {
  std::string_view key;
  bool NativeConfig::*field;
  std::string_view older;  ///< the key's name in older files, "" if it had none
};
constexpr BoolField kBoolFields[] = {
    {"enabled", &NativeConfig::enabled, ""},
    {"build_hierarchy", &NativeConfig::build_hierarchy, "grouping_enabled"},
    {"apply_window_control", &NativeConfig::apply_window_control, "control_enabled"},
    {"reuse_group_hierarchy", &NativeConfig::reuse_group_hierarchy, ""},
    {"parent_constraint", &NativeConfig::parent_constraint, ""},
};

/// Keys without a field: those that are read otherwise and those that only training heeds.
constexpr std::string_view kOtherKeys[] = {
    "windows",
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
         std::any_of(
             std::begin(kBoolFields), std::end(kBoolFields),
             [&](const BoolField& field) { return field.key == key || field.older == key; }) ||
         std::find(std::begin(kOtherKeys), std::end(kOtherKeys), key) != std::end(kOtherKeys);
}

/// The list of windows under `key`; `out` stays as it is where there is none.
Status ReadWindows(const JsonObject& object, const std::string& key, std::vector<int64_t>& out) {
  const Json* list = object.Find(key);
  if (list == nullptr) return {};
  const std::string where = StrCat(key, " in ", object.where());
  if (!list->is_array() || list->empty() || list->size() > kMaxChoices) {
    return Mismatch(where, DescribeJson(*list),
                    StrCat("a list of 1 to ", kMaxChoices, " windows in tokens"));
  }
  out.clear();
  for (const Json& element : *list) {
    const std::optional<int64_t> tokens = JsonInt(element);
    if (!tokens || *tokens < 1 || *tokens > kMaxTokens) {
      return Mismatch(where, DescribeJson(element),
                      StrCat("windows from 1 to ", kMaxTokens, " tokens"));
    }
    out.push_back(*tokens);
  }
  return {};
}

/// The value under `key` by its name; `out` stays as it is where there is none.
template <typename Enum>
Status ReadMode(const JsonObject& object, const std::string& key, Enum& out) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string text, object.String(key, std::string(NameOf(out))));
  std::string known;
  for (const auto& [name, value] : NamesOf(out)) {
    if (name == text) {
      out = value;
      return {};
    }
    known += known.empty() ? std::string(name) : StrCat(", ", name);
  }
  return Mismatch(StrCat(key, " in ", object.where()), Quoted(text), StrCat("one of ", known));
}

constexpr std::string_view kFixedIndex = "fixed_window_idx_";
constexpr std::string_view kFixedTokens = "fixed_window_";

std::string ChoiceName(const NativeConfig& config) {
  switch (config.controller_choice_mode) {
    case ChoiceMode::kLearned:
      return "learned";
    case ChoiceMode::kOracleAlternating:
      return "oracle_alternating";
    case ChoiceMode::kFixedTokens:
      return StrCat(kFixedTokens, config.fixed_choice);
    case ChoiceMode::kFixedIndex:
      return StrCat(kFixedIndex, config.fixed_choice);
  }
  return {};
}

// The release that is public today takes every name that it does not know for "learned"; the
// fixed_window names come from a revision that it reverted.
Status ReadChoice(const JsonObject& object, const std::string& key, NativeConfig& config) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string mode, object.String(key, ChoiceName(config)));
  if (mode == "learned" || mode == "oracle_alternating") {
    config.controller_choice_mode =
        mode == "learned" ? ChoiceMode::kLearned : ChoiceMode::kOracleAlternating;
    return {};
  }
  std::string_view number = mode;
  std::optional<ChoiceMode> fixed;
  if (number.starts_with(kFixedIndex)) {
    fixed = ChoiceMode::kFixedIndex;
    number.remove_prefix(kFixedIndex.size());
  } else if (number.starts_with(kFixedTokens)) {
    fixed = ChoiceMode::kFixedTokens;
    number.remove_prefix(kFixedTokens.size());
  }
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), config.fixed_choice);
  const bool whole = fixed && error == std::errc() && end == number.data() + number.size();
  if (!whole || (*fixed == ChoiceMode::kFixedTokens && config.fixed_choice < 1)) {
    return Mismatch(StrCat(key, " in ", object.where()), Quoted(mode),
                    "learned, oracle_alternating, fixed_window_TOKENS or fixed_window_idx_INDEX");
  }
  config.controller_choice_mode = *fixed;
  return {};
}

}  // namespace

Names<HierarchyMode> NamesOf(HierarchyMode /*type*/) { return kHierarchyModes; }
Names<PairwiseMode> NamesOf(PairwiseMode /*type*/) { return kPairwiseModes; }
Names<Aggregation> NamesOf(Aggregation /*type*/) { return kAggregations; }
Names<Metric> NamesOf(Metric /*type*/) { return kMetrics; }
Names<InputMode> NamesOf(InputMode /*type*/) { return kInputModes; }
Names<Arch> NamesOf(Arch /*type*/) { return kArchs; }
Names<AdapterRegime> NamesOf(AdapterRegime /*type*/) { return kRegimes; }

Json NativeConfig::ToJson() const {
  Json out = {{"kind", std::string(kNativeKind)}, {"windows", windows}};
  for (const BoolField& row : kBoolFields) out[std::string(row.key)] = this->*row.field;
  for (const IntField& row : kIntFields) out[std::string(row.key)] = this->*row.field;
  for (const RealField& row : kRealFields) out[std::string(row.key)] = this->*row.field;
  out[std::string(kChoiceKey)] = ChoiceName(*this);
  out["hierarchy_ablation_mode"] = std::string(NameOf(hierarchy_ablation_mode));
  out["controller_pairwise_mode"] = std::string(NameOf(controller_pairwise_mode));
  out["group_feature_mode"] = std::string(NameOf(group_feature_mode));
  out["upper_cluster_metric"] = std::string(NameOf(upper_cluster_metric));
  out["controller_input_mode"] = std::string(NameOf(controller_input_mode));
  out["controller_arch"] = std::string(NameOf(controller_arch));
  if (!unknown_keys.empty()) out["unknown_keys"] = unknown_keys;
  return out;
}

Result<NativeConfig> ReadNativeConfig(const JsonObject& object, std::string_view prefix,
                                      const NativeConfig& defaults) {
  NativeConfig config = defaults;
  const auto key = [&](std::string_view name) { return StrCat(prefix, name); };
  for (const BoolField& row : kBoolFields) {
    bool& value = config.*row.field;
    if (!row.older.empty()) {
      LOOKBACK_ASSIGN_OR_RETURN(value, object.Bool(key(row.older), value));
    }
    LOOKBACK_ASSIGN_OR_RETURN(value, object.Bool(key(row.key), value));
  }
  LOOKBACK_RETURN_IF_ERROR(ReadWindows(object, key("windows"), config.windows));
  if (config.windows.empty()) {
    return Mismatch(StrCat(key("windows"), " in ", object.where()), "nothing",
                    "a list of windows in tokens");
  }
  LOOKBACK_RETURN_IF_ERROR(ReadChoice(object, key(kChoiceKey), config));
  LOOKBACK_RETURN_IF_ERROR(
      ReadMode(object, key("hierarchy_ablation_mode"), config.hierarchy_ablation_mode));
  LOOKBACK_RETURN_IF_ERROR(
      ReadMode(object, key("controller_pairwise_mode"), config.controller_pairwise_mode));
  LOOKBACK_RETURN_IF_ERROR(ReadMode(object, key("group_feature_mode"), config.group_feature_mode));
  LOOKBACK_RETURN_IF_ERROR(
      ReadMode(object, key("upper_cluster_metric"), config.upper_cluster_metric));
  LOOKBACK_RETURN_IF_ERROR(
      ReadMode(object, key("controller_input_mode"), config.controller_input_mode));
  LOOKBACK_RETURN_IF_ERROR(ReadMode(object, key("controller_arch"), config.controller_arch));
  for (const IntField& row : kIntFields) {
    LOOKBACK_ASSIGN_OR_RETURN(config.*row.field,
                              object.Int(key(row.key), row.low, row.high, config.*row.field));
  }
  for (const RealField& row : kRealFields) {
    LOOKBACK_ASSIGN_OR_RETURN(config.*row.field,
                              object.Number(key(row.key), row.low, row.high, config.*row.field));
  }
  if (!prefix.empty()) {
    for (const auto& [name, value] : object.json().items()) {
      if (name.starts_with(prefix) && !IsKnownKey(std::string_view(name).substr(prefix.size()))) {
        config.unknown_keys.push_back(name);
      }
    }
  }
  return config;
}

Status CheckRunnable(const NativeConfig& config, std::string_view prefix,
                     const std::string& where) {
  if (!config.unknown_keys.empty()) {
    return Mismatch(StrCat("settings of the controller in ", where),
                    StrCat("the unknown ", config.unknown_keys.front()),
                    "only those whose effect on its choices is known");
  }
  if (!config.enabled || config.build_hierarchy) return {};
  const auto without_groups = [&](std::string_view key, std::string_view value,
                                  std::string_view neutral) {
    return Mismatch(
        StrCat(prefix, key, " in ", where), value,
        StrCat(neutral, ", as ", prefix, "build_hierarchy is false: there are no groups to keep"));
  };
  if (config.reuse_group_hierarchy) {
    return without_groups("reuse_group_hierarchy", "true", "false");
  }
  if (config.hierarchy_ablation_mode != HierarchyMode::kAdaptive) {
    return without_groups("hierarchy_ablation_mode", NameOf(config.hierarchy_ablation_mode),
                          "adaptive");
  }
  return {};
}

Result<AdapterConfig> ReadAdapterConfig(const JsonObject& object) {
  AdapterConfig config;
  if (object.Find("regime") == nullptr) {
    return Mismatch(StrCat("regime in ", object.where()), "nothing", "the adapter's regime");
  }
  LOOKBACK_RETURN_IF_ERROR(ReadMode(object, "regime", config.regime));
  LOOKBACK_RETURN_IF_ERROR(ReadWindows(object, "window_choices", config.windows));
  LOOKBACK_ASSIGN_OR_RETURN(config.control_interval,
                            object.Int("control_interval", 1, kMaxTokens, config.control_interval));
  LOOKBACK_ASSIGN_OR_RETURN(config.seq_len, object.Int("seq_len", 0, kMaxTokens, 0));
  return config;
}

Result<Config> ReadConfig(const SafetensorsFile& file) {
  const std::string where = StrCat("metadata controller of ", file.path());
  const auto found = file.metadata().find("controller");
  if (found == file.metadata().end()) {
    return Status(StatusCode::kFailedPrecondition,
                  StrCat(where,
                         ": got nothing, expected the settings of a controller (a file that "
                         "`lookback convert` makes from an AAH checkpoint or adapter)"));
  }
  LOOKBACK_ASSIGN_OR_RETURN(const Json json, ParseJson(found->second, where));
  return ParseConfig(json, where);
}

Result<Config> ParseConfig(const Json& json, const std::string& where) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(json, where));
  // Older converters carried an adapter's own words and nothing else.
  LOOKBACK_ASSIGN_OR_RETURN(const std::string kind,
                            object.String("kind", std::string(kAdapterKind)));
  if (kind == kAdapterKind) {
    LOOKBACK_ASSIGN_OR_RETURN(AdapterConfig config, ReadAdapterConfig(object));
    return Config(std::move(config));
  }
  if (kind != kNativeKind) {
    return Mismatch(StrCat("kind in ", where), Quoted(kind),
                    StrCat(kNativeKind, " or ", kAdapterKind));
  }
  LOOKBACK_ASSIGN_OR_RETURN(NativeConfig config, ReadNativeConfig(object, "", {}));
  if (const Json* unknown = object.Find("unknown_keys"); unknown != nullptr) {
    config.unknown_keys.push_back(DescribeJson(*unknown));
  }
  LOOKBACK_RETURN_IF_ERROR(CheckRunnable(config, "", where));
  return Config(std::move(config));
}

Result<std::vector<int64_t>> ParseWindowChoices(std::string_view text, std::string_view what) {
  std::vector<int64_t> choices;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data();; ++at) {
    int64_t tokens = 0;
    const auto [next, error] = std::from_chars(at, end, tokens);
    if (error != std::errc() || tokens < 1 || tokens > kMaxTokens ||
        choices.size() == kMaxChoices) {
      break;
    }
    choices.push_back(tokens);
    if (next == end) return choices;
    if (*next != ',') break;
    at = next;
  }
  return Mismatch(what, Quoted(text),
                  StrCat("1 to ", kMaxChoices,
                         " windows in tokens with commas between them, like "
                         "512,1024,2048,4096"));
}

}  // namespace lookback::controller
