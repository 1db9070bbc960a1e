#include "engine/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/nfc.h"
#include "engine/utf8.h"

namespace lookback {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;  // positions are int32_t

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerJson json);

  Result<std::vector<int32_t>> Encode(std::string_view text, bool special) const override;
  int64_t vocab_size() const override { return std::ssize(entries_); }
  std::string Piece(int32_t id) const override;
  std::optional<int32_t> FindPiece(std::string_view piece) const override;
  void DecodeNext(DecodeState& state, int32_t id, bool skip_special,
                  std::string& out) const override;
  void DecodeFlush(DecodeState& state, std::string& out) const override;

 private:
  struct Entry {
    std::string bytes;     // what the token decodes to
    bool spelled = false;  // `bytes` are spelled in the alphabet, else they are the spelling
    bool special = false;
  };

  static Entry MakeEntry(std::string_view spelling, bool special);
  Status EncodeSegment(std::string_view segment, PreTokenizer::Sink& sink,
                       std::vector<int32_t>& ids) const;

  std::vector<Entry> entries_;  // by id
  BpeModel model_;
  PreTokenizer pre_tokenizer_;
  AddedTokenMatcher raw_tokens_;         // searched first, in the text as it comes
  AddedTokenMatcher normalized_tokens_;  // then these, in what lies between, normalized
  bool nfc_;
  std::vector<int32_t> prefix_, suffix_;
};

std::string Normalized(bool nfc, std::string_view text) {
  std::string out;
  if (!nfc) return std::string(text);
  AppendNfc(text, out);
  return out;
}

BpeTokenizer::Entry BpeTokenizer::MakeEntry(std::string_view spelling, bool special) {
  std::optional<std::string> bytes = BytesOfAlphabet(spelling);
  if (bytes) return {*std::move(bytes), true, special};
  return {std::string(spelling), false, special};
}

BpeTokenizer::BpeTokenizer(TokenizerJson json)
    : pre_tokenizer_(std::move(json.steps)),
      nfc_(json.nfc),
      prefix_(std::move(json.prefix)),
      suffix_(std::move(json.suffix)) {
  std::vector<std::string> mergeable(json.vocab.size());
  entries_.resize(json.vocab.size());
  for (size_t id = 0; id < json.vocab.size(); ++id) {
    entries_[id] = MakeEntry(json.vocab[id], false);
    if (entries_[id].spelled) mergeable[id] = entries_[id].bytes;
  }
  model_.Build(std::move(mergeable), std::move(json.merges), json.ignore_merges);
  for (const AddedToken& token : json.added) {
    const auto id = static_cast<size_t>(token.id);
    if (id >= entries_.size()) entries_.resize(id + 1);
    entries_[id] = MakeEntry(Normalized(nfc_ && token.normalized, token.content), token.special);
  }
  // Of two tokens that normalize to the same text the library finds the special one.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : json.added) {
      if (token.special != special) continue;
      if (token.normalized) {
        normalized_tokens_.Add(token, Normalized(nfc_, token.content));
      } else {
        raw_tokens_.Add(token, token.content);
      }
    }
  }
}

class MergingSink final : public PreTokenizer::Sink {
 public:
  MergingSink(const BpeModel& model, std::vector<int32_t>& ids) : model_(model), ids_(ids) {}
  void Take(std::string_view piece) override { model_.Encode(piece, scratch_, ids_); }

 private:
  const BpeModel& model_;
  std::vector<int32_t>& ids_;
  BpeModel::Scratch scratch_;
};

Status BpeTokenizer::EncodeSegment(std::string_view segment, PreTokenizer::Sink& sink,
                                   std::vector<int32_t>& ids) const {
  std::string normalized;
  if (nfc_ && !IsSurelyNfc(segment)) {
    AppendNfc(segment, normalized);
    segment = normalized;
  }
  for (const auto& part : normalized_tokens_.Split(segment)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      LOOKBACK_RETURN_IF_ERROR(pre_tokenizer_.Split(part.text, sink));
    }
  }
  return {};
}

Result<std::vector<int32_t>> BpeTokenizer::Encode(std::string_view text, bool special) const {
  if (text.size() > kMaxTextBytes) {
    return Mismatch("text", StrCat(text.size(), " bytes"), StrCat("at most ", kMaxTextBytes));
  }
  if (!IsValidUtf8(text)) return Mismatch("text", Quoted(text), "valid UTF-8");
  std::vector<int32_t> ids;
  if (special) ids = prefix_;
  MergingSink sink(model_, ids);
  for (const auto& part : raw_tokens_.Split(text)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      LOOKBACK_RETURN_IF_ERROR(EncodeSegment(part.text, sink, ids));
    }
  }
  if (special) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

std::string BpeTokenizer::Piece(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return "";
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return entry.spelled ? SpellInAlphabet(entry.bytes) : entry.bytes;
}

std::optional<int32_t> BpeTokenizer::FindPiece(std::string_view piece) const {
  if (piece.empty() || !IsValidUtf8(piece)) return std::nullopt;
  const Entry wanted = MakeEntry(piece, false);
  for (size_t id = 0; id < entries_.size(); ++id) {
    if (entries_[id].bytes == wanted.bytes && entries_[id].spelled == wanted.spelled) {
      return static_cast<int32_t>(id);
    }
  }
  return std::nullopt;
}

// Source: the ByteLevel decoder, which joins the bytes of all tokens and replaces what is not UTF-8
// by maximal invalid subparts.
void BpeTokenizer::DecodeNext(DecodeState& state, int32_t id, bool skip_special,
                              std::string& out) const {
  if (id < 0 || id >= vocab_size()) return;
  const Entry& entry = entries_[static_cast<size_t>(id)];
  if (entry.special && skip_special) return;
  std::string_view bytes = entry.bytes;
  while (!bytes.empty()) {
    if (state.pending_size == 0) {
      const Utf8Head head = DecodeUtf8Head(bytes);
      const std::string_view taken = bytes.substr(0, head.length);
      bytes.remove_prefix(head.length);
      if (head.kind != Utf8Head::kIncomplete) {
        out.append(head.kind == Utf8Head::kComplete ? taken : kReplacementCharacter);
        continue;
      }
      std::copy(taken.begin(), taken.end(), state.pending);
      state.pending_size = static_cast<uint8_t>(taken.size());
      continue;
    }
    state.pending[state.pending_size] = bytes.front();
    const std::string_view pending(state.pending, state.pending_size + size_t{1});
    const Utf8Head head = DecodeUtf8Head(pending);
    if (head.kind == Utf8Head::kInvalid) {
      // What was pending is an invalid subpart; the new byte may begin another character.
      DecodeFlush(state, out);
      continue;
    }
    bytes.remove_prefix(1);
    ++state.pending_size;
    if (head.kind == Utf8Head::kIncomplete) continue;
    out.append(pending);
    state.pending_size = 0;
  }
}

void BpeTokenizer::DecodeFlush(DecodeState& state, std::string& out) const {
  if (state.pending_size > 0) out.append(kReplacementCharacter);
  state.pending_size = 0;
}

// bos_token and eos_token are strings or objects with a `content`.
Result<std::optional<int32_t>> NamedToken(const JsonObject& config, std::string_view key,
                                          const TokenizerJson& json) {
  const Json* value = config.Find(key);
  if (value == nullptr) return std::optional<int32_t>();
  if (value->is_object()) {
    const auto content = value->find("content");
    value = content == value->end() ? value : &*content;
  }
  const auto* name = value->get_ptr<const std::string*>();
  if (name == nullptr) {
    return Mismatch(StrCat(key, " in ", config.where()), DescribeJson(*value),
                    "a string or an object with a content");
  }
  for (const AddedToken& token : json.added) {
    if (token.content == *name) return std::optional(token.id);
  }
  for (size_t id = 0; id < json.vocab.size() && !name->empty(); ++id) {
    if (json.vocab[id] == *name) return std::optional(static_cast<int32_t>(id));
  }
  return std::optional<int32_t>();
}

}  // namespace

Result<TokenizerInfo> ReadBpeInfo(const TokenizerJson& json, const Json* tokenizer_config) {
  TokenizerInfo info;
  info.kind = "bpe";
  if (tokenizer_config != nullptr) {
    LOOKBACK_ASSIGN_OR_RETURN(const JsonObject config,
                              JsonObject::From(*tokenizer_config, "tokenizer_config.json"));
    LOOKBACK_ASSIGN_OR_RETURN(info.bos_id, NamedToken(config, "bos_token", json));
    LOOKBACK_ASSIGN_OR_RETURN(info.eos_id, NamedToken(config, "eos_token", json));
  }
  info.add_bos = !json.prefix.empty();
  info.add_eos = !json.suffix.empty();
  if (info.add_bos) info.bos_id = json.prefix.front();
  if (info.add_eos) info.eos_id = json.suffix.back();
  if (info.eos_id) info.stop_ids = {*info.eos_id};
  return info;
}

Result<std::unique_ptr<Tokenizer>> BuildBpeTokenizer(TokenizerJson json,
                                                     const TokenizerInfo& info) {
  auto tokenizer = std::make_unique<BpeTokenizer>(std::move(json));
  for (const auto& [name, id] : {std::pair("bos_id", info.bos_id), {"eos_id", info.eos_id}}) {
    if (id && (*id < 0 || *id >= tokenizer->vocab_size())) {
      return Mismatch(name, *id, StrCat("0 to ", tokenizer->vocab_size() - 1));
    }
  }
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Result<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(std::string_view tokenizer_json,
                                                    const TokenizerInfo& info) {
  TokenizerJsonResult result = ParseTokenizerJson(tokenizer_json);
  if (!result.parsed.ok()) return std::move(result.parsed).status();
  return BuildBpeTokenizer(*std::move(result.parsed), info);
}

}  // namespace lookback
