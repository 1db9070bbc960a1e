// Split patterns that we do not know by heart, over classes of characters instead of characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/status.h"

namespace lookback {

/// The symbol that stands for a character in a translated pattern and its subject: an ASCII
/// character for itself, any other for all that such a pattern can know of it.
uint8_t RegexSymbol(char32_t code_point);

/// What errors call such a pattern.
inline constexpr std::string_view kSplitPattern =
    "regular expression of the pre_tokenizer in tokenizer.json";

/// Longest split pattern accepted, bytes.
inline constexpr size_t kMaxRegexBytes = 2048;

/// Rewrites `regex` (Oniguruma's syntax, as in tokenizer.json) into one for PCRE2 that matches a
/// string of symbols, one byte a character, where `regex` matches the text. It may use `\p{L}`,
/// `\p{N}`, `\s`, their complements, ASCII, sets, groups, `(?i:`, lookahead, alternatives and
/// quantifiers; what else it uses is refused by name.
Result<std::string> TranslateRegex(std::string_view regex);

}  // namespace lookback
