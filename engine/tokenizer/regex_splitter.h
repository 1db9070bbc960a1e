// Split patterns that we do not know by heart, matched by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/status.h"

namespace lookback {

/// A compiled pattern. Immutable, so that threads may share it.
class RegexSplitter {
 public:
  /// Refuses by name what TranslateRegex refuses, and a pattern that matches the empty text.
  static Result<RegexSplitter> Make(std::string_view regex);
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;
  ~RegexSplitter();

  /// Appends to `ends` where the pieces of `text`, valid UTF-8, end: every match is one, and so is
  /// all that lies between two. InvalidArgument if a match takes more steps than we allow.
  Status Split(std::string_view text, std::vector<size_t>& ends) const;

 private:
  struct Code;
  explicit RegexSplitter(std::unique_ptr<Code> code);

  std::unique_ptr<Code> code_;
};

}  // namespace lookback
