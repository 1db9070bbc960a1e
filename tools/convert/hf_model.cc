#include <algorithm>

#include "tools/convert/hf_config.h"
#include "tools/convert/hf_source.h"
#include "tools/convert/source_model.h"

namespace lookback::tools {

namespace {

/// True where a value anywhere under a key that contains `mixed_partition` says yes.
bool SaysMixedPartition(const Json& json, bool under_key) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      const bool named = key.find("mixed_partition") != std::string::npos;
      if (SaysMixedPartition(value, under_key || named)) return true;
    }
    return false;
  }
  if (json.is_array()) {
    return std::any_of(json.begin(), json.end(),
                       [&](const Json& element) { return SaysMixedPartition(element, under_key); });
  }
  if (!under_key || json.is_null()) return false;
  if (json.is_boolean()) return *json.get_ptr<const bool*>();
  if (json.is_string()) return !json.get_ptr<const std::string*>()->empty();
  return JsonNumber(json).value_or(0.0) != 0.0;
}

Status WarnOfMixedPartition(const std::string& folder, std::vector<std::string>& warnings) {
  const std::string path = folder + "/training_manifest.json";
  if (!FileExists(path)) return {};
  LOOKBACK_ASSIGN_OR_RETURN(const Json manifest, ReadJsonFile(path));
  if (SaysMixedPartition(manifest, false)) {
    warnings.push_back(StrCat(path,
                              " names mixed_partition: a network trained that way has no "
                              "other trace and is not what this file will compute"));
  }
  return {};
}

}  // namespace

Result<SourceModel> ReadHfModel(const ConvertOptions& options) {
  SourceModel source;
  const std::string config_path = options.source + "/config.json";
  LOOKBACK_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(config_path));
  LOOKBACK_ASSIGN_OR_RETURN(HfModel model, ReadHfConfig(config, config_path));
  source.inputs.push_back(config_path);
  LOOKBACK_ASSIGN_OR_RETURN(source.generation,
                            ReadHfGeneration(options.source, model.config.vocab_size));
  const std::string& tokenizer_folder =
      options.tokenizer_folder.empty() ? options.source : options.tokenizer_folder;
  LOOKBACK_ASSIGN_OR_RETURN(source.tokenizer,
                            ReadHfTokenizer(tokenizer_folder, model, source.generation));
  LOOKBACK_RETURN_IF_ERROR(WarnOfMixedPartition(options.source, source.warnings));
  LOOKBACK_ASSIGN_OR_RETURN(source.weights, OpenHfWeights(options.source));
  source.model_type = std::move(model.model_type);
  source.windows_source = model.sliding ? model.config.windows.source() : "";
  source.config = std::move(model.config);
  source.csv = {.layers = source.config.layers, .heads = source.config.heads};
  return source;
}

}  // namespace lookback::tools
