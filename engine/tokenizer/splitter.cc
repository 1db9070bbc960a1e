#include "engine/tokenizer/splitter.h"

#include "engine/tokenizer/char_class.h"

namespace lookback {
namespace {

constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwenRegex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr char32_t kSmallLongS = 0x17F;  // folds to s

// A text read forwards: the character under the cursor, its class and where it ends.
struct Cursor {
  Cursor(std::string_view whole, size_t position) : text(whole), at(position) { Read(); }

  bool at_end() const { return at == text.size(); }
  bool Is(CharClass wanted) const { return !at_end() && char_class == wanted; }
  bool IsNewline() const { return !at_end() && (code_point == '\r' || code_point == '\n'); }
  void Next() {
    at += bytes;
    Read();
  }
  void SkipAll(CharClass skipped) {
    while (Is(skipped)) Next();
  }

  std::string_view text;
  size_t at;
  size_t bytes = 0;
  char32_t code_point = 0;
  CharClass char_class = CharClass::kOther;

 private:
  void Read() {
    if (at_end()) return;
    const Utf8Char c = CharAt(text, at);
    code_point = c.code_point;
    bytes = c.bytes;
    char_class = CharProperties(code_point).char_class();
  }
};

// The end of 's 't 're 've 'm 'll 'd at `begin`, or `begin` if there is none.
size_t ContractionEnd(std::string_view text, size_t begin, bool fold_case) {
  if (text[begin] != '\'') return begin;
  const auto letter = [&](size_t at) -> char {
    if (at >= text.size()) return '\0';
    return fold_case && text[at] >= 'A' && text[at] <= 'Z' ? static_cast<char>(text[at] + 32)
                                                           : text[at];
  };
  const char first = letter(begin + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  const char second = letter(begin + 2);
  if ((first == 'r' || first == 'v') && second == 'e') return begin + 3;
  if (first == 'l' && second == 'l') return begin + 3;
  if (fold_case && begin + 1 < text.size() && CharAt(text, begin + 1).code_point == kSmallLongS) {
    return begin + 3;
  }
  return begin;
}

// `\s+(?!\S)|\s+` at a space: a run gives its last character to the word that follows, unless it
// has no other. With `to_newline`, `\s*[\r\n]+` comes first: up to the run's last newline.
size_t SpaceEnd(Cursor cursor, bool to_newline) {
  const size_t begin = cursor.at;
  size_t last = begin;
  size_t newline_end = 0;
  while (cursor.Is(CharClass::kSpace)) {
    last = cursor.at;
    const bool newline = cursor.IsNewline();
    cursor.Next();
    if (newline) newline_end = cursor.at;
  }
  if (to_newline && newline_end != 0) return newline_end;
  return cursor.at_end() || last == begin ? cursor.at : last;
}

size_t Gpt2End(std::string_view text, size_t begin) {
  const size_t contraction = ContractionEnd(text, begin, /*fold_case=*/false);
  if (contraction != begin) return contraction;
  Cursor cursor(text, begin);
  if (cursor.code_point == ' ') {
    cursor.Next();
    if (cursor.at_end() || cursor.Is(CharClass::kSpace)) return SpaceEnd({text, begin}, false);
  }
  if (cursor.Is(CharClass::kSpace)) return SpaceEnd({text, begin}, false);
  cursor.SkipAll(cursor.char_class);
  return cursor.at;
}

size_t Llama3End(std::string_view text, size_t begin, int max_digits) {
  const size_t contraction = ContractionEnd(text, begin, /*fold_case=*/true);
  if (contraction != begin) return contraction;
  Cursor cursor(text, begin);
  if (cursor.Is(CharClass::kNumber)) {
    for (int i = 0; i < max_digits && cursor.Is(CharClass::kNumber); ++i) cursor.Next();
    return cursor.at;
  }
  if (cursor.Is(CharClass::kLetter)) {
    cursor.SkipAll(CharClass::kLetter);
    return cursor.at;
  }
  Cursor second = cursor;
  second.Next();
  if (!cursor.IsNewline() && second.Is(CharClass::kLetter)) {
    second.SkipAll(CharClass::kLetter);
    return second.at;
  }
  if (cursor.code_point == ' ' && second.Is(CharClass::kOther)) cursor = second;
  if (!cursor.Is(CharClass::kOther)) return SpaceEnd(cursor, true);
  cursor.SkipAll(CharClass::kOther);
  while (cursor.IsNewline()) cursor.Next();
  return cursor.at;
}

}  // namespace

std::string_view KnownPatternRegex(KnownPattern pattern) {
  switch (pattern) {
    case KnownPattern::kGpt2:
      break;
    case KnownPattern::kLlama3:
      return kLlama3Regex;
    case KnownPattern::kQwen:
      return kQwenRegex;
  }
  return kGpt2Regex;
}

std::optional<KnownPattern> FindKnownPattern(std::string_view regex) {
  for (const auto pattern : {KnownPattern::kGpt2, KnownPattern::kLlama3, KnownPattern::kQwen}) {
    if (regex == KnownPatternRegex(pattern)) return pattern;
  }
  return std::nullopt;
}

size_t MatchEnd(KnownPattern pattern, std::string_view text, size_t begin) {
  switch (pattern) {
    case KnownPattern::kGpt2:
      break;
    case KnownPattern::kLlama3:
      return Llama3End(text, begin, /*max_digits=*/3);
    case KnownPattern::kQwen:
      return Llama3End(text, begin, /*max_digits=*/1);
  }
  return Gpt2End(text, begin);
}

}  // namespace lookback
