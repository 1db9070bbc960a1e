// The alphabet in which byte-level vocabularies spell bytes: each byte is one printable character.
// Source: GPT-2's bytes_to_unicode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lookback {

/// The character that stands for `byte`: itself for 0x21–7E, A1–AC and AE–FF; the other 68 bytes,
/// in ascending order, are U+0100 to U+0143.
char32_t AlphabetChar(uint8_t byte);

/// The bytes that `text`, valid UTF-8, spells; nothing if a character is not of the alphabet.
std::optional<std::string> BytesOfAlphabet(std::string_view text);

/// `bytes` spelled in the alphabet.
std::string SpellInAlphabet(std::string_view bytes);

}  // namespace lookback
