#include "engine/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/utf8.h"

namespace lookback {
namespace {

// One field of a Protobuf message in wire format.
struct Field {
  uint32_t number = 0;
  enum Kind : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 } kind = kVarint;
  uint64_t value = 0;      // kVarint, kFixed32, kFixed64
  std::string_view bytes;  // kBytes
};

// Walks the fields of a message. Groups, which SentencePiece does not use, are malformed here.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  bool AtEnd() const { return rest_.empty(); }
  bool malformed() const { return malformed_; }

  // False at the end and at the first malformed field.
  bool Next(Field& field) {
    if (rest_.empty() || malformed_) return false;
    const uint64_t tag = Varint();
    field.number = static_cast<uint32_t>(tag >> 3);
    field.kind = static_cast<Field::Kind>(tag & 7);
    if (tag >> 32 != 0 || field.number == 0) malformed_ = true;
    switch (field.kind) {
      case Field::kVarint:
        field.value = Varint();
        break;
      case Field::kFixed64:
        field.value = Fixed(8);
        break;
      case Field::kFixed32:
        field.value = Fixed(4);
        break;
      case Field::kBytes:
        field.bytes = Take(Varint());
        break;
      default:
        malformed_ = true;
    }
    return !malformed_;
  }

 private:
  uint64_t Varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    malformed_ = true;
    return 0;
  }

  std::string_view Take(uint64_t bytes) {
    if (bytes > rest_.size()) {
      malformed_ = true;
      return {};
    }
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  uint64_t Fixed(uint64_t bytes) {
    uint64_t value = 0;
    unsigned shift = 0;
    for (const char byte : Take(bytes)) {
      value |= uint64_t{static_cast<unsigned char>(byte)} << shift;
      shift += 8;
    }
    return value;
  }

  std::string_view rest_;
  bool malformed_ = false;
};

Status Malformed(std::string_view where) {
  return Mismatch(where, "a truncated or malformed field", "a SentencePiece model");
}

Status ParsePiece(std::string_view bytes, size_t id, SentencePieceModel::Piece& piece) {
  const std::string where = StrCat("tokenizer.model, piece ", id);
  Fields fields(bytes);
  for (Field field; fields.Next(field);) {
    if (field.number == 1 && field.kind == Field::kBytes) {
      piece.text = field.bytes;
    } else if (field.number == 2 && field.kind == Field::kFixed32) {
      const auto score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
      if (!std::isfinite(score)) return Mismatch(where, score, "a finite score");
    } else if (field.number == 3 && field.kind == Field::kVarint) {
      if (field.value < 1 || field.value > 6) return Mismatch(where, field.value, "type 1 to 6");
      piece.type = static_cast<SentencePieceModel::Type>(field.value);
    }
  }
  if (fields.malformed()) return Malformed(where);
  if (piece.text.empty()) return Mismatch(where, "an empty text", "at least 1 byte");
  // A NUL makes the library's trie throw; bytes that are no UTF-8 could not be sent on.
  if (!IsValidUtf8(piece.text) || piece.text.find('\0') != std::string_view::npos) {
    return Mismatch(where, Quoted(piece.text), "valid UTF-8 without NUL");
  }
  return {};
}

Status ParseTrainerSpec(std::string_view bytes, SentencePieceModel& model) {
  Fields fields(bytes);
  for (Field field; fields.Next(field);) {
    if (field.number == 24 && field.kind == Field::kVarint && field.value != 0) {
      return Mismatch("tokenizer.model, trainer_spec", "treat_whitespace_as_suffix", "false");
    }
    if (field.kind != Field::kBytes || field.number < 44 || field.number > 47) continue;
    if (!IsValidUtf8(field.bytes)) {
      return Mismatch("tokenizer.model, trainer_spec", Quoted(field.bytes), "valid UTF-8");
    }
    if (field.number == 44) model.unk_surface = field.bytes;
    // The library takes an empty name for the default one.
    if (field.number == 46 && !field.bytes.empty()) model.bos_piece = field.bytes;
    if (field.number == 47 && !field.bytes.empty()) model.eos_piece = field.bytes;
  }
  return fields.malformed() ? Malformed("tokenizer.model, trainer_spec") : Status();
}

Status ParseNormalizerSpec(std::string_view bytes, SentencePieceModel& model) {
  Fields fields(bytes);
  for (Field field; fields.Next(field);) {
    if (field.number == 2 && field.kind == Field::kBytes && !field.bytes.empty()) {
      LOOKBACK_RETURN_IF_ERROR(CheckCharsMap(field.bytes));
    }
    if (field.kind != Field::kVarint) continue;
    if (field.number == 3) model.add_dummy_prefix = field.value != 0;
    if (field.number == 4) model.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5 && field.value == 0) {
      return Mismatch("tokenizer.model, normalizer_spec", "escape_whitespaces false", "true");
    }
  }
  return fields.malformed() ? Malformed("tokenizer.model, normalizer_spec") : Status();
}

// A denormalizer rewrites the whole decoded text at once, which cannot be streamed exactly.
Status CheckDenormalizerSpec(std::string_view bytes) {
  Fields fields(bytes);
  for (Field field; fields.Next(field);) {
    if (field.number == 2 && field.kind == Field::kBytes && !field.bytes.empty()) {
      return Mismatch("tokenizer.model, denormalizer_spec", "a character map", "none");
    }
  }
  return fields.malformed() ? Malformed("tokenizer.model, denormalizer_spec") : Status();
}

// Units of a double-array trie (darts-clone).
constexpr uint32_t kValueBit = uint32_t{1} << 31;
constexpr int kMaxMatches = 32;  // the library's room for the matches of one lookup
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t Label(uint32_t unit) { return unit & (kValueBit | 0xFF); }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & uint32_t{1} << 9) >> 6); }

class TrieCheck {
 public:
  TrieCheck(std::vector<uint32_t> units, size_t text_bytes)
      : units_(std::move(units)), text_bytes_(text_bytes), matches_(units_.size(), kNew) {}

  // Depth first from the root, without recursion: matches_[i] becomes the most keys that one lookup
  // can match from unit i on. A unit met on its own path is a cycle.
  bool Holds() {
    std::vector<Frame> path;
    if (!Enter(0, path)) return false;
    while (!path.empty()) {
      Frame& frame = path.back();
      if (frame.label == 256) {
        const int matches = frame.matches;
        matches_[frame.unit] = static_cast<int8_t>(matches);
        path.pop_back();
        if (!path.empty()) Add(path.back(), matches);
        continue;
      }
      const uint32_t label = frame.label++;
      const uint32_t child = frame.base ^ label;
      if (Label(units_[child]) != label) continue;
      if (matches_[child] == kOnPath) return false;
      if (matches_[child] >= 0) {
        Add(frame, matches_[child]);
      } else if (!Enter(child, path)) {
        return false;
      }
      if (!path.empty() && path.back().own + path.back().matches > kMaxMatches) return false;
    }
    return matches_[0] <= kMaxMatches;
  }

 private:
  static constexpr int8_t kNew = -1, kOnPath = -2;
  struct Frame {
    uint32_t unit;
    uint32_t base;   // children are at base ^ label
    uint32_t label;  // the next to look at
    int own;         // 1 if a key ends here
    int matches;     // the most below and here
  };

  static void Add(Frame& frame, int below) {
    frame.matches = std::max(frame.matches, std::min(frame.own + below, kMaxMatches + 1));
  }

  bool Enter(uint32_t unit, std::vector<Frame>& path) {
    const uint32_t base = unit ^ Offset(units_[unit]);
    if ((base | 0xFF) >= units_.size()) return false;
    const int own = HasLeaf(units_[unit]) ? 1 : 0;
    if (own != 0 && (units_[base] & ~kValueBit) >= text_bytes_) return false;
    matches_[unit] = kOnPath;
    path.push_back({unit, base, 0, own, own});
    return true;
  }

  std::vector<uint32_t> units_;
  size_t text_bytes_;
  std::vector<int8_t> matches_;
};

}  // namespace

Status CheckCharsMap(std::string_view map) {
  constexpr std::string_view kWhere = "tokenizer.model, precompiled_charsmap";
  uint32_t trie_bytes = 0;
  if (map.size() > 4) {
    for (size_t i = 0; i < 4; ++i) {
      trie_bytes |= uint32_t{static_cast<unsigned char>(map[i])} << (8 * i);
    }
  }
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= map.size() - 4) {
    return Mismatch(kWhere, StrCat("a table of ", trie_bytes, " bytes in ", map.size()),
                    "a multiple of 4 that leaves room for the texts");
  }
  const std::string_view texts = map.substr(4 + size_t{trie_bytes});
  if (texts.back() != '\0') return Mismatch(kWhere, "texts without an end", "a final NUL");
  std::vector<uint32_t> units(trie_bytes / 4);
  for (size_t i = 0; i < units.size(); ++i) {
    for (size_t byte = 0; byte < 4; ++byte) {
      units[i] |= uint32_t{static_cast<unsigned char>(map[4 + 4 * i + byte])} << (8 * byte);
    }
  }
  if (!TrieCheck(std::move(units), texts.size()).Holds()) {
    return Mismatch(kWhere, "a lookup that leaves its table", "a double-array trie");
  }
  return {};
}

std::optional<int32_t> SentencePieceModel::ControlId(std::string_view text) const {
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].type == Type::kControl && pieces[id].text == text)
      return static_cast<int32_t>(id);
  }
  return std::nullopt;
}

Result<SentencePieceModel> SentencePieceModel::Parse(std::string_view bytes) {
  if (bytes.empty() || bytes.size() > static_cast<size_t>(kMaxTokenizerModelBytes)) {
    return Mismatch("tokenizer.model", StrCat(bytes.size(), " bytes"),
                    StrCat("1 to ", kMaxTokenizerModelBytes));
  }
  SentencePieceModel model;
  Fields fields(bytes);
  for (Field field; fields.Next(field);) {
    if (field.kind != Field::kBytes) continue;
    if (field.number == 1) {
      Piece piece;
      LOOKBACK_RETURN_IF_ERROR(ParsePiece(field.bytes, model.pieces.size(), piece));
      model.pieces.push_back(piece);
    } else if (field.number == 2) {
      LOOKBACK_RETURN_IF_ERROR(ParseTrainerSpec(field.bytes, model));
    } else if (field.number == 3) {
      LOOKBACK_RETURN_IF_ERROR(ParseNormalizerSpec(field.bytes, model));
    } else if (field.number == 5) {
      LOOKBACK_RETURN_IF_ERROR(CheckDenormalizerSpec(field.bytes));
    }
  }
  if (fields.malformed()) return Malformed("tokenizer.model");
  if (model.pieces.empty()) return Mismatch("tokenizer.model", "no pieces", "a vocabulary");
  return model;
}

namespace {

// bos_token and eos_token are strings or objects with a `content`.
std::string TokenName(const JsonObject& config, std::string_view key, const std::string& fallback) {
  const Json* value = config.Find(key);
  if (value != nullptr && value->is_object() && value->contains("content")) {
    value = &(*value)["content"];
  }
  return value != nullptr && value->is_string() ? value->get<std::string>() : fallback;
}

std::optional<int32_t> IdOf(const SentencePieceModel& model, std::string_view name) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].text == name) return static_cast<int32_t>(id);
  }
  return std::nullopt;
}

// chat_template is a string or a list of named ones, of which "default" is meant.
std::string ChatTemplate(const JsonObject& config) {
  const Json* value = config.Find("chat_template");
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) return "";
  for (const Json& named : *value) {
    if (!named.is_object() || named.value("name", Json()) != "default") continue;
    const Json text = named.value("template", Json());
    if (text.is_string()) return text.get<std::string>();
  }
  return "";
}

}  // namespace

Result<TokenizerInfo> ReadSentencePieceInfo(std::string_view model_bytes,
                                            const Json* tokenizer_config) {
  LOOKBACK_ASSIGN_OR_RETURN(const SentencePieceModel model, SentencePieceModel::Parse(model_bytes));
  TokenizerInfo info;
  info.kind = "sentencepiece";
  info.bos_id = model.ControlId(model.bos_piece);
  info.eos_id = model.ControlId(model.eos_piece);
  info.add_bos = info.bos_id.has_value();
  if (tokenizer_config != nullptr) {
    LOOKBACK_ASSIGN_OR_RETURN(const JsonObject config,
                              JsonObject::From(*tokenizer_config, "tokenizer_config.json"));
    if (const auto bos = IdOf(model, TokenName(config, "bos_token", model.bos_piece))) {
      info.bos_id = bos;
    }
    if (const auto eos = IdOf(model, TokenName(config, "eos_token", model.eos_piece))) {
      info.eos_id = eos;
    }
    LOOKBACK_ASSIGN_OR_RETURN(info.add_bos, config.Bool("add_bos_token", info.bos_id.has_value()));
    LOOKBACK_ASSIGN_OR_RETURN(info.add_eos, config.Bool("add_eos_token", false));
    info.chat_template = ChatTemplate(config);
  }
  if (info.add_bos && !info.bos_id) {
    return Mismatch("tokenizer_config.json, add_bos_token", "true", "a BOS in tokenizer.model");
  }
  if (info.add_eos && !info.eos_id) {
    return Mismatch("tokenizer_config.json, add_eos_token", "true", "an EOS in tokenizer.model");
  }
  if (info.eos_id) info.stop_ids = {*info.eos_id};
  return info;
}

}  // namespace lookback
