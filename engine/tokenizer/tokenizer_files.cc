#include "engine/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "engine/tokenizer/sentencepiece_model.h"
#include "engine/tokenizer/splitter.h"

namespace lookback {
namespace {

constexpr std::string_view kConfig = "tokenizer_config.json";
constexpr std::string_view kGpt2End = "<|endoftext|>";

// Collects the added tokens that several files name, each once, and gives them their ids.
class AddedTokens {
 public:
  explicit AddedTokens(const Json& vocab) : vocab_(vocab) {}

  Status AddIds(const Json& added_tokens);      // added_tokens.json: {content: id}
  Status AddDecoder(const JsonObject& config);  // added_tokens_decoder of tokenizer_config.json
  Status AddSpecials(const Json& json, std::string_view file);
  void AddSpecial(const std::string& content);

  // By id. Tokens that have none follow the others, as when transformers adds them.
  Json ToJson() const;

 private:
  struct Token {
    std::optional<int64_t> id;
    Json flags = Json::object();
    bool special = false;
  };

  Token& At(const std::string& content) {
    const auto [place, is_new] = tokens_.try_emplace(content);
    if (!is_new) return place->second;
    order_.push_back(content);
    const auto found = vocab_.find(content);
    if (found != vocab_.end()) place->second.id = JsonInt(*found);
    return place->second;
  }

  const Json& vocab_;
  std::map<std::string, Token> tokens_;
  std::vector<std::string> order_;
};

Status AddedTokens::AddIds(const Json& added_tokens) {
  if (added_tokens.is_null()) return {};
  if (!added_tokens.is_object()) {
    return Mismatch("added_tokens.json", DescribeJson(added_tokens), "a JSON object");
  }
  for (const auto& [content, value] : *added_tokens.get_ptr<const Json::object_t*>()) {
    const std::optional<int64_t> id = JsonInt(value);
    if (!id)
      return Mismatch(StrCat(Quoted(content), " in added_tokens.json"), DescribeJson(value),
                      "an id");
    Token& token = At(content);
    if (!token.id) token.id = id;
  }
  return {};
}

Status AddedTokens::AddDecoder(const JsonObject& config) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::vector<DecoderToken> tokens, ReadDecoderTokens(config));
  for (const DecoderToken& row : tokens) {
    Token& token = At(row.content);
    if (!token.id) token.id = row.id;
    token.flags = *row.json;
    LOOKBACK_ASSIGN_OR_RETURN(
        const JsonObject object,
        JsonObject::From(*row.json, StrCat(Quoted(row.content), " in ", config.where())));
    LOOKBACK_ASSIGN_OR_RETURN(token.special, object.Bool("special", false));
  }
  return {};
}

void AddedTokens::AddSpecial(const std::string& content) {
  if (!content.empty()) At(content).special = true;
}

Status AddedTokens::AddSpecials(const Json& json, std::string_view file) {
  if (json.is_null()) return {};
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(json, std::string(file)));
  for (const std::string_view key : {"bos_token", "eos_token", "unk_token", "pad_token",
                                     "sep_token", "cls_token", "mask_token"}) {
    LOOKBACK_ASSIGN_OR_RETURN(const std::string text,
                              SpecialTokenText(object.Find(key), StrCat(key, " in ", file)));
    AddSpecial(text);
  }
  const std::string where = StrCat("additional_special_tokens in ", file);
  const Json* more = object.Find("additional_special_tokens");
  if (more == nullptr) return {};
  if (!more->is_array()) return Mismatch(where, DescribeJson(*more), "an array of tokens");
  for (const Json& token : *more) {
    LOOKBACK_ASSIGN_OR_RETURN(const std::string text, SpecialTokenText(&token, where));
    AddSpecial(text);
  }
  return {};
}

Json AddedTokens::ToJson() const {
  int64_t next = std::ssize(vocab_);
  for (const auto& [content, token] : tokens_) next = std::max(next, token.id.value_or(-1) + 1);
  std::vector<Json> rows;
  for (const std::string& content : order_) {
    const Token& token = tokens_.at(content);
    Json row = {
        {"id", token.id ? *token.id : next++}, {"content", content}, {"special", token.special}};
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
      const auto found = token.flags.find(flag);
      row[flag] = found != token.flags.end() ? *found : Json(false);
    }
    rows.push_back(std::move(row));
  }
  const auto id = [](const Json& row) { return JsonInt(row["id"]).value_or(-1); };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Json& a, const Json& b) { return id(a) < id(b); });
  return rows;
}

Json SplitLines(std::string_view text) {
  Json lines = Json::array();
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("#version") && !line.empty()) lines.push_back(line);
  }
  return lines;
}

Json ByteLevel(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

}  // namespace

Result<std::string> SpecialTokenText(const Json* value, std::string_view where) {
  if (value == nullptr) return std::string();
  if (value->is_object()) {
    LOOKBACK_ASSIGN_OR_RETURN(const JsonObject token, JsonObject::From(*value, std::string(where)));
    return token.String("content");
  }
  const auto* text = value->get_ptr<const std::string*>();
  if (text == nullptr) return Mismatch(where, DescribeJson(*value), "a token");
  return *text;
}

Result<std::vector<DecoderToken>> ReadDecoderTokens(const JsonObject& config) {
  std::vector<DecoderToken> tokens;
  const Json* decoder = config.Find("added_tokens_decoder");
  if (decoder == nullptr) return tokens;
  const std::string where = StrCat("added_tokens_decoder in ", config.where());
  if (!decoder->is_object()) return Mismatch(where, DescribeJson(*decoder), "a JSON object");
  for (const auto& [id_text, value] : *decoder->get_ptr<const Json::object_t*>()) {
    LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object,
                              JsonObject::From(value, StrCat(Quoted(id_text), " of ", where)));
    LOOKBACK_ASSIGN_OR_RETURN(std::string content, object.String("content"));
    int32_t id = -1;
    const char* end = id_text.data() + id_text.size();
    const auto [stop, error] = std::from_chars(id_text.data(), end, id);
    if (error != std::errc() || stop != end || id < 0) {
      return Mismatch(where, Quoted(id_text), "an id");
    }
    tokens.push_back({id, std::move(content), &value});
  }
  return tokens;
}

Result<Json> TokenizerJsonOfGpt2Files(const Gpt2Files& files) {
  if (!files.vocab.is_object()) {
    return Mismatch("vocab.json", DescribeJson(files.vocab), "a JSON object");
  }
  const Json none = Json::object();
  LOOKBACK_ASSIGN_OR_RETURN(
      const JsonObject config,
      JsonObject::From(files.tokenizer_config.is_null() ? none : files.tokenizer_config,
                       std::string(kConfig)));
  LOOKBACK_ASSIGN_OR_RETURN(std::string type, config.String("tokenizer_class", "GPT2Tokenizer"));
  if (type.ends_with("Fast")) type.resize(type.size() - 4);
  const bool qwen = type == "Qwen2Tokenizer";
  if (!qwen && type != "GPT2Tokenizer") {
    return Mismatch(StrCat("tokenizer_class in ", kConfig), Quoted(type),
                    "GPT2Tokenizer or Qwen2Tokenizer, with vocab.json and merges.txt");
  }
  LOOKBACK_ASSIGN_OR_RETURN(const bool prefix_space, config.Bool("add_prefix_space", false));
  AddedTokens added(files.vocab);
  LOOKBACK_RETURN_IF_ERROR(added.AddIds(files.added_tokens));
  LOOKBACK_RETURN_IF_ERROR(added.AddDecoder(config));
  LOOKBACK_RETURN_IF_ERROR(added.AddSpecials(files.special_tokens_map, "special_tokens_map.json"));
  LOOKBACK_RETURN_IF_ERROR(added.AddSpecials(files.tokenizer_config, kConfig));
  if (files.vocab.contains(kGpt2End)) added.AddSpecial(std::string(kGpt2End));

  Json out = {{"version", "1.0"}, {"added_tokens", added.ToJson()}};
  out["model"] = {{"type", "BPE"}, {"vocab", files.vocab}, {"merges", SplitLines(files.merges)}};
  out["decoder"] = ByteLevel(prefix_space, true);
  out["pre_tokenizer"] = ByteLevel(prefix_space, !qwen);
  if (qwen) {
    out["normalizer"] = {{"type", "NFC"}};
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", KnownPatternRegex(KnownPattern::kQwen)}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    out["pre_tokenizer"] = {{"type", "Sequence"},
                            {"pretokenizers", {split, ByteLevel(prefix_space, false)}}};
  }
  LOOKBACK_ASSIGN_OR_RETURN(const bool add_bos, config.Bool("add_bos_token", false));
  if (!add_bos) return out;
  LOOKBACK_ASSIGN_OR_RETURN(std::string bos, SpecialTokenText(config.Find("bos_token"),
                                                              StrCat("bos_token in ", kConfig)));
  if (bos.empty()) bos = kGpt2End;
  for (const Json& token : out["added_tokens"]) {
    if (token["content"] != bos) continue;
    out["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", bos}}}}, {{"Sequence", {{"id", "A"}}}}}},
        {"special_tokens", {{bos, {{"ids", {token["id"]}}}}}}};
    return out;
  }
  return Mismatch(StrCat("bos_token in ", kConfig), Quoted(bos), "an added token");
}

namespace {

Status ReadGpt2Folder(const std::string& folder, TokenizerFiles& out) {
  Gpt2Files files;
  const std::string merges_path = folder + "/merges.txt";
  LOOKBACK_ASSIGN_OR_RETURN(files.vocab, ReadJsonFile(out.path, kMaxTokenizerJsonBytes));
  LOOKBACK_ASSIGN_OR_RETURN(const std::string merges,
                            ReadTextFile(merges_path, kMaxTokenizerJsonBytes));
  files.merges = merges;
  out.inputs = {out.path, merges_path};
  for (const auto& [name, json] :
       {std::pair<std::string_view, Json*>(kConfig, &files.tokenizer_config),
        {"special_tokens_map.json", &files.special_tokens_map},
        {"added_tokens.json", &files.added_tokens}}) {
    const std::string path = StrCat(folder, '/', name);
    if (!FileExists(path)) continue;
    LOOKBACK_ASSIGN_OR_RETURN(*json, ReadJsonFile(path));
    out.inputs.push_back(path);
  }
  Result<Json> json = TokenizerJsonOfGpt2Files(files);
  if (!json.ok()) return std::move(json).status().WithPrefix(folder);
  out.bytes = DumpJson(*json);
  return {};
}

}  // namespace

Result<TokenizerFiles> FindTokenizerFiles(const std::string& folder) {
  TokenizerFiles out;
  const std::string json_path = folder + "/tokenizer.json";
  const std::string model_path = folder + "/tokenizer.model";
  const std::string vocab_path = folder + "/vocab.json";
  if (FileExists(json_path)) {
    out.path = json_path;
    out.inputs = {json_path};
    LOOKBACK_ASSIGN_OR_RETURN(out.bytes, ReadTextFile(json_path, kMaxTokenizerJsonBytes));
  } else if (!FileExists(model_path) && FileExists(vocab_path) &&
             FileExists(folder + "/merges.txt")) {
    out.path = vocab_path;
    LOOKBACK_RETURN_IF_ERROR(ReadGpt2Folder(folder, out));
  }
  if (!out.path.empty()) {
    TokenizerJsonResult read = ParseTokenizerJson(out.bytes);
    if (read.parsed.ok()) {
      out.kind = "bpe";
      out.json = *std::move(read.parsed);
      return out;
    }
    if (!read.unsupported || !FileExists(model_path)) {
      return std::move(read.parsed).status().WithPrefix(out.path);
    }
  }
  if (!FileExists(model_path)) return out;
  out.path = model_path;
  out.inputs = {model_path};
  out.kind = "sentencepiece";
  LOOKBACK_ASSIGN_OR_RETURN(out.bytes, ReadTextFile(model_path, kMaxTokenizerModelBytes));
  return out;
}

}  // namespace lookback
