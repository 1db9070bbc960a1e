// What the tokenizers library takes a code point for. Its parts follow Unicode in different
// versions: the split patterns 16, the Digits pre-tokenizer 17, NFC 9.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lookback {

/// The classes of the split patterns: `\p{L}`, `\p{N}`, `\s`, and all else.
enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

namespace char_tables {
// Two stages: a block of 128 code points, then the character in it.
extern const char32_t kEnd;
extern const uint16_t kBlocks[];
extern const char kProperties[];
}  // namespace char_tables

/// The properties of one code point, from a table.
class CharProperties {
 public:
  explicit CharProperties(char32_t code_point)
      : bits_(
            code_point < char_tables::kEnd
                ? static_cast<uint8_t>(
                      char_tables::kProperties[size_t{char_tables::kBlocks[code_point >> 7]} << 7 |
                                               (code_point & 127)])
                : uint8_t{0}) {}

  CharClass char_class() const { return static_cast<CharClass>(bits_ & 3); }
  bool is_digit() const { return (bits_ & 4) != 0; }  ///< cut off by the Digits pre-tokenizer
  bool is_word() const { return (bits_ & 8) != 0; }   ///< `\w`, what single_word looks at
  bool in_nfc() const { return (bits_ & 16) != 0; }   ///< a mark, decomposes, or composes

 private:
  uint8_t bits_;
};

/// A code point and the bytes it took.
struct Utf8Char {
  char32_t code_point;
  size_t bytes;
};

/// The character at byte `at` of `text`, which is valid UTF-8 and longer than `at`.
inline Utf8Char CharAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> char32_t {
    return static_cast<unsigned char>(text[at + i]) & (i == 0 ? 0xFFU : 0x3FU);
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | byte(1), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | byte(1) << 6 | byte(2), 3};
  return {(lead & 0x07) << 18 | byte(1) << 12 | byte(2) << 6 | byte(3), 4};
}

/// The character that ends before byte `end` (> 0) of `text`, which is valid UTF-8.
inline Utf8Char CharBefore(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while ((static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
  return CharAt(text, begin);
}

/// Appends `code_point`, a Unicode scalar value, as UTF-8.
template <typename String>
void AppendUtf8(char32_t code_point, String& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

}  // namespace lookback
