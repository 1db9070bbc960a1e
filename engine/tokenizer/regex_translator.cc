#include "engine/tokenizer/regex_translator.h"

#include <array>
#include <bitset>
#include <optional>
#include <vector>

#include "engine/tokenizer/char_class.h"

namespace lookback {
namespace {

constexpr size_t kMaxGroups = 32;  // open at a time
constexpr int kMaxRepeats = 1000;
constexpr std::string_view kExpected =
    "\\p{L}, \\p{N}, \\s, ASCII, sets, (?:…), (?i:…), lookahead and quantifiers only";

// Characters beyond ASCII. Two letters are apart from the rest, since they fold to ASCII.
enum : uint8_t { kLetter = 0x80, kNumber, kSpace, kOther, kLongS, kKelvin, kSymbols };
using SymbolSet = std::bitset<kSymbols>;

SymbolSet SetOfClass(CharClass wanted) {
  SymbolSet set;
  for (uint8_t c = 0; c < 0x80; ++c) set[c] = CharProperties(c).char_class() == wanted;
  switch (wanted) {
    case CharClass::kLetter:
      set[kLetter] = set[kLongS] = set[kKelvin] = true;
      break;
    case CharClass::kNumber:
      set[kNumber] = true;
      break;
    case CharClass::kSpace:
      set[kSpace] = true;
      break;
    case CharClass::kOther:
      set[kOther] = true;
      break;
  }
  return set;
}

bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }
size_t Index(char c) { return static_cast<unsigned char>(c); }
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Adds the other case of each ASCII letter, and the two characters beyond ASCII that fold to one.
void FoldCase(SymbolSet& set) {
  for (char c = 'a'; c <= 'z'; ++c) {
    const auto upper = static_cast<char>(c - 32);
    const bool either = set[Index(c)] || set[Index(upper)];
    set[Index(c)] = set[Index(upper)] = either;
  }
  if (set[Index('s')]) set[kLongS] = true;
  if (set[Index('k')]) set[kKelvin] = true;
}

void AppendHex(size_t symbol, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "\\x";
  out += kDigits[symbol >> 4];
  out += kDigits[symbol & 15];
}

class Translator {
 public:
  explicit Translator(std::string_view regex) : rest_(regex) {}

  Result<std::string> Run() {
    while (!rest_.empty()) LOOKBACK_RETURN_IF_ERROR(Item());
    if (groups_.size() != 1) return Refuse("a group that is not closed");
    return std::move(out_);
  }

 private:
  static Status Refuse(std::string_view what) { return Mismatch(kSplitPattern, what, kExpected); }

  bool Take(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }
  char TakeChar() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  Status Item() {
    const char c = rest_.front();
    if (Index(c) >= 0x80) return Refuse(Quoted(rest_.substr(0, CharAt(rest_, 0).bytes)));
    switch (c) {
      case '(':
        return OpenGroup();
      case ')':
        return CloseGroup();
      case '|':
        TakeChar();
        out_ += '|';
        after_atom_ = false;
        last_literal_ = '\0';
        return {};
      case '[':
        return Set();
      case '?':
      case '*':
      case '+':
      case '{':
        return Quantifier();
      case '.':
      case '^':
      case '$':
      case ']':
      case '}':
        return Refuse(Quoted(rest_.substr(0, 1)));
      default:
        break;
    }
    SymbolSet set;
    std::optional<char> literal;
    LOOKBACK_RETURN_IF_ERROR(Element(set, literal));
    if (literal) LOOKBACK_RETURN_IF_ERROR(CheckFolding(*literal));
    last_literal_ = literal.value_or('\0');
    Emit(set);
    return {};
  }

  // One character, escape or class; `literal` is set for a single character.
  Status Element(SymbolSet& set, std::optional<char>& literal) {
    const char c = TakeChar();
    if (Index(c) >= 0x80) return Refuse("a character beyond ASCII in a set");
    if (c != '\\') {
      literal = c;
      set[Index(c)] = true;
      return {};
    }
    if (rest_.empty()) return Refuse("a final backslash");
    const char escaped = TakeChar();
    const bool complement = escaped == 'P' || escaped == 'S';
    if (escaped == 's' || escaped == 'S') {
      set = SetOfClass(CharClass::kSpace);
    } else if (escaped == 'p' || escaped == 'P') {
      if (Take("{L}")) {
        set = SetOfClass(CharClass::kLetter);
      } else if (Take("{N}")) {
        set = SetOfClass(CharClass::kNumber);
      } else {
        const std::string_view name = rest_.substr(0, rest_.find('}') + 1);
        return Refuse(Quoted(StrCat('\\', escaped, name)));
      }
    } else {
      constexpr std::string_view kNames = "rntfv", kControls = "\r\n\t\f\v";
      const size_t control = kNames.find(escaped);
      if (control != std::string_view::npos) {
        literal = kControls[control];
      } else if (IsAsciiLetter(escaped) || IsAsciiDigit(escaped) || Index(escaped) >= 0x80) {
        return Refuse(Quoted(StrCat('\\', escaped)));
      } else {
        literal = escaped;
      }
      set[Index(*literal)] = true;
    }
    if (complement) set.flip();
    return {};
  }

  // Ignoring case, Oniguruma lets one ligature match two letters (ß for ss).
  Status CheckFolding(char literal) const {
    if (!groups_.back()) return {};
    const std::array<char, 2> pair = {Lower(last_literal_), Lower(literal)};
    const std::string_view letters(pair.data(), pair.size());
    for (const std::string_view ligature : {"ss", "st", "ff", "fi", "fl"}) {
      if (letters == ligature) return Refuse(StrCat(Quoted(letters), " with case ignored"));
    }
    return {};
  }

  Status Set() {
    TakeChar();
    const bool complement = Take("^");
    SymbolSet all;
    for (bool first = true;; first = false) {
      if (rest_.empty()) return Refuse("a set that is not closed");
      if (!first && Take("]")) break;
      if (rest_.front() == '[' || rest_.front() == ']' || rest_.starts_with("&&")) {
        return Refuse(StrCat(Quoted(rest_.substr(0, 1)), " in a set"));
      }
      SymbolSet set;
      std::optional<char> low;
      LOOKBACK_RETURN_IF_ERROR(Element(set, low));
      if (rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
        TakeChar();
        std::optional<char> high;
        if (rest_.front() != '[') LOOKBACK_RETURN_IF_ERROR(Element(set, high));
        if (!low || !high || *low > *high) return Refuse("a range of no two characters in a set");
        for (size_t c = Index(*low); c <= Index(*high); ++c) set[c] = true;
      }
      all |= set;
    }
    if (groups_.back()) FoldCase(all);
    if (complement) all.flip();
    if (all.none()) return Refuse("an empty set");
    last_literal_ = '\0';
    EmitSet(all);
    return {};
  }

  void Emit(SymbolSet set) {
    if (groups_.back()) FoldCase(set);
    EmitSet(set);
  }

  void EmitSet(const SymbolSet& set) {
    out_ += '[';
    for (size_t symbol = 0; symbol < set.size(); ++symbol) {
      if (!set[symbol]) continue;
      size_t last = symbol;
      while (last + 1 < set.size() && set[last + 1]) ++last;
      AppendHex(symbol, out_);
      if (last > symbol) {
        out_ += '-';
        AppendHex(last, out_);
      }
      symbol = last;
    }
    out_ += ']';
    after_atom_ = true;
  }

  Status OpenGroup() {
    bool ignore_case = groups_.back();
    bool lookahead = false;
    if (Take("(?i:")) {
      ignore_case = true;
      out_ += "(?:";
    } else if (rest_.starts_with("(?=") || rest_.starts_with("(?!")) {
      lookahead = true;
      out_ += rest_.substr(0, 3);
      rest_.remove_prefix(3);
    } else if (Take("(?:")) {
      out_ += "(?:";
    } else if (rest_.starts_with("(?") || rest_.starts_with("(*")) {
      return Refuse(Quoted(rest_.substr(0, 4)));
    } else {
      TakeChar();
      out_ += "(?:";
    }
    if (groups_.size() == kMaxGroups) return Refuse("groups nested too deep");
    groups_.push_back(ignore_case);
    lookaheads_.push_back(lookahead);
    after_atom_ = false;
    last_literal_ = '\0';
    return {};
  }

  Status CloseGroup() {
    if (groups_.size() == 1) return Refuse("\")\" without a group");
    TakeChar();
    groups_.pop_back();
    after_atom_ = !lookaheads_.back();  // a lookahead takes no quantifier here
    lookaheads_.pop_back();
    last_literal_ = '\0';
    out_ += ')';
    return {};
  }

  // ? * + with ? or + behind; {m} {m,} {m,n} alone, since the syntaxes disagree on what follows.
  Status Quantifier() {
    if (!after_atom_) return Refuse(StrCat(Quoted(rest_.substr(0, 1)), " after no character"));
    after_atom_ = false;
    if (rest_.front() != '{') {
      out_ += TakeChar();
      if (!rest_.empty() && (rest_.front() == '?' || rest_.front() == '+')) out_ += TakeChar();
      return {};
    }
    const std::string_view braces = rest_.substr(0, rest_.find('}') + 1);
    rest_.remove_prefix(1);
    const std::optional<int> low = Number();
    std::optional<int> high = low;
    const bool comma = Take(",");
    if (comma) high = Number();
    if (!low || !Take("}") || (high && *high < *low)) return Refuse(Quoted(braces));
    if (!rest_.empty() && (rest_.front() == '?' || rest_.front() == '+')) {
      return Refuse(StrCat(Quoted(rest_.substr(0, 1)), " after ", Quoted(braces)));
    }
    out_ += StrCat('{', *low);
    if (comma) out_ += ',';
    if (comma && high) out_ += StrCat(*high);
    out_ += '}';
    return {};
  }

  std::optional<int> Number() {
    std::optional<int> number;
    while (!rest_.empty() && IsAsciiDigit(rest_.front())) {
      number = number.value_or(0) * 10 + (TakeChar() - '0');
      if (*number > kMaxRepeats) return std::nullopt;
    }
    return number;
  }

  std::string_view rest_;
  std::string out_;
  std::vector<bool> groups_ = {false};  // of each open group: case is ignored in it
  std::vector<bool> lookaheads_;
  bool after_atom_ = false;
  char last_literal_ = '\0';
};

}  // namespace

uint8_t RegexSymbol(char32_t code_point) {
  if (code_point < 0x80) return static_cast<uint8_t>(code_point);
  if (code_point == 0x17F) return kLongS;
  if (code_point == 0x212A) return kKelvin;
  switch (CharProperties(code_point).char_class()) {
    case CharClass::kLetter:
      return kLetter;
    case CharClass::kNumber:
      return kNumber;
    case CharClass::kSpace:
      return kSpace;
    case CharClass::kOther:
      break;
  }
  return kOther;
}

Result<std::string> TranslateRegex(std::string_view regex) {
  if (regex.empty() || regex.size() > kMaxRegexBytes) {
    return Mismatch(kSplitPattern, StrCat(regex.size(), " bytes"), StrCat("1 to ", kMaxRegexBytes));
  }
  return Translator(regex).Run();
}

}  // namespace lookback
