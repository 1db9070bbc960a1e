// The split patterns of GPT-2, Llama 3 and Qwen, written out by hand: linear, and as Oniguruma
// matches them with Unicode 16.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace lookback {

/// The patterns that we know by heart. Their alternatives cover every text.
enum class KnownPattern {
  kGpt2,    ///< of ByteLevel(use_regex) too
  kLlama3,  ///< numbers of up to three digits
  kQwen,    ///< every digit alone
};

/// The known pattern that is spelled exactly `regex`.
std::optional<KnownPattern> FindKnownPattern(std::string_view regex);

/// The spelling of a known pattern.
std::string_view KnownPatternRegex(KnownPattern pattern);

/// The end of the match of `pattern` that starts at byte `begin` of `text`, which is valid UTF-8
/// and longer than `begin`.
size_t MatchEnd(KnownPattern pattern, std::string_view text, size_t begin);

}  // namespace lookback
