// Stop strings in a text that arrives in pieces.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lookback {

/// Finds the first stop string in a stream of text and holds back the text that could still become
/// one. One matcher a choice. Feed() takes O(stops) a byte, amortised, and allocates nothing while
/// a piece is at most kReservedBytes long. Movable only: a copied string would lose its reserve.
class StopMatcher {
 public:
  static constexpr size_t kReservedBytes = 1024;

  StopMatcher() = default;
  /// stops: non-empty strings, UTF-8. include_stop: the matched stop stays in the text; then
  /// nothing is ever held back.
  StopMatcher(std::span<const std::string> stops, bool include_stop);
  StopMatcher(StopMatcher&&) = default;
  StopMatcher& operator=(StopMatcher&&) = default;

  /// Appends to `out` all text that is certain once `text` has come. Returns the index of the stop
  /// that was found, or −1. The stop that ends first wins; of those that end at the same byte the
  /// longest, then the first in the list. After a match what follows it is dropped and every later
  /// call returns the same index. With may_stop false a stop that ends within `text` is passed over
  /// (before min_new_tokens). `text` must not view `out`.
  int32_t Feed(std::string_view text, std::string& out, bool may_stop = true);

  /// Appends what is held back: the stream is over. Nothing after a match.
  void Flush(std::string& out);

  /// Bytes held back now.
  size_t held_bytes() const { return held_.size(); }

 private:
  struct Stop {
    std::string text;
    // failure[n]: length of the longest proper border of the first n bytes (Knuth, Morris, Pratt).
    std::vector<uint32_t> failure;
    uint32_t matched = 0;  // longest prefix of `text` that the stream ends with
  };
  void Advance(Stop& stop, char byte);

  std::vector<Stop> stops_;
  bool include_stop_ = false;
  int32_t found_ = -1;
  std::string held_;  // may still become a stop; never more than the longest stop less a byte
};

}  // namespace lookback
