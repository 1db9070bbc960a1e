// A tokenizer.model, read and checked by our own hands: what decoding needs, and what the library
// takes on trust when it loads one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint.h"
#include "engine/json.h"
#include "engine/status.h"

namespace lookback {

/// Longest tokenizer.model accepted, bytes.
inline constexpr int64_t kMaxTokenizerModelBytes = int64_t{64} << 20;

/// The parts of a ModelProto that decoding depends on. Source: sentencepiece_model.proto.
struct SentencePieceModel {
  enum class Type : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string_view text;  ///< as the vocabulary spells it; views the model's bytes
    Type type = Type::kNormal;
  };
  std::vector<Piece> pieces;                   ///< by id
  std::string unk_surface = " \xE2\x81\x87 ";  ///< what the unknown piece decodes to: " ⁇ "
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;

  /// The id of the control piece spelled `text`.
  std::optional<int32_t> ControlId(std::string_view text) const;

  /// Reads and checks `bytes`, which must outlive the result. InvalidArgument: too large,
  /// truncated, no pieces, a piece that is not valid UTF-8 or whose score is not finite, a
  /// character map that leads outside its own table, or a setting that we do not decode (named).
  static Result<SentencePieceModel> Parse(std::string_view bytes);
};

/// Checks a precompiled character map (the length of a double-array trie, the trie, NUL-terminated
/// texts): every step of every lookup stays inside the table, and no key can match more often than
/// the library has room for.
Status CheckCharsMap(std::string_view map);

/// What to add around a text and what ends a generation, from a tokenizer.model and, if not null,
/// the tokenizer_config.json beside it. Without one, or where it does not say: BOS if the model has
/// it, no EOS (the defaults of LlamaTokenizer). Needs no SentencePiece library.
Result<TokenizerInfo> ReadSentencePieceInfo(std::string_view model_bytes,
                                            const Json* tokenizer_config);

}  // namespace lookback
