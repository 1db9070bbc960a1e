// Text to ids and back. Token-exact against the original library, or refused by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint.h"
#include "engine/status.h"

namespace lookback {

/// What one token contributes to the text.
struct TokenPiece {
  enum Kind : uint8_t {
    kText,     ///< bytes, maybe part of a character
    kByte,     ///< one raw byte of a byte-fallback piece
    kControl,  ///< a special token: shown only when special tokens are
    kUnknown,
  } kind = kText;
  std::string_view bytes;  ///< valid while the tokenizer lives
};

/// State of an incremental decode: plain data, no allocation.
struct DecodeState {
  bool at_start = true;  ///< nothing has been decoded yet (the dummy space is stripped only there)
  uint8_t pending_size = 0;  ///< bytes held back: a proper prefix of a UTF-8 sequence
  char pending[4] = {};
};

/// Immutable and thread-safe once made.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids of `text`; with `special`, what the file's settings add around it (BOS, EOS). As in the
  /// original libraries that is added always: whoever passes a text that already begins with its
  /// BOS (a rendered chat template) encodes without `special`. SentencePiece never makes a control
  /// symbol from text, so a prompt of text gets one BOS and never two. InvalidArgument if the text
  /// is not valid UTF-8.
  virtual Result<std::vector<int32_t>> Encode(std::string_view text, bool special) const = 0;
  /// Text of `ids`, exactly as the original library decodes them. Unknown ids decode to nothing.
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const;
  virtual int64_t vocab_size() const = 0;
  /// The piece as the vocabulary spells it, for people.
  virtual std::string Piece(int32_t id) const = 0;
  /// The id whose Piece is `piece`, in time linear in the vocabulary.
  virtual std::optional<int32_t> FindPiece(std::string_view piece) const = 0;

  /// Appends to `out` all that the new id makes certain: everything that later ids cannot change.
  /// Holds back only a proper prefix of a well-formed UTF-8 sequence (at most 3 bytes).
  /// Allocates nothing if `out` has room.
  virtual void DecodeNext(DecodeState& state, int32_t id, bool skip_special,
                          std::string& out) const = 0;
  /// Appends what was held back, as U+FFFD, and resets the pending bytes.
  virtual void DecodeFlush(DecodeState& state, std::string& out) const = 0;
};

/// The tokenizer that a lookback file carries, or null where it carries none.
/// FailedPrecondition if this build was made without the library that its kind needs.
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const Checkpoint& checkpoint);

/// A tokenizer from the bytes of a tokenizer.model; `info` says what to add around a text.
Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(std::string_view model_bytes,
                                                              const TokenizerInfo& info);

/// A byte-level BPE tokenizer from the bytes of a tokenizer.json, whose post-processor says what to
/// add around a text; the ids of `info` must be of its vocabulary. InvalidArgument if the file is
/// malformed or has a component that we do not reproduce, which is named.
Result<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(std::string_view tokenizer_json,
                                                    const TokenizerInfo& info);

/// A tokenizer from a file (tokenizer.model, tokenizer.json, a lookback file) or from a folder that
/// holds one (tokenizer_files.h says which), with the folder's tokenizer_config.json where there is
/// one. Fills `info` if not null.
Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path,
                                                 TokenizerInfo* info = nullptr);

}  // namespace lookback
