// Added tokens: texts that are cut out before anything else looks at the text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lookback {

/// Longest added token accepted, bytes: a text is searched in time proportional to it.
inline constexpr size_t kMaxAddedTokenBytes = 512;

/// One token of `added_tokens`.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< only where no word character is beside it
  bool lstrip = false;       ///< takes the spaces before it
  bool rstrip = false;       ///< and after it
  bool normalized = false;   ///< searched in the normalized text, its content normalized too
  bool special = false;
};

/// Finds a set of added tokens. Immutable.
class AddedTokenMatcher {
 public:
  /// A part of a text: a token, or what lies between two.
  struct Part {
    int32_t id;  ///< −1: no token
    std::string_view text;
  };

  AddedTokenMatcher();

  /// Adds a token that is found where `pattern` is, at most kMaxAddedTokenBytes and not empty. Of
  /// two with the same pattern the first stays.
  void Add(const AddedToken& token, std::string_view pattern);

  /// Cuts `text`, valid UTF-8: at each place the longest token, from left to right. Never yields an
  /// empty part between tokens. Source: AddedVocabulary::find_matches of the tokenizers library.
  std::vector<Part> Split(std::string_view text) const;

 private:
  // A trie: the children of a node are a list. The root's are in roots_.
  struct Node {
    uint8_t byte;
    int32_t token = -1;  // in tokens_, if one ends here
    int32_t child = -1;
    int32_t sibling = -1;
  };
  struct Flags {
    int32_t id;
    bool single_word;
    bool lstrip;
    bool rstrip;
  };

  int32_t FindChild(int32_t first, uint8_t byte) const;
  int32_t Longest(std::string_view text, size_t begin, size_t& end) const;

  std::array<int32_t, 256> roots_;
  std::vector<Node> nodes_;
  std::vector<Flags> tokens_;
};

}  // namespace lookback
