#include "tools/convert/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "engine/utf8.h"

namespace lookback::tools {

namespace {

constexpr size_t kMaxDepth = 16;

/// Thrown through yaml-cpp to end a parse at once; caught in ParseYaml().
struct Refusal {
  Status status;
};

template <typename T>
bool WholeText(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// "yes", "Yes" and "YES", but not "yEs".
bool IsWord(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  std::string upper(lower);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string capital(lower);
  capital[0] = upper[0];
  return text == lower || text == upper || text == capital;
}

Json PlainScalar(const std::string& text) {
  if (text.empty() || text == "~" || IsWord(text, "null")) return nullptr;
  for (const std::string_view word : {"true", "yes", "on"}) {
    if (IsWord(text, word)) return true;
  }
  for (const std::string_view word : {"false", "no", "off"}) {
    if (IsWord(text, word)) return false;
  }
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.empty() || std::isalpha(static_cast<unsigned char>(digits[0]))) return text;
  // A leading zero would be octal to PyYAML: whoever means 10 does not write 010.
  const bool octal = digits.size() > 1 && digits[0] == '0' &&
                     std::isdigit(static_cast<unsigned char>(digits[1])) != 0;
  int64_t whole = 0;
  double real = 0.0;
  if (!octal && WholeText(digits, whole)) return whole;
  if (!octal && WholeText(digits, real) && std::isfinite(real)) return real;
  return text;
}

/// Builds the value event by event.
class JsonBuilder : public YAML::EventHandler {
 public:
  explicit JsonBuilder(std::string_view what) : what_(what) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Check(mark, "", anchor);
    Add(mark, nullptr, "");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    Refuse(mark, "an alias", "plain values");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Check(mark, tag, anchor);
    Add(mark, tag == "!" ? Json(value) : PlainScalar(value), value);  // "!": it was quoted
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Check(mark, tag, anchor);
    Open(mark, Json::array());
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Check(mark, tag, anchor);
    Open(mark, Json::object());
  }
  void OnMapEnd() override { open_.pop_back(); }

  Json Take() { return std::move(root_); }

 private:
  /// An open container; `slot` is where the value of the last key goes.
  struct Container {
    Json* json;
    Json* slot = nullptr;
  };

  [[noreturn]] void Refuse(const YAML::Mark& mark, std::string_view got,
                           std::string_view expected) const {
    throw Refusal{Mismatch(StrCat("line ", mark.line + 1, " of ", what_), got, expected)};
  }
  void Check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != 0) Refuse(mark, "an anchor", "plain values");
    if (!tag.empty() && tag != "?" && tag != "!") {
      Refuse(mark, StrCat("the tag ", Quoted(tag)), "plain values");
    }
  }
  Json* Add(const YAML::Mark& mark, Json value, const std::string& text) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Container& parent = open_.back();
    if (parent.json->is_array()) {
      auto& array = *parent.json->get_ptr<Json::array_t*>();
      array.push_back(std::move(value));
      return &array.back();
    }
    if (parent.slot != nullptr) {
      Json* place = std::exchange(parent.slot, nullptr);
      *place = std::move(value);
      return place;
    }
    if (value.is_structured() || text == "<<") {
      Refuse(mark, text == "<<" ? "a merge key" : "a container as a key", "a name");
    }
    const auto [place, is_new] =
        parent.json->get_ptr<Json::object_t*>()->emplace(text, Json(nullptr));
    if (!is_new) Refuse(mark, StrCat("key ", Quoted(text), " twice"), "every key once");
    parent.slot = &place->second;
    return nullptr;
  }
  void Open(const YAML::Mark& mark, Json container) {
    if (open_.size() == kMaxDepth) {
      Refuse(mark, StrCat("more than ", kMaxDepth, " levels"), "less nesting");
    }
    open_.push_back({Add(mark, std::move(container), "")});
  }

  std::string_view what_;
  Json root_;
  std::vector<Container> open_;
};

}  // namespace

Result<Json> ParseYaml(std::string_view text, std::string_view what) {
  if (static_cast<int64_t>(text.size()) > kMaxYamlBytes) {
    return Mismatch(StrCat("size of ", what), StrCat(text.size(), " bytes"),
                    StrCat("at most ", kMaxYamlBytes));
  }
  if (!IsValidUtf8(text)) return Mismatch(what, "bytes that are not UTF-8", "YAML in UTF-8");
  if (text.find('\0') != std::string_view::npos) return Mismatch(what, "a NUL byte", "text");
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    JsonBuilder builder(what);
    if (!parser.HandleNextDocument(builder)) return Mismatch(what, "no document", "one");
    JsonBuilder second(what);
    if (parser.HandleNextDocument(second)) return Mismatch(what, "several documents", "one");
    return builder.Take();
  } catch (const Refusal& refusal) {
    return refusal.status;
  } catch (const YAML::Exception& error) {
    return Mismatch(StrCat("line ", error.mark.line + 1, " of ", what),
                    StrCat("a syntax error: ", Quoted(error.msg)), "YAML");
  } catch (const std::exception& error) {
    return Mismatch(what, StrCat("text that the parser refuses: ", Quoted(error.what())), "YAML");
  }
}

}  // namespace lookback::tools
