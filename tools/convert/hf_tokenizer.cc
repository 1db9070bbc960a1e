#include "tools/convert/hf_tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/tokenizer/bpe_tokenizer.h"
#include "engine/tokenizer/sentencepiece_model.h"
#include "engine/tokenizer/tokenizer_files.h"

namespace lookback::tools {

namespace {

constexpr int64_t kMaxTemplateBytes = int64_t{1} << 20;

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

/// The id of the special token under `key`: what added_tokens_decoder says, else the vocabulary of
/// a tokenizer.json.
Result<std::optional<int32_t>> FindTokenId(const JsonObject& config, std::string_view key,
                                           int64_t vocab_size, const HfTokenizer& out) {
  LOOKBACK_ASSIGN_OR_RETURN(
      const std::string text,
      SpecialTokenText(config.Find(key), StrCat(key, " in ", config.where())));
  if (text.empty()) return std::optional<int32_t>();
  LOOKBACK_ASSIGN_OR_RETURN(const std::vector<DecoderToken> tokens, ReadDecoderTokens(config));
  for (const DecoderToken& token : tokens) {
    if (token.content != text) continue;
    if (token.id < vocab_size) return std::optional<int32_t>(token.id);
    return Mismatch(StrCat("added_tokens_decoder in ", config.where()), token.id,
                    StrCat("an id from 0 to ", vocab_size - 1));
  }
  if (out.info.kind != "bpe") return std::optional<int32_t>();
  return out.tokenizer->FindPiece(text);
}

Status ReadTokenizerConfig(const std::string& path, int64_t vocab_size, HfTokenizer& out) {
  TokenizerInfo& info = out.info;
  LOOKBACK_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject config, JsonObject::From(json, path));
  LOOKBACK_ASSIGN_OR_RETURN(const bool add_bos, config.Bool("add_bos_token", info.add_bos));
  LOOKBACK_ASSIGN_OR_RETURN(const bool add_eos, config.Bool("add_eos_token", info.add_eos));
  LOOKBACK_ASSIGN_OR_RETURN(const auto bos_id, FindTokenId(config, "bos_token", vocab_size, out));
  LOOKBACK_ASSIGN_OR_RETURN(const auto eos_id, FindTokenId(config, "eos_token", vocab_size, out));
  // A tokenizer.json says itself what it adds, and with which id.
  if (info.kind == "sentencepiece") {
    info.add_bos = add_bos;
    info.add_eos = add_eos;
  }
  if (!info.bos_id) info.bos_id = bos_id;
  if (!info.eos_id) info.eos_id = eos_id;
  LOOKBACK_ASSIGN_OR_RETURN(info.chat_template, ReadChatTemplate(config));
  return {};
}

/// tokenizer_config.json and chat_template.jinja, where the folder has them.
Status ReadSettings(const std::string& folder, int64_t vocab_size, HfTokenizer& out) {
  const std::string config_path = folder + "/tokenizer_config.json";
  if (FileExists(config_path)) {
    LOOKBACK_RETURN_IF_ERROR(ReadTokenizerConfig(config_path, vocab_size, out));
    // Folders without tokenizer.json have had it read already.
    if (std::find(out.inputs.begin(), out.inputs.end(), config_path) == out.inputs.end()) {
      out.inputs.push_back(config_path);
    }
  }
  const std::string template_path = folder + "/chat_template.jinja";
  if (FileExists(template_path)) {
    LOOKBACK_ASSIGN_OR_RETURN(out.info.chat_template,
                              ReadTextFile(template_path, kMaxTemplateBytes));
    out.inputs.push_back(template_path);
  }
  return {};
}

/// Loads the tokenizer, so that one which is damaged, or that we do not reproduce, is refused now.
Status LoadFiles(TokenizerFiles files, int64_t vocab_size, HfTokenizer& out) {
  int64_t tokens = 0;
  if (files.json) {
    LOOKBACK_ASSIGN_OR_RETURN(out.info, ReadBpeInfo(*files.json, nullptr));
    out.info.stop_ids.clear();
    LOOKBACK_ASSIGN_OR_RETURN(out.tokenizer, BuildBpeTokenizer(*std::move(files.json), {}));
    tokens = out.tokenizer->vocab_size();
  } else {
    out.info.kind = files.kind;
    out.info.add_bos = true;  // LlamaTokenizer's default
    const auto parsed = SentencePieceModel::Parse(files.bytes);
    if (!parsed.ok()) return Status(parsed.status()).WithPrefix(files.path);
    tokens = std::ssize(parsed->pieces);
    auto loaded = MakeSentencePieceTokenizer(files.bytes, {});
    // A build without the library carries a tokenizer.model all the same.
    if (!loaded.ok() && loaded.status().code() != StatusCode::kFailedPrecondition) {
      return std::move(loaded).status().WithPrefix(files.path);
    }
    if (loaded.ok()) out.tokenizer = *std::move(loaded);
  }
  if (tokens > vocab_size) {
    return Mismatch(files.path, StrCat(tokens, " tokens"),
                    StrCat("at most ", vocab_size, ", vocab_size in config.json"));
  }
  out.bytes = std::move(files.bytes);
  out.inputs = std::move(files.inputs);
  return {};
}

void AddStop(std::vector<int32_t>& stops, int32_t id) {
  if (std::find(stops.begin(), stops.end(), id) == stops.end()) stops.push_back(id);
}

}  // namespace

Result<HfGeneration> ReadHfGeneration(const std::string& folder, int64_t vocab_size) {
  HfGeneration out;
  const std::string path = folder + "/generation_config.json";
  if (!FileExists(path)) return out;
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
  LOOKBACK_ASSIGN_OR_RETURN(TokenizerFiles files, FindTokenizerFiles(folder));
  if (files.kind.empty()) {
    out.warning =
        StrCat("there is no tokenizer.json, tokenizer.model or vocab.json with merges.txt in ",
               folder, ": the file will serve token ids only");
  } else {
    LOOKBACK_RETURN_IF_ERROR(LoadFiles(std::move(files), model.config.vocab_size, out));
    LOOKBACK_RETURN_IF_ERROR(ReadSettings(folder, model.config.vocab_size, out));
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
