// Unicode normalization form C as the tokenizers library computes it: that of Unicode 9.
#pragma once

#include <string>
#include <string_view>

namespace lookback {

/// True if nothing in `text`, valid UTF-8, can be changed by NFC. False says nothing.
bool IsSurelyNfc(std::string_view text);

/// Appends NFC of `text`, which is valid UTF-8 and shorter than 2^31 bytes, to `out`. Characters
/// that Unicode 9 did not know stay as they are. O(n log n), whatever the run of marks.
void AppendNfc(std::string_view text, std::string& out);

}  // namespace lookback
