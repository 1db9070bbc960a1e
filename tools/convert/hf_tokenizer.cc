#include "tools/convert/hf_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

namespace lookback::tools {

namespace {

constexpr int64_t kMaxModelBytes = int64_t{256} << 20;
constexpr int64_t kMaxTemplateBytes = int64_t{1} << 20;

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// The text of a special token: a string, or an object with `content`.
Result<std::string> ReadTokenText(const JsonObject& config, std::string_view key) {
  const Json* value = config.Find(key);
  if (value == nullptr) return std::string();
  if (value->is_object()) {
    LOOKBACK_ASSIGN_OR_RETURN(const JsonObject token,
                              JsonObject::From(*value, StrCat(key, " in ", config.where())));
    return token.String("content");
  }
  return config.String(key);
}

/// The id that `added_tokens_decoder` gives to the special token under `key`, if it does.
Result<std::optional<int32_t>> ReadTokenId(const JsonObject& config, std::string_view key,
                                           int64_t vocab_size) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string text, ReadTokenText(config, key));
  const Json* added = config.Find("added_tokens_decoder");
  if (text.empty() || added == nullptr) return std::optional<int32_t>();
  const std::string where = StrCat("added_tokens_decoder in ", config.where());
  if (!added->is_object()) return Mismatch(where, DescribeJson(*added), "a JSON object");
  for (const auto& [id_text, value] : added->items()) {
    LOOKBACK_ASSIGN_OR_RETURN(const JsonObject token,
                              JsonObject::From(value, StrCat(Quoted(id_text), " of ", where)));
    LOOKBACK_ASSIGN_OR_RETURN(const std::string content, token.String("content"));
    if (content != text) continue;
    int32_t id = -1;
    const char* end = id_text.data() + id_text.size();
    const auto [stop, error] = std::from_chars(id_text.data(), end, id);
    if (error != std::errc() || stop != end || id < 0 || id >= vocab_size) {
      return Mismatch(where, Quoted(id_text), StrCat("an id from 0 to ", vocab_size - 1));
    }
    return std::optional<int32_t>(id);
  }
  return std::optional<int32_t>();
}

/// A template, or the one named "default" of a list of named ones.
Result<std::string> ReadChatTemplate(const JsonObject& config) {
  const Json* value = config.Find("chat_template");
  if (value == nullptr || !value->is_array()) return config.String("chat_template", "");
  for (const Json& element : *value) {
    LOOKBACK_ASSIGN_OR_RETURN(
        const JsonObject named,
        JsonObject::From(element, StrCat("chat_template in ", config.where())));
    LOOKBACK_ASSIGN_OR_RETURN(const std::string name, named.String("name"));
    if (name == "default") return named.String("template");
  }
  return std::string();
}

Status ReadTokenizerConfig(const std::string& path, int64_t vocab_size, TokenizerInfo& info) {
  LOOKBACK_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject config, JsonObject::From(json, path));
  LOOKBACK_ASSIGN_OR_RETURN(info.add_bos, config.Bool("add_bos_token", info.add_bos));
  LOOKBACK_ASSIGN_OR_RETURN(info.add_eos, config.Bool("add_eos_token", info.add_eos));
  LOOKBACK_ASSIGN_OR_RETURN(info.bos_id, ReadTokenId(config, "bos_token", vocab_size));
  LOOKBACK_ASSIGN_OR_RETURN(info.eos_id, ReadTokenId(config, "eos_token", vocab_size));
  LOOKBACK_ASSIGN_OR_RETURN(info.chat_template, ReadChatTemplate(config));
  return {};
}

void AddStop(std::vector<int32_t>& stops, int32_t id) {
  if (std::find(stops.begin(), stops.end(), id) == stops.end()) stops.push_back(id);
}

}  // namespace

Result<HfGeneration> ReadHfGeneration(const std::string& folder, int64_t vocab_size) {
  HfGeneration out;
  const std::string path = folder + "/generation_config.json";
  if (!Exists(path)) return out;
  LOOKBACK_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject config, JsonObject::From(json, path));
  LOOKBACK_ASSIGN_OR_RETURN(out.defaults, GenerationDefaults::FromJson(json, path));
  LOOKBACK_ASSIGN_OR_RETURN(const std::vector<int32_t> bos,
                            ReadIds(config, "bos_token_id", vocab_size, false));
  if (!bos.empty()) out.bos_id = bos.front();
  LOOKBACK_ASSIGN_OR_RETURN(out.eos_ids, ReadIds(config, "eos_token_id", vocab_size, true));
  out.inputs.push_back(path);
  return out;
}

Result<HfTokenizer> ReadHfTokenizer(const std::string& folder, const HfModel& model,
                                    const HfGeneration& generation) {
  HfTokenizer out;
  TokenizerInfo& info = out.info;
  const std::string model_path = folder + "/tokenizer.model";
  if (Exists(model_path)) {
    LOOKBACK_ASSIGN_OR_RETURN(out.bytes, ReadTextFile(model_path, kMaxModelBytes));
    if (out.bytes.empty()) return Mismatch(model_path, "0 bytes", "a SentencePiece model");
    out.inputs.push_back(model_path);
    info.kind = "sentencepiece";
    info.add_bos = true;  // LlamaTokenizer's default
    const std::string config_path = folder + "/tokenizer_config.json";
    if (Exists(config_path)) {
      LOOKBACK_RETURN_IF_ERROR(ReadTokenizerConfig(config_path, model.config.vocab_size, info));
      out.inputs.push_back(config_path);
    }
    const std::string template_path = folder + "/chat_template.jinja";
    if (Exists(template_path)) {
      LOOKBACK_ASSIGN_OR_RETURN(info.chat_template, ReadTextFile(template_path, kMaxTemplateBytes));
      out.inputs.push_back(template_path);
    }
  } else {
    out.warning = StrCat(Exists(folder + "/tokenizer.json")
                             ? "this version cannot carry tokenizer.json yet"
                             : StrCat("there is no tokenizer.model in ", folder),
                         ": the file will serve token ids only");
  }
  const std::vector<int32_t>& eos_ids =
      generation.eos_ids.empty() ? model.eos_ids : generation.eos_ids;
  if (!info.bos_id) info.bos_id = generation.bos_id ? generation.bos_id : model.bos_id;
  if (!info.eos_id && !eos_ids.empty()) info.eos_id = eos_ids.front();
  if (info.eos_id) AddStop(info.stop_ids, *info.eos_id);
  for (const int32_t id : eos_ids) AddStop(info.stop_ids, id);
  if (info.add_bos && !info.bos_id) {
    return Mismatch(StrCat("bos_token in ", folder), "no id", "one, as add_bos_token is true");
  }
  if (info.add_eos && !info.eos_id) {
    return Mismatch(StrCat("eos_token in ", folder), "no id", "one, as add_eos_token is true");
  }
  return out;
}

}  // namespace lookback::tools
