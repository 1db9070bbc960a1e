#include "engine/tokenizer/byte_alphabet.h"

#include <array>

#include "engine/tokenizer/char_class.h"

namespace lookback {
namespace {

constexpr char32_t kAlphabetEnd = 0x144;

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> chars{};
  std::array<int16_t, kAlphabetEnd> bytes{};  // −1: not of the alphabet
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.bytes.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = StandsForItself(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.chars[static_cast<size_t>(byte)] = c;
    alphabet.bytes[c] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

char32_t AlphabetChar(uint8_t byte) { return kAlphabet.chars[byte]; }

std::optional<std::string> BytesOfAlphabet(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = CharAt(text, at);
    at += c.bytes;
    if (c.code_point >= kAlphabetEnd || kAlphabet.bytes[c.code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.bytes[c.code_point]));
  }
  return bytes;
}

std::string SpellInAlphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) AppendUtf8(AlphabetChar(static_cast<uint8_t>(byte)), text);
  return text;
}

}  // namespace lookback
