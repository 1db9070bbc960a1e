#include "engine/json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>

namespace lookback {

namespace {

constexpr size_t kMaxDepth = 64;

/// Builds the document event by event, so that depth and duplicate keys are refused before they
/// cost anything, and a syntax error knows its place.
class DocumentBuilder : public nlohmann::json_sax<Json> {
 public:
  DocumentBuilder(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*elements*/) override { return Open(Json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(size_t /*elements*/) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }

  bool key(string_t& value) override {
    auto& object = *open_.back()->get_ptr<Json::object_t*>();
    const auto [place, is_new] = object.emplace(value, nullptr);
    if (!is_new) {
      status_ = Mismatch(StrCat("keys in ", what_), StrCat("key ", Quoted(value), " twice"),
                         "every key once");
      return false;
    }
    slot_ = &place->second;
    return true;
  }

  bool parse_error(size_t position, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    status_ = Mismatch(
        what_,
        StrCat("a JSON syntax error at byte ", position, " near ", QuotedNear(text_, position)),
        "one JSON document in UTF-8");
    return false;
  }

  Result<Json> Take(bool parsed) {
    if (!status_.ok()) return status_;
    if (!parsed) return Mismatch(what_, "a JSON syntax error", "one JSON document in UTF-8");
    return std::move(root_);
  }

 private:
  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& array = *parent.get_ptr<Json::array_t*>();
      array.push_back(std::move(value));
      return &array.back();
    }
    *slot_ = std::move(value);
    return slot_;
  }
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(Json container) {
    if (open_.size() == kMaxDepth) {
      status_ = Mismatch(StrCat("nesting in ", what_), StrCat("more than ", kMaxDepth, " levels"),
                         StrCat("at most ", kMaxDepth));
      return false;
    }
    open_.push_back(Place(std::move(container)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  std::string_view what_;
  Json root_;
  // A container grows only while it is the innermost open one, so these pointers stay valid.
  std::vector<Json*> open_;
  Json* slot_ = nullptr;
  Status status_;
};

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<Json> ParseJson(std::string_view text, std::string_view what, int64_t max_bytes) {
  if (static_cast<int64_t>(text.size()) > max_bytes) {
    return Mismatch(StrCat("size of ", what), StrCat(text.size(), " bytes"),
                    StrCat("at most ", max_bytes));
  }
  DocumentBuilder builder(text, what);
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.Take(parsed);
}

std::string QuotedNear(std::string_view text, size_t position) {
  constexpr size_t kBefore = 12;
  constexpr size_t kShown = 24;
  const size_t end = std::min(position, text.size());
  return Quoted(text.substr(end - std::min(end, kBefore), kShown));
}

Result<std::string> ReadTextFile(const std::string& path, int64_t max_bytes) {
  // O_NONBLOCK: opening a FIFO must not hang before fstat can refuse it.
  const FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return IoError("cannot open", path, errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return IoError("cannot read", path, errno);
  if (!S_ISREG(info.st_mode)) return Mismatch(path, "no regular file", "a regular file");
  if (info.st_size > max_bytes) {
    return Mismatch(StrCat("size of ", path), StrCat(info.st_size, " bytes"),
                    StrCat("at most ", max_bytes));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t count = ::read(file.fd, text.data() + have, text.size() - have);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return IoError("cannot read", path, errno);
    if (count == 0) break;
    have += static_cast<size_t>(count);
  }
  text.resize(have);
  return text;
}

bool FileExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Result<Json> ReadJsonFile(const std::string& path, int64_t max_bytes) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, max_bytes));
  return ParseJson(text, path, max_bytes);
}

std::string DescribeJson(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return *value.get_ptr<const bool*>() ? "true" : "false";
    case Json::value_t::number_integer:
      return StrCat(*value.get_ptr<const Json::number_integer_t*>());
    case Json::value_t::number_unsigned:
      return StrCat(*value.get_ptr<const Json::number_unsigned_t*>());
    case Json::value_t::number_float:
      return StrCat(*value.get_ptr<const double*>());
    case Json::value_t::string:
      return Quoted(*value.get_ptr<const std::string*>());
    case Json::value_t::array:
      return StrCat("an array of ", value.size());
    case Json::value_t::object:
      return StrCat("an object of ", value.size(), " keys");
    default:
      return "something else";
  }
}

std::string DumpJson(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::optional<int64_t> JsonInt(const Json& value) {
  if (const auto* whole = value.get_ptr<const Json::number_unsigned_t*>()) {
    if (*whole > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(*whole);
  }
  if (const auto* whole = value.get_ptr<const Json::number_integer_t*>()) return *whole;
  return std::nullopt;
}

std::optional<double> JsonNumber(const Json& value) {
  if (const auto* real = value.get_ptr<const double*>()) return *real;
  if (const auto* whole = value.get_ptr<const Json::number_unsigned_t*>()) {
    return static_cast<double>(*whole);
  }
  if (const auto* whole = value.get_ptr<const Json::number_integer_t*>()) {
    return static_cast<double>(*whole);
  }
  return std::nullopt;
}

Result<JsonObject> JsonObject::From(const Json& value, std::string where) {
  if (!value.is_object()) return Mismatch(where, DescribeJson(value), "a JSON object");
  return JsonObject(value, std::move(where));
}

const Json* JsonObject::Find(std::string_view key) const {
  const auto& object = *value_->get_ptr<const Json::object_t*>();
  const auto found = object.find(std::string(key));
  return found == object.end() || found->second.is_null() ? nullptr : &found->second;
}

Status JsonObject::Error(std::string_view key, std::string_view expected) const {
  const Json* value = Find(key);
  return Mismatch(StrCat(key, " in ", where_),
                  value == nullptr ? std::string("nothing") : DescribeJson(*value), expected);
}

Result<int64_t> JsonObject::Int(std::string_view key, int64_t low, int64_t high,
                                std::optional<int64_t> fallback) const {
  const Json* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  const std::optional<int64_t> number = value == nullptr ? std::nullopt : JsonInt(*value);
  if (!number.has_value() || *number < low || *number > high) {
    return Error(key, StrCat("an integer from ", low, " to ", high));
  }
  return *number;
}

Result<double> JsonObject::Number(std::string_view key, double low, double high,
                                  std::optional<double> fallback) const {
  const Json* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  const std::optional<double> number = value == nullptr ? std::nullopt : JsonNumber(*value);
  if (!number.has_value() || !std::isfinite(*number) || *number < low || *number > high) {
    return Error(key, StrCat("a number from ", low, " to ", high));
  }
  return *number;
}

Result<bool> JsonObject::Bool(std::string_view key, std::optional<bool> fallback) const {
  const Json* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value == nullptr || !value->is_boolean()) return Error(key, "true or false");
  return *value->get_ptr<const bool*>();
}

Result<std::string> JsonObject::String(std::string_view key,
                                       std::optional<std::string> fallback) const {
  const Json* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *std::move(fallback);
  if (value == nullptr || !value->is_string()) return Error(key, "a string");
  return *value->get_ptr<const std::string*>();
}

}  // namespace lookback
