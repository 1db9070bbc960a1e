#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/tokenizer/regex_splitter.h"

#include <pcre2.h>

#include <cstdint>
#include <string>
#include <utility>

#include "engine/tokenizer/char_class.h"
#include "engine/tokenizer/regex_translator.h"

namespace lookback {
namespace {

constexpr uint32_t kMaxSteps = 100'000;     // of the matcher, for one match
constexpr uint32_t kMaxHeapKiB = 64 << 10;  // of one match

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using CodePtr = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using ContextPtr = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;

std::string ErrorText(int error) {
  PCRE2_UCHAR buffer[128] = {};
  pcre2_get_error_message(error, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct RegexSplitter::Code {
  CodePtr code;
  ContextPtr limits;
};

RegexSplitter::RegexSplitter(std::unique_ptr<Code> code) : code_(std::move(code)) {}
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;
RegexSplitter::~RegexSplitter() = default;

Result<RegexSplitter> RegexSplitter::Make(std::string_view regex) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string pattern, TranslateRegex(regex));
  // Anchored: the matcher must not look for a start itself, as its limits hold for each start.
  constexpr uint32_t kOptions = PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE;
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_unique<Code>();
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     kOptions, &error, &offset, nullptr));
  if (compiled->code == nullptr) {
    return Mismatch(kSplitPattern, StrCat(Quoted(regex), " (", ErrorText(error), ")"),
                    "a valid one");
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(compiled->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return Mismatch(kSplitPattern, Quoted(regex), "one that does not match the empty text");
  }
  compiled->limits.reset(pcre2_match_context_create(nullptr));
  if (compiled->limits == nullptr) return Status(StatusCode::kResourceExhausted, "no memory");
  pcre2_set_match_limit(compiled->limits.get(), kMaxSteps);
  pcre2_set_heap_limit(compiled->limits.get(), kMaxHeapKiB);
  // Where it fails (a system without), the interpreter matches: slower, the same.
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);
  return RegexSplitter(std::move(compiled));
}

Status RegexSplitter::Split(std::string_view text, std::vector<size_t>& ends) const {
  std::string symbols;
  symbols.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = CharAt(text, at);
    symbols.push_back(static_cast<char>(RegexSymbol(c.code_point)));
    at += c.bytes;
  }
  const MatchDataPtr data(pcre2_match_data_create(1, nullptr));
  if (data == nullptr) return {StatusCode::kResourceExhausted, "no memory"};
  const auto match = [&](size_t begin, uint32_t options) {
    return pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(symbols.data()),
                       symbols.size(), begin, options, data.get(), code_->limits.get());
  };
  size_t byte = 0;      // in text, of the character `begin` in symbols
  bool in_gap = false;  // the character before was in no match
  for (size_t begin = 0; begin < symbols.size();) {
    int count = match(begin, 0);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(begin, PCRE2_NO_JIT);
    if (count < 0 && count != PCRE2_ERROR_NOMATCH) {
      return Mismatch("text", StrCat("at byte ", byte, " \"", ErrorText(count), "\""),
                      StrCat("a match of the split pattern within ", kMaxSteps, " steps"));
    }
    const bool found = count >= 0;
    const size_t end = found ? pcre2_get_ovector_pointer(data.get())[1] : begin + 1;
    if (found && in_gap) ends.push_back(byte);
    for (; begin < end; ++begin) byte += CharAt(text, byte).bytes;
    if (found) ends.push_back(byte);
    in_gap = !found;
  }
  if (in_gap) ends.push_back(byte);
  return {};
}

}  // namespace lookback
