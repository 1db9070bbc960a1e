// tokenizer.json of the tokenizers library, read and checked: byte-level BPE alone. What we would
// not reproduce exactly is refused by its name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/json.h"
#include "engine/status.h"
#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/pre_tokenizer.h"

namespace lookback {

/// Longest tokenizer.json accepted, bytes. The largest published byte-level ones have half of it.
inline constexpr int64_t kMaxTokenizerJsonBytes = int64_t{32} << 20;
/// Ids are below this.
inline constexpr int64_t kMaxTokenIds = int64_t{1} << 22;

/// What a tokenizer.json says.
struct TokenizerJson {
  std::vector<std::string> vocab;  ///< by id, as the file spells it; "" where the model has none
  std::vector<BpeModel::Merge> merges;
  bool ignore_merges = false;
  std::vector<AddedToken> added;
  bool nfc = false;                       ///< the normalizer is NFC, else none
  std::vector<PreTokenizer::Step> steps;  ///< of the pre_tokenizer
  std::vector<int32_t> prefix, suffix;    ///< what the post_processor puts around a text
};

/// A tokenizer.json that was refused, and whether for what it is (another kind of tokenizer, a part
/// that we do not have) and not for being damaged.
struct TokenizerJsonResult {
  Result<TokenizerJson> parsed;
  bool unsupported = false;
};

/// Reads `text`. InvalidArgument: too large, malformed, ids twice or out of range, a merge of
/// unknown tokens, or a component that we do not reproduce, named with its place.
TokenizerJsonResult ParseTokenizerJson(std::string_view text);

}  // namespace lookback
