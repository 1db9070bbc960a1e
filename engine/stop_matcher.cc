#include "engine/stop_matcher.h"

#include <algorithm>

#include "engine/status.h"

namespace lookback {

StopMatcher::StopMatcher(std::span<const std::string> stops, bool include_stop)
    : include_stop_(include_stop) {
  size_t longest = 0;
  for (const std::string& text : stops) {
    LOOKBACK_CHECK(!text.empty());
    longest = std::max(longest, text.size());
    Stop& stop = stops_.emplace_back();
    stop.text = text;
    stop.failure.assign(text.size() + 1, 0);
    uint32_t border = 0;
    for (size_t i = 1; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[border]) border = stop.failure[border];
      if (text[i] == text[border]) ++border;
      stop.failure[i + 1] = border;
    }
  }
  if (!stops_.empty()) held_.reserve(longest + kReservedBytes);
}

void StopMatcher::Advance(Stop& stop, char byte) {
  if (stop.matched == stop.text.size()) stop.matched = stop.failure[stop.matched];
  while (stop.matched > 0 && stop.text[stop.matched] != byte) {
    stop.matched = stop.failure[stop.matched];
  }
  if (stop.text[stop.matched] == byte) ++stop.matched;
}

int32_t StopMatcher::Feed(std::string_view text, std::string& out, bool may_stop) {
  if (found_ >= 0) return found_;
  if (stops_.empty()) {
    out.append(text);
    return -1;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    size_t found_bytes = 0;
    for (size_t s = 0; s < stops_.size(); ++s) {
      Stop& stop = stops_[s];
      Advance(stop, text[i]);
      if (!may_stop || stop.matched < stop.text.size() || stop.matched <= found_bytes) continue;
      found_ = static_cast<int32_t>(s);
      found_bytes = stop.text.size();
    }
    if (found_ < 0) continue;
    held_.append(text.substr(0, i + 1));
    if (!include_stop_) held_.resize(held_.size() - found_bytes);
    out.append(held_);
    held_.clear();
    return found_;
  }
  size_t hold = 0;
  for (const Stop& stop : stops_) {
    // A stop that was passed over is part of the text: only its border may begin another.
    const bool passed = stop.matched == stop.text.size();
    hold = std::max<size_t>(hold, passed ? stop.failure[stop.matched] : stop.matched);
  }
  held_.append(text);
  if (include_stop_) hold = 0;
  out.append(held_, 0, held_.size() - hold);
  held_.erase(0, held_.size() - hold);
  return -1;
}

void StopMatcher::Flush(std::string& out) {
  out.append(held_);
  held_.clear();
}

}  // namespace lookback
