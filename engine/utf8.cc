#include "engine/utf8.h"

namespace lookback {

Utf8Head DecodeUtf8Head(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Utf8Head::kComplete, 1};
  size_t length = 0;
  unsigned char low = 0x80, high = 0xBF;  // range of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Head::kInvalid, 1};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Head::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Head::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Head::kComplete, length};
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Head head = DecodeUtf8Head(text);
    if (head.kind != Utf8Head::kComplete) return false;
    text.remove_prefix(head.length);
  }
  return true;
}

}  // namespace lookback
