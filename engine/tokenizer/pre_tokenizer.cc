#include "engine/tokenizer/pre_tokenizer.h"

#include "engine/tokenizer/char_class.h"

namespace lookback {
namespace {

// The end of the piece at `begin`: one digit or a run of them, or all up to the next digit.
size_t DigitsEnd(bool individual, std::string_view text, size_t begin) {
  Utf8Char c = CharAt(text, begin);
  const bool digit = CharProperties(c.code_point).is_digit();
  size_t end = begin + c.bytes;
  while (end < text.size() && !(digit && individual)) {
    c = CharAt(text, end);
    if (CharProperties(c.code_point).is_digit() != digit) break;
    end += c.bytes;
  }
  return end;
}

}  // namespace

Status PreTokenizer::Run(size_t step, std::string_view text, Sink& sink) const {
  if (text.empty()) return {};
  if (step == steps_.size()) {
    sink.Take(text);
    return {};
  }
  if (std::holds_alternative<PrefixSpace>(steps_[step])) {
    if (text.front() == ' ') return Run(step + 1, text, sink);
    return Run(step + 1, StrCat(' ', text), sink);
  }
  if (const auto* regex = std::get_if<RegexSplitter>(&steps_[step])) {
    std::vector<size_t> ends;
    LOOKBACK_RETURN_IF_ERROR(regex->Split(text, ends));
    size_t begin = 0;
    for (const size_t end : ends) {
      LOOKBACK_RETURN_IF_ERROR(Run(step + 1, text.substr(begin, end - begin), sink));
      begin = end;
    }
    return {};
  }
  const auto* digits = std::get_if<Digits>(&steps_[step]);
  const auto* pattern = std::get_if<KnownPattern>(&steps_[step]);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = digits != nullptr ? DigitsEnd(digits->individual, text, begin)
                                         : MatchEnd(*pattern, text, begin);
    LOOKBACK_RETURN_IF_ERROR(Run(step + 1, text.substr(begin, end - begin), sink));
    begin = end;
  }
  return {};
}

}  // namespace lookback
