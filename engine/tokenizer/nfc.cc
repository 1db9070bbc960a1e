#include "engine/tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "engine/tokenizer/char_class.h"

namespace lookback {
namespace {

constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
constexpr char32_t kFirstThatChanges = 0x300;  // all below is in NFC, whatever comes before it
constexpr size_t kMaxDecomposition = 8;        // code points; the longest has 4

int MarkClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// utf8proc sorts a run of marks by exchanges, in quadratic time; what is sorted it leaves alone.
void SortMarks(std::vector<utf8proc_int32_t>& points) {
  for (auto begin = points.begin(); begin != points.end();) {
    if (MarkClass(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, points.end(), [](auto p) { return MarkClass(p) == 0; });
    std::stable_sort(begin, end, [](auto a, auto b) { return MarkClass(a) < MarkClass(b); });
    begin = end;
  }
}

class Normalizer {
 public:
  explicit Normalizer(std::string& out) : out_(out) {}

  void Append(std::string_view text);

 private:
  void AppendChunk(std::string_view chunk);

  std::string& out_;
  std::vector<utf8proc_int32_t> points_;
};

void Normalizer::Append(std::string_view text) {
  // A chunk starts at a character before which nothing can change, and ends before the next such.
  // Most are one character long and stay as they are.
  size_t copied = 0;  // all before it is in out_
  for (size_t begin = 0; begin < text.size();) {
    const Utf8Char first = CharAt(text, begin);
    size_t end = begin + first.bytes;
    const bool first_in_nfc = CharProperties(first.code_point).in_nfc();
    // A starter that NFC does not know is no part of what follows it.
    const size_t chunk = first_in_nfc ? begin : end;
    while (end < text.size()) {
      const Utf8Char next = CharAt(text, end);
      if (next.code_point < kFirstThatChanges || !CharProperties(next.code_point).in_nfc()) break;
      end += next.bytes;
    }
    const bool may_change = first_in_nfc
                                ? first.code_point >= kFirstThatChanges || end > begin + first.bytes
                                : end > chunk;
    if (may_change) {
      out_.append(text.substr(copied, chunk - copied));
      AppendChunk(text.substr(chunk, end - chunk));
      copied = end;
    }
    begin = end;
  }
  out_.append(text.substr(copied));
}

void Normalizer::AppendChunk(std::string_view chunk) {
  points_.clear();
  for (size_t at = 0; at < chunk.size();) {
    const Utf8Char c = CharAt(chunk, at);
    at += c.bytes;
    std::array<utf8proc_int32_t, kMaxDecomposition> parts{};
    int last_boundclass = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), parts.data(),
                                kMaxDecomposition, kOptions, &last_boundclass);
    points_.insert(points_.end(), parts.begin(), parts.begin() + count);
  }
  SortMarks(points_);
  const auto length = utf8proc_normalize_utf32(
      points_.data(), static_cast<utf8proc_ssize_t>(points_.size()), kOptions);
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    AppendUtf8(static_cast<char32_t>(points_[static_cast<size_t>(i)]), out_);
  }
}

}  // namespace

bool IsSurelyNfc(std::string_view text) {
  constexpr auto kLead = static_cast<unsigned char>(0xC0 | kFirstThatChanges >> 6);
  unsigned char highest = 0;  // without an early end: the compiler makes vectors of it
  for (const char c : text) highest = std::max(highest, static_cast<unsigned char>(c));
  return highest < kLead;
}

void AppendNfc(std::string_view text, std::string& out) {
  out.reserve(out.size() + text.size());
  Normalizer(out).Append(text);
}

}  // namespace lookback
