// Well-formed UTF-8 (Unicode 16, table 3-7): the one place that knows the byte ranges.
#pragma once

#include <cstddef>
#include <string_view>

namespace lookback {

/// What the bytes at the start of a text are.
struct Utf8Head {
  enum Kind {
    kComplete,    ///< a well-formed character of `length` bytes
    kIncomplete,  ///< a proper prefix of one, cut off by the end of the text
    kInvalid,     ///< a maximal invalid subpart of `length` bytes: one U+FFFD
  } kind;
  size_t length;  ///< bytes, at least 1
};

/// Classifies the start of `text`, which must not be empty.
Utf8Head DecodeUtf8Head(std::string_view text);

/// True if `text` is well-formed throughout.
bool IsValidUtf8(std::string_view text);

/// U+FFFD, what invalid bytes are shown as.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace lookback
