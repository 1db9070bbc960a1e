// Cuts a text into pre-tokens: the pieces that merging never crosses.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/status.h"
#include "engine/tokenizer/regex_splitter.h"
#include "engine/tokenizer/splitter.h"

namespace lookback {

/// The steps of a pre_tokenizer, in order; each cuts the pieces of the one before. Immutable.
class PreTokenizer {
 public:
  struct Digits {
    bool individual;  ///< every digit a piece of its own, else every run of digits
  };
  struct PrefixSpace {};  ///< ByteLevel(add_prefix_space): a space before a piece that has none
  using Step = std::variant<Digits, PrefixSpace, KnownPattern, RegexSplitter>;

  /// Takes the pieces, in order. A piece is valid during the call alone.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void Take(std::string_view piece) = 0;
  };

  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  /// Cuts `text`, valid UTF-8. InvalidArgument if a split pattern exceeds its limits.
  Status Split(std::string_view text, Sink& sink) const { return Run(0, text, sink); }

 private:
  Status Run(size_t step, std::string_view text, Sink& sink) const;

  std::vector<Step> steps_;
};

}  // namespace lookback
