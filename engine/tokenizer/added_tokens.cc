#include "engine/tokenizer/added_tokens.h"

#include <algorithm>

#include "engine/tokenizer/char_class.h"

namespace lookback {
namespace {

bool IsSpace(char32_t c) { return CharProperties(c).char_class() == CharClass::kSpace; }

bool IsWordBefore(std::string_view text, size_t at) {
  return at > 0 && CharProperties(CharBefore(text, at).code_point).is_word();
}

bool IsWordAt(std::string_view text, size_t at) {
  return at < text.size() && CharProperties(CharAt(text, at).code_point).is_word();
}

size_t SpacesBegin(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    const Utf8Char c = CharBefore(text, end);
    if (!IsSpace(c.code_point)) break;
    end -= c.bytes;
  }
  return end;
}

size_t SpacesEnd(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Char c = CharAt(text, begin);
    if (!IsSpace(c.code_point)) break;
    begin += c.bytes;
  }
  return begin;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher() { roots_.fill(-1); }

int32_t AddedTokenMatcher::FindChild(int32_t first, uint8_t byte) const {
  int32_t node = first;
  while (node >= 0 && nodes_[static_cast<size_t>(node)].byte != byte) {
    node = nodes_[static_cast<size_t>(node)].sibling;
  }
  return node;
}

void AddedTokenMatcher::Add(const AddedToken& token, std::string_view pattern) {
  int32_t parent = -1;
  for (const char c : pattern) {
    const auto byte = static_cast<uint8_t>(c);
    const int32_t first = parent < 0 ? roots_[byte] : nodes_[static_cast<size_t>(parent)].child;
    int32_t node = FindChild(first, byte);
    if (node < 0) {
      node = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({byte, -1, -1, parent < 0 ? -1 : first});
      (parent < 0 ? roots_[byte] : nodes_[static_cast<size_t>(parent)].child) = node;
    }
    parent = node;
  }
  if (parent < 0 || nodes_[static_cast<size_t>(parent)].token >= 0) return;
  nodes_[static_cast<size_t>(parent)].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip});
}

// The longest token at `begin`, as an index into tokens_, and its end; −1 if there is none.
int32_t AddedTokenMatcher::Longest(std::string_view text, size_t begin, size_t& end) const {
  int32_t found = -1;
  int32_t node = roots_[static_cast<uint8_t>(text[begin])];
  for (size_t at = begin + 1; node >= 0; ++at) {
    const Node& here = nodes_[static_cast<size_t>(node)];
    if (here.token >= 0) {
      found = here.token;
      end = at;
    }
    if (at == text.size()) break;
    node = FindChild(here.child, static_cast<uint8_t>(text[at]));
  }
  return found;
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::Split(std::string_view text) const {
  std::vector<Part> parts;
  size_t done = 0;        // where the previous token ended, its spaces included
  size_t spaces_end = 0;  // end of the run of spaces last measured: not measured again from inside
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    size_t end = 0;
    const int32_t found = Longest(text, at, end);
    if (found < 0) {
      ++at;
      continue;
    }
    const Flags& token = tokens_[static_cast<size_t>(found)];
    size_t begin = at;
    at = end;  // the search goes on here, also where this match is dropped
    if (token.single_word && (IsWordBefore(text, begin) || IsWordAt(text, end))) continue;
    if (token.lstrip) begin = std::max(SpacesBegin(text, begin, std::min(done, begin)), done);
    if (token.rstrip) {
      if (end >= spaces_end) spaces_end = SpacesEnd(text, end);
      end = spaces_end;
    }
    // Nothing is left of a token of spaces that the previous one took.
    if (begin > end) continue;
    if (done < begin) parts.push_back({-1, text.substr(done, begin - done)});
    if (begin < end) parts.push_back({token.id, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, text.substr(done)});
  return parts;
}

}  // namespace lookback
