// JSON from outside: size, depth and duplicate keys are checked before anything is read from it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "engine/status.h"

namespace lookback {

using Json = nlohmann::json;

/// The largest of most integers in our files: windows, token ids, sizes.
inline constexpr int64_t kMaxInt32 = INT32_MAX;

/// Parses one JSON document. `what` names the source in errors ("config.json"). Refuses more than
/// `max_bytes`, nesting deeper than 64, duplicate keys and invalid UTF-8.
Result<Json> ParseJson(std::string_view text, std::string_view what,
                       int64_t max_bytes = int64_t{64} << 20);

/// Reads the file at `path` (at most `max_bytes`) and parses it.
Result<Json> ReadJsonFile(const std::string& path, int64_t max_bytes = int64_t{64} << 20);

/// The text around byte `position`, quoted: what a syntax error is about.
std::string QuotedNear(std::string_view text, size_t position);

/// The bytes of the regular file at `path`; more than `max_bytes` are refused.
Result<std::string> ReadTextFile(const std::string& path, int64_t max_bytes = int64_t{64} << 20);

/// `value` as text; bytes that are not UTF-8 become U+FFFD. An `indent` >= 0 breaks lines.
std::string DumpJson(const Json& value, int indent = -1);

/// `value` as an integer or a number, where it is one (an integer also fits int64).
std::optional<int64_t> JsonInt(const Json& value);
std::optional<double> JsonNumber(const Json& value);

/// The type of `value` and, where short, the value itself, for the "got" of an error.
std::string DescribeJson(const Json& value);

/// Whether there is anything under that name; false too where that cannot be told.
bool FileExists(const std::string& path);

/// Typed reads of one JSON object. Every error names `where` and the key.
class JsonObject {
 public:
  /// InvalidArgument if `value` is not an object. Keeps a reference: `value` must outlive it.
  static Result<JsonObject> From(const Json& value, std::string where);

  /// Null where the key is absent or null.
  const Json* Find(std::string_view key) const;
  const std::string& where() const { return where_; }
  const Json& json() const { return *value_; }

  /// An absent or null key gives `fallback`, or an error if there is none. A number of another type
  /// or outside [low, high] is an error that says so.
  Result<int64_t> Int(std::string_view key, int64_t low, int64_t high,
                      std::optional<int64_t> fallback = std::nullopt) const;
  /// Finite only.
  Result<double> Number(std::string_view key, double low, double high,
                        std::optional<double> fallback = std::nullopt) const;
  Result<bool> Bool(std::string_view key, std::optional<bool> fallback = std::nullopt) const;
  Result<std::string> String(std::string_view key,
                             std::optional<std::string> fallback = std::nullopt) const;

 private:
  JsonObject(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}
  Status Error(std::string_view key, std::string_view expected) const;

  const Json* value_;
  std::string where_;
};

}  // namespace lookback
