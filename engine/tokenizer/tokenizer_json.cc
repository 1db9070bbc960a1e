#include "engine/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/tokenizer/byte_alphabet.h"

namespace lookback {
namespace {

constexpr std::string_view kFile = "tokenizer.json";
constexpr size_t kMaxTokenBytes = size_t{1} << 16;
constexpr size_t kMaxMerges = size_t{1} << 22;
constexpr size_t kMaxAddedTokens = size_t{1} << 16;
constexpr size_t kMaxSteps = 16;        // of one pre_tokenizer
constexpr size_t kMaxTemplateIds = 64;  // around one text
constexpr size_t kBytes = 256;

class Reader {
 public:
  bool unsupported() const { return unsupported_; }

  Result<TokenizerJson> Read(std::string_view text);

 private:
  using Strings = std::unordered_map<std::string_view, int32_t>;

  // A refusal of what the file is, and not of damage.
  Status Unsupported(std::string_view what, std::string_view got, std::string_view expected) {
    unsupported_ = true;
    return Mismatch(what, got, expected);
  }
  Result<std::string> Type(const JsonObject& component) { return component.String("type"); }
  Status RefuseType(const JsonObject& component, std::string_view type, std::string_view expected) {
    return Unsupported(StrCat("type of ", component.where()), Quoted(type), expected);
  }
  // `key` must be absent, null or equal to `wanted`.
  Status Only(const JsonObject& component, std::string_view key, const Json& wanted) {
    const Json* value = component.Find(key);
    if (value == nullptr || *value == wanted) return {};
    return Unsupported(StrCat(key, " in ", component.where()), DescribeJson(*value),
                       DescribeJson(wanted));
  }

  Status ReadModel(const Json& json);
  Status CheckModelSettings(const JsonObject& model);
  Status ReadVocab(const JsonObject& model);
  Status ReadMerges(const JsonObject& model);
  Result<std::pair<std::string_view, std::string_view>> SplitMerge(const Json& merge, size_t rank);
  Status ReadAdded(const Json& json);
  Status ReadAddedToken(const Json& json, size_t index);
  Status ReadNormalizer(const Json& json, std::string_view where);
  Status ReadPreTokenizer(const Json& json, std::string_view where);
  Status ReadSplit(const JsonObject& split);
  Status ReadByteLevel(const JsonObject& byte_level);
  Status ReadPostProcessor(const Json& json, std::string_view where);
  Status ReadTemplate(const JsonObject& component);
  Status AppendSpecial(const JsonObject& component, const Json& token, std::vector<int32_t>& ids);
  Status ReadDecoder(const JsonObject& file);

  TokenizerJson out_;
  Strings ids_;                // of vocab; views out_.vocab, which no longer moves
  int64_t next_added_id_ = 0;  // of an added token that is not in vocab
  bool has_byte_level_ = false;
  bool unsupported_ = false;
};

Result<TokenizerJson> Reader::Read(std::string_view text) {
  LOOKBACK_ASSIGN_OR_RETURN(const Json json, ParseJson(text, kFile, kMaxTokenizerJsonBytes));
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject file, JsonObject::From(json, std::string(kFile)));
  const Json* model = file.Find("model");
  if (model == nullptr) return Mismatch("model in tokenizer.json", "nothing", "a BPE");
  LOOKBACK_RETURN_IF_ERROR(ReadModel(*model));
  // The library would cut every text, or fill it up.
  for (const std::string_view key : {"truncation", "padding"}) {
    const Json* value = file.Find(key);
    if (value != nullptr) {
      return Unsupported(StrCat(key, " in ", kFile), DescribeJson(*value), "null");
    }
  }
  if (const Json* added = file.Find("added_tokens")) LOOKBACK_RETURN_IF_ERROR(ReadAdded(*added));
  if (const Json* normalizer = file.Find("normalizer")) {
    LOOKBACK_RETURN_IF_ERROR(ReadNormalizer(*normalizer, "normalizer in tokenizer.json"));
  }
  if (const Json* pre_tokenizer = file.Find("pre_tokenizer")) {
    LOOKBACK_RETURN_IF_ERROR(ReadPreTokenizer(*pre_tokenizer, "pre_tokenizer in tokenizer.json"));
  }
  if (!has_byte_level_) {
    return Unsupported("pre_tokenizer in tokenizer.json", "none of type \"ByteLevel\"",
                       "one at the end");
  }
  if (const Json* processor = file.Find("post_processor")) {
    LOOKBACK_RETURN_IF_ERROR(ReadPostProcessor(*processor, "post_processor in tokenizer.json"));
  }
  LOOKBACK_RETURN_IF_ERROR(ReadDecoder(file));
  return std::move(out_);
}

Status Reader::ReadModel(const Json& json) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject model,
                            JsonObject::From(json, "model in tokenizer.json"));
  // Old files leave the type out.
  LOOKBACK_ASSIGN_OR_RETURN(const std::string type, model.String("type", "BPE"));
  if (type != "BPE") return RefuseType(model, type, "\"BPE\"");
  LOOKBACK_RETURN_IF_ERROR(CheckModelSettings(model));
  LOOKBACK_RETURN_IF_ERROR(ReadVocab(model));
  LOOKBACK_RETURN_IF_ERROR(ReadMerges(model));
  if (const Json* unknown = model.Find("unk_token")) {
    // Where every byte is in the vocabulary, nothing is unknown.
    size_t bytes = 0;
    for (size_t byte = 0; byte < kBytes; ++byte) {
      const char spelled = static_cast<char>(byte);
      bytes += ids_.contains(SpellInAlphabet({&spelled, 1})) ? 1 : 0;
    }
    if (bytes < kBytes) {
      return Unsupported(
          StrCat("unk_token in ", model.where()),
          StrCat(DescribeJson(*unknown), " with ", bytes, " of 256 bytes in the vocabulary"),
          "null, or all of them");
    }
  }
  return {};
}

Status Reader::CheckModelSettings(const JsonObject& model) {
  LOOKBACK_RETURN_IF_ERROR(Only(model, "byte_fallback", false));
  LOOKBACK_RETURN_IF_ERROR(Only(model, "dropout", 0.0));
  LOOKBACK_RETURN_IF_ERROR(Only(model, "continuing_subword_prefix", ""));
  LOOKBACK_RETURN_IF_ERROR(Only(model, "end_of_word_suffix", ""));
  LOOKBACK_ASSIGN_OR_RETURN(out_.ignore_merges, model.Bool("ignore_merges", false));
  return {};
}

Status Reader::ReadVocab(const JsonObject& model) {
  const std::string where = StrCat("vocab in ", model.where());
  const Json* vocab = model.Find("vocab");
  if (vocab == nullptr || !vocab->is_object() || vocab->empty()) {
    return Mismatch(where, vocab == nullptr ? "nothing" : DescribeJson(*vocab),
                    "an object of tokens and ids");
  }
  const auto& object = *vocab->get_ptr<const Json::object_t*>();
  int64_t highest = 0;
  for (const auto& [token, value] : object) {
    const std::optional<int64_t> id = JsonInt(value);
    const std::string what = StrCat("id of ", Quoted(token), " of ", where);
    if (!id || *id < 0 || *id >= kMaxTokenIds) {
      return Mismatch(what, DescribeJson(value), StrCat("an id from 0 to ", kMaxTokenIds - 1));
    }
    if (token.empty() || token.size() > kMaxTokenBytes) {
      return Mismatch(what, StrCat("a token of ", token.size(), " bytes"),
                      StrCat("1 to ", kMaxTokenBytes));
    }
    highest = std::max(highest, *id);
  }
  out_.vocab.resize(static_cast<size_t>(highest) + 1);
  for (const auto& [token, value] : object) {
    const auto id = static_cast<size_t>(*JsonInt(value));
    if (!out_.vocab[id].empty()) {
      return Mismatch(
          where, StrCat("id ", id, " for ", Quoted(out_.vocab[id]), " and for ", Quoted(token)),
          "every id once");
    }
    out_.vocab[id] = token;
  }
  next_added_id_ = std::ssize(object);
  ids_.reserve(object.size());
  for (size_t id = 0; id < out_.vocab.size(); ++id) {
    if (!out_.vocab[id].empty()) ids_.emplace(out_.vocab[id], static_cast<int32_t>(id));
  }
  return {};
}

// "a b" or ["a", "b"].
Result<std::pair<std::string_view, std::string_view>> Reader::SplitMerge(const Json& merge,
                                                                         size_t rank) {
  if (const auto* text = merge.get_ptr<const std::string*>()) {
    const size_t space = text->find(' ');
    if (space != std::string::npos && text->find(' ', space + 1) == std::string::npos) {
      const std::string_view whole = *text;
      return std::pair(whole.substr(0, space), whole.substr(space + 1));
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return std::pair<std::string_view, std::string_view>(*merge[0].get_ptr<const std::string*>(),
                                                         *merge[1].get_ptr<const std::string*>());
  }
  return Mismatch(StrCat("merge ", rank, " in model in ", kFile), DescribeJson(merge),
                  "two tokens: \"a b\" or [\"a\", \"b\"]");
}

Status Reader::ReadMerges(const JsonObject& model) {
  const Json* merges = model.Find("merges");
  if (merges == nullptr || !merges->is_array() || merges->size() > kMaxMerges) {
    return Mismatch(StrCat("merges in ", model.where()),
                    merges == nullptr ? "nothing" : DescribeJson(*merges),
                    StrCat("an array of at most ", kMaxMerges));
  }
  out_.merges.reserve(merges->size());
  std::string joined;
  for (size_t rank = 0; rank < merges->size(); ++rank) {
    LOOKBACK_ASSIGN_OR_RETURN(const auto pair, SplitMerge((*merges)[rank], rank));
    joined.assign(pair.first).append(pair.second);
    BpeModel::Merge merge{};
    for (const auto& [token, id] : {std::pair<std::string_view, int32_t*>(pair.first, &merge.left),
                                    {pair.second, &merge.right},
                                    {joined, &merge.merged}}) {
      const auto found = ids_.find(token);
      if (found == ids_.end()) {
        return Mismatch(StrCat("merge ", rank, " in ", model.where()), Quoted(token),
                        "a token of the vocabulary");
      }
      *id = found->second;
    }
    out_.merges.push_back(merge);
  }
  return {};
}

Status Reader::ReadAdded(const Json& json) {
  const std::string where = StrCat("added_tokens in ", kFile);
  if (!json.is_array() || json.size() > kMaxAddedTokens) {
    return Mismatch(where, DescribeJson(json), StrCat("an array of at most ", kMaxAddedTokens));
  }
  for (size_t i = 0; i < json.size(); ++i) LOOKBACK_RETURN_IF_ERROR(ReadAddedToken(json[i], i));
  std::vector<std::string_view> contents;
  for (const AddedToken& token : out_.added) contents.push_back(token.content);
  std::sort(contents.begin(), contents.end());
  const auto twice = std::adjacent_find(contents.begin(), contents.end());
  if (twice != contents.end()) {
    return Mismatch(where, StrCat(Quoted(*twice), " twice"), "every token once");
  }
  return {};
}

Status Reader::ReadAddedToken(const Json& json, size_t index) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object,
                            JsonObject::From(json, StrCat("added token ", index, " in ", kFile)));
  AddedToken token;
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t id, object.Int("id", 0, kMaxTokenIds - 1));
  token.id = static_cast<int32_t>(id);
  LOOKBACK_ASSIGN_OR_RETURN(token.content, object.String("content"));
  if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) {
    return Mismatch(StrCat("content in ", object.where()), StrCat(token.content.size(), " bytes"),
                    StrCat("1 to ", kMaxAddedTokenBytes));
  }
  LOOKBACK_ASSIGN_OR_RETURN(token.single_word, object.Bool("single_word", false));
  LOOKBACK_ASSIGN_OR_RETURN(token.lstrip, object.Bool("lstrip", false));
  LOOKBACK_ASSIGN_OR_RETURN(token.rstrip, object.Bool("rstrip", false));
  LOOKBACK_ASSIGN_OR_RETURN(token.special, object.Bool("special", false));
  LOOKBACK_ASSIGN_OR_RETURN(token.normalized, object.Bool("normalized", !token.special));
  // The library gives out ids itself and does not look at those of the file.
  const auto found = ids_.find(token.content);
  const int64_t expected = found != ids_.end() ? found->second : next_added_id_;
  const std::string what = StrCat("id of ", Quoted(token.content), ", ", object.where());
  if (id != expected) {
    return Mismatch(what, id, StrCat(expected, ", the id that the library gives it"));
  }
  if (found == ids_.end() && id < std::ssize(out_.vocab) &&
      !out_.vocab[static_cast<size_t>(id)].empty()) {
    return Mismatch(what, StrCat(id, ", that of ", Quoted(out_.vocab[static_cast<size_t>(id)])),
                    "an id of its own");
  }
  next_added_id_ = std::max(next_added_id_, id + 1);
  out_.added.push_back(std::move(token));
  return {};
}

Status Reader::ReadNormalizer(const Json& json, std::string_view where) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(json, std::string(where)));
  LOOKBACK_ASSIGN_OR_RETURN(const std::string type, Type(object));
  if (type == "NFC") {
    out_.nfc = true;
    return {};
  }
  if (type != "Sequence") return RefuseType(object, type, "\"NFC\" or null");
  const Json* parts = object.Find("normalizers");
  if (parts == nullptr || !parts->is_array()) {
    return Mismatch(StrCat("normalizers in ", where),
                    parts == nullptr ? "nothing" : DescribeJson(*parts), "an array");
  }
  for (const Json& part : *parts) LOOKBACK_RETURN_IF_ERROR(ReadNormalizer(part, where));
  return {};
}

Status Reader::ReadPreTokenizer(const Json& json, std::string_view where) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(json, std::string(where)));
  LOOKBACK_ASSIGN_OR_RETURN(const std::string type, Type(object));
  if (has_byte_level_) {
    return Unsupported(where, StrCat(Quoted(type), " after \"ByteLevel\""), "nothing after it");
  }
  if (out_.steps.size() >= kMaxSteps) {
    return Mismatch(where, StrCat("more than ", kMaxSteps, " steps"), "fewer");
  }
  if (type == "ByteLevel") return ReadByteLevel(object);
  if (type == "Split") return ReadSplit(object);
  if (type == "Digits") {
    LOOKBACK_ASSIGN_OR_RETURN(const bool individual, object.Bool("individual_digits", false));
    out_.steps.emplace_back(PreTokenizer::Digits{individual});
    return {};
  }
  if (type != "Sequence") {
    return RefuseType(object, type, "\"ByteLevel\", \"Split\", \"Digits\" or \"Sequence\"");
  }
  const Json* parts = object.Find("pretokenizers");
  if (parts == nullptr || !parts->is_array()) {
    return Mismatch(StrCat("pretokenizers in ", where),
                    parts == nullptr ? "nothing" : DescribeJson(*parts), "an array");
  }
  for (const Json& part : *parts) LOOKBACK_RETURN_IF_ERROR(ReadPreTokenizer(part, where));
  return {};
}

Status Reader::ReadSplit(const JsonObject& split) {
  LOOKBACK_RETURN_IF_ERROR(Only(split, "behavior", "Isolated"));
  LOOKBACK_RETURN_IF_ERROR(Only(split, "invert", false));
  const Json* pattern = split.Find("pattern");
  const Json* regex = nullptr;
  if (pattern != nullptr && pattern->is_object() && pattern->contains("Regex")) {
    regex = &pattern->find("Regex").value();
  }
  if (regex == nullptr || !regex->is_string()) {
    return Unsupported(StrCat("pattern in ", split.where()),
                       pattern == nullptr ? "nothing" : DumpJson(*pattern).substr(0, 80),
                       "a \"Regex\"");
  }
  const std::string& spelled = *regex->get_ptr<const std::string*>();
  if (const auto known = FindKnownPattern(spelled)) {
    out_.steps.emplace_back(*known);
    return {};
  }
  Result<RegexSplitter> splitter = RegexSplitter::Make(spelled);
  if (!splitter.ok()) {
    unsupported_ = true;
    return std::move(splitter).status();
  }
  out_.steps.emplace_back(*std::move(splitter));
  return {};
}

Status Reader::ReadByteLevel(const JsonObject& byte_level) {
  has_byte_level_ = true;
  LOOKBACK_ASSIGN_OR_RETURN(const bool prefix_space, byte_level.Bool("add_prefix_space", true));
  LOOKBACK_ASSIGN_OR_RETURN(const bool use_regex, byte_level.Bool("use_regex", true));
  if (prefix_space) out_.steps.emplace_back(PreTokenizer::PrefixSpace{});
  if (use_regex) out_.steps.emplace_back(KnownPattern::kGpt2);
  return {};
}

Status Reader::ReadPostProcessor(const Json& json, std::string_view where) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(json, std::string(where)));
  LOOKBACK_ASSIGN_OR_RETURN(const std::string type, Type(object));
  if (type == "ByteLevel") return {};  // it moves offsets alone
  if (type == "TemplateProcessing") return ReadTemplate(object);
  if (type != "Sequence") {
    return RefuseType(object, type, "\"ByteLevel\", \"TemplateProcessing\" or \"Sequence\"");
  }
  const Json* parts = object.Find("processors");
  if (parts == nullptr || !parts->is_array()) {
    return Mismatch(StrCat("processors in ", where),
                    parts == nullptr ? "nothing" : DescribeJson(*parts), "an array");
  }
  for (const Json& part : *parts) LOOKBACK_RETURN_IF_ERROR(ReadPostProcessor(part, where));
  return {};
}

// single: [{"SpecialToken": {"id": …}}, {"Sequence": {"id": "A"}}, …]
Status Reader::ReadTemplate(const JsonObject& component) {
  const Json* single = component.Find("single");
  const std::string where = StrCat("single in ", component.where());
  if (single == nullptr || !single->is_array()) {
    return Unsupported(where, single == nullptr ? "nothing" : DescribeJson(*single),
                       "an array of SpecialToken and Sequence");
  }
  std::vector<int32_t> before, after;
  bool text_seen = false;
  for (const Json& piece : *single) {
    if (piece.is_object() && piece.contains("SpecialToken")) {
      LOOKBACK_RETURN_IF_ERROR(
          AppendSpecial(component, piece["SpecialToken"], text_seen ? after : before));
      continue;
    }
    const bool sequence = piece.is_object() && piece.contains("Sequence") &&
                          piece["Sequence"].is_object() && piece["Sequence"].contains("id") &&
                          piece["Sequence"]["id"] == "A";
    if (!sequence || text_seen) {
      return Unsupported(where, DumpJson(piece).substr(0, 80), "SpecialToken, and Sequence A once");
    }
    text_seen = true;
  }
  if (!text_seen) return Unsupported(where, "no Sequence A", "one");
  // A later processor of a Sequence puts its tokens around those of the earlier.
  out_.prefix.insert(out_.prefix.begin(), before.begin(), before.end());
  out_.suffix.insert(out_.suffix.end(), after.begin(), after.end());
  return {};
}

Status Reader::AppendSpecial(const JsonObject& component, const Json& token,
                             std::vector<int32_t>& ids) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject reference,
                            JsonObject::From(token, StrCat("SpecialToken in ", component.where())));
  LOOKBACK_ASSIGN_OR_RETURN(const std::string name, reference.String("id"));
  const std::string where = StrCat(Quoted(name), " of special_tokens in ", component.where());
  const Json* all = component.Find("special_tokens");
  const Json* entry = all != nullptr && all->is_object() && all->contains(name)
                          ? &all->find(name).value()
                          : nullptr;
  const Json* list = entry != nullptr && entry->is_object() && entry->contains("ids")
                         ? &entry->find("ids").value()
                         : nullptr;
  if (list == nullptr || !list->is_array() || list->size() + ids.size() > kMaxTemplateIds) {
    return Mismatch(where, list == nullptr ? "nothing" : DescribeJson(*list), "a list of ids");
  }
  const auto known = static_cast<int64_t>(out_.vocab.size());
  for (const Json& element : *list) {
    const std::optional<int64_t> id = JsonInt(element);
    const bool added = id && std::any_of(out_.added.begin(), out_.added.end(),
                                         [&](const AddedToken& t) { return t.id == *id; });
    if (!id || *id < 0 || (*id >= known && !added)) {
      return Mismatch(where, DescribeJson(element), "an id of the vocabulary");
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return {};
}

Status Reader::ReadDecoder(const JsonObject& file) {
  const std::string where = StrCat("decoder in ", kFile);
  const Json* decoder = file.Find("decoder");
  if (decoder == nullptr) return Unsupported(where, "nothing", "\"ByteLevel\"");
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(*decoder, where));
  LOOKBACK_ASSIGN_OR_RETURN(const std::string type, Type(object));
  return type == "ByteLevel" ? Status() : RefuseType(object, type, "\"ByteLevel\"");
}

}  // namespace

TokenizerJsonResult ParseTokenizerJson(std::string_view text) {
  Reader reader;
  Result<TokenizerJson> parsed = reader.Read(text);
  return {std::move(parsed), reader.unsupported()};
}

}  // namespace lookback
