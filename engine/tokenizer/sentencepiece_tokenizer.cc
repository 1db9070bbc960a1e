#include <sentencepiece_processor.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "engine/tokenizer/sentencepiece_model.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/utf8.h"

namespace lookback {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581, a space in the vocabulary

// Encoding is the library's. Decoding is ours: the library has no incremental one.
// Source: sentencepiece_processor.cc, SentencePieceProcessor::Decode.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(TokenizerInfo info) : info_(std::move(info)) {}

  Status Load(std::string_view bytes);

  Result<std::vector<int32_t>> Encode(std::string_view text, bool special) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  std::string Piece(int32_t id) const override;
  std::optional<int32_t> FindPiece(std::string_view piece) const override;
  void DecodeNext(DecodeState& state, int32_t id, bool skip_special,
                  std::string& out) const override;
  void DecodeFlush(DecodeState& state, std::string& out) const override;

 private:
  struct Entry {
    TokenPiece piece;            // bytes view texts_
    bool leading_space = false;  // the piece begins with U+2581
  };
  void BuildTable(const SentencePieceModel& model);

  TokenizerInfo info_;
  sentencepiece::SentencePieceProcessor processor_;
  std::string texts_;
  std::vector<Entry> pieces_;
  bool strip_first_space_ = false;
  bool strip_every_first_space_ = false;
};

// "<0x0A>" -> 0x0A; −1 if the piece is spelled in another way.
int ByteOf(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const size_t high = kDigits.find(text[3]), low = kDigits.find(text[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return -1;
  return static_cast<int>(high * 16 + low);
}

Status SentencePieceTokenizer::Load(std::string_view bytes) {
  LOOKBACK_ASSIGN_OR_RETURN(const SentencePieceModel model, SentencePieceModel::Parse(bytes));
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    if (piece.type == SentencePieceModel::Type::kByte && ByteOf(piece.text) < 0) {
      return Mismatch(StrCat("tokenizer.model, piece ", id), Quoted(piece.text),
                      "<0x00> to <0xFF>");
    }
  }
  const auto status = processor_.LoadFromSerializedProto({bytes.data(), bytes.size()});
  if (!status.ok()) return InvalidArgument("tokenizer.model: ", Quoted(status.ToString()));
  if (processor_.GetPieceSize() != static_cast<int>(model.pieces.size())) {
    return Mismatch("tokenizer.model", StrCat(processor_.GetPieceSize(), " pieces loaded"),
                    StrCat(model.pieces.size()));
  }
  const auto check = [&](std::string_view name, bool add, std::optional<int32_t> id) -> Status {
    const auto size = static_cast<int64_t>(model.pieces.size());
    if (add && !id) return Mismatch(name, "nothing", "an id, as it is to be added to texts");
    if (id && (*id < 0 || *id >= size)) return Mismatch(name, *id, StrCat("0 to ", size - 1));
    return {};
  };
  LOOKBACK_RETURN_IF_ERROR(check("bos_id", info_.add_bos, info_.bos_id));
  LOOKBACK_RETURN_IF_ERROR(check("eos_id", info_.add_eos, info_.eos_id));
  BuildTable(model);
  return {};
}

void SentencePieceTokenizer::BuildTable(const SentencePieceModel& model) {
  using Type = SentencePieceModel::Type;
  strip_first_space_ = model.add_dummy_prefix || model.remove_extra_whitespaces;
  strip_every_first_space_ = model.remove_extra_whitespaces;
  std::vector<std::pair<size_t, size_t>> ranges;  // views come last: texts_ still moves
  for (const auto& source : model.pieces) {
    Entry entry;
    const size_t begin = texts_.size();
    switch (source.type) {
      case Type::kControl:
        entry.piece.kind = TokenPiece::kControl;
        break;
      case Type::kUnknown:
        entry.piece.kind = TokenPiece::kUnknown;
        texts_ += model.unk_surface;
        break;
      case Type::kByte:
        entry.piece.kind = TokenPiece::kByte;
        texts_ += static_cast<char>(ByteOf(source.text));
        break;
      case Type::kNormal:
      case Type::kUserDefined:
      case Type::kUnused:
        entry.leading_space = source.text.starts_with(kSpaceSymbol);
        for (std::string_view rest = source.text; !rest.empty();) {
          const bool space = rest.starts_with(kSpaceSymbol);
          texts_ += space ? ' ' : rest.front();
          rest.remove_prefix(space ? kSpaceSymbol.size() : 1);
        }
        break;
    }
    ranges.emplace_back(begin, texts_.size() - begin);
    pieces_.push_back(entry);
  }
  for (size_t id = 0; id < pieces_.size(); ++id) {
    pieces_[id].piece.bytes = std::string_view(texts_).substr(ranges[id].first, ranges[id].second);
  }
}

Result<std::vector<int32_t>> SentencePieceTokenizer::Encode(std::string_view text,
                                                            bool special) const {
  if (!IsValidUtf8(text)) return Mismatch("text", Quoted(text), "valid UTF-8");
  std::vector<int> ids;
  const auto status = processor_.Encode({text.data(), text.size()}, &ids);
  if (!status.ok()) return Status(StatusCode::kInternal, Quoted(status.ToString()));
  if (special && info_.add_bos) ids.insert(ids.begin(), *info_.bos_id);
  if (special && info_.add_eos) ids.push_back(*info_.eos_id);
  return ids;
}

std::string SentencePieceTokenizer::Piece(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return "";
  return processor_.IdToPiece(id);
}

std::optional<int32_t> SentencePieceTokenizer::FindPiece(std::string_view piece) const {
  for (int id = 0; id < processor_.GetPieceSize(); ++id) {
    if (processor_.IdToPiece(id) == piece) return id;
  }
  return std::nullopt;
}

// Control symbols are never shown, so skip_special changes nothing; between the bytes of one
// character they cut it, as in the library.
void SentencePieceTokenizer::DecodeNext(DecodeState& state, int32_t id, bool /*skip_special*/,
                                        std::string& out) const {
  if (id < 0 || id >= vocab_size()) return;
  const Entry& entry = pieces_[static_cast<size_t>(id)];
  std::string_view bytes = entry.piece.bytes;
  if (entry.piece.kind != TokenPiece::kByte) {
    DecodeFlush(state, out);
    if (state.at_start && strip_first_space_ && entry.leading_space) {
      bytes.remove_prefix(1);
      if (!strip_every_first_space_) state.at_start = false;
    }
    if (!bytes.empty()) state.at_start = false;
    out.append(bytes);
    return;
  }
  state.at_start = false;
  state.pending[state.pending_size++] = bytes.front();
  while (state.pending_size > 0) {
    const std::string_view pending(state.pending, state.pending_size);
    const Utf8Head head = DecodeUtf8Head(pending);
    if (head.kind == Utf8Head::kIncomplete) return;
    // The library replaces invalid bytes one by one, not by maximal subparts.
    const size_t used = head.kind == Utf8Head::kComplete ? head.length : 1;
    out.append(head.kind == Utf8Head::kComplete ? pending.substr(0, used) : kReplacementCharacter);
    state.pending_size = static_cast<uint8_t>(state.pending_size - used);
    for (size_t i = 0; i < state.pending_size; ++i) state.pending[i] = state.pending[i + used];
  }
}

void SentencePieceTokenizer::DecodeFlush(DecodeState& state, std::string& out) const {
  for (; state.pending_size > 0; --state.pending_size) out.append(kReplacementCharacter);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(std::string_view model_bytes,
                                                              const TokenizerInfo& info) {
  try {
    auto tokenizer = std::make_unique<SentencePieceTokenizer>(info);
    LOOKBACK_RETURN_IF_ERROR(tokenizer->Load(model_bytes));
    return std::unique_ptr<Tokenizer>(std::move(tokenizer));
  } catch (const std::exception& error) {  // the library's trie builder throws
    return InvalidArgument("tokenizer.model: ", Quoted(error.what()));
  }
}

}  // namespace lookback
