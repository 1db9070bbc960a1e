// Errors as values. Outside input gets a Status that says what, where, got and expected; a
// programmer error gets LOOKBACK_CHECK. Nothing throws across a folder.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace lookback {

/// What kind of failure a Status reports. The server alone maps these to gRPC codes.
enum class StatusCode {
  kOk,
  kInvalidArgument,     ///< bad input: file, request or flag
  kNotFound,            ///< a named thing does not exist
  kResourceExhausted,   ///< no room, ever (larger than the pool)
  kBusy,                ///< no room now (the queue is full): trying again later helps
  kFailedPrecondition,  ///< the call does not fit the state (a model without tokenizer, say)
  kUnavailable,         ///< draining or not ready
  kCancelled,
  kDeadlineExceeded,
  kIo,        ///< the operating system refused a read, write, map or rename
  kInternal,  ///< a fault of ours
};

/// Success or an error with one line of text for a person.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message);

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  /// The same error with "`prefix`: " in front of its message; OK stays OK.
  Status WithPrefix(std::string_view prefix) && {
    if (!ok()) message_.insert(0, std::string(prefix) + ": ");
    return std::move(*this);
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

/// A value or the Status that says why there is none. Never holds an OK status.
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  Status status() const& { return ok() ? Status() : std::get<1>(state_); }
  Status status() && { return ok() ? Status() : std::move(std::get<1>(state_)); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

namespace internal {
inline void AppendPiece(std::string& out, std::string_view piece) { out.append(piece); }
inline void AppendPiece(std::string& out, char piece) { out.push_back(piece); }
// A template, so that a string literal (a pointer, which would convert to bool) does not fit.
template <typename T>
requires(std::is_same_v<T, bool>) void AppendPiece(std::string& out, T piece) {
  out.append(piece ? "true" : "false");
}
template <typename T>
requires(std::is_arithmetic_v<T> && !std::is_same_v<T, char> &&
         !std::is_same_v<T, bool>) void AppendPiece(std::string& out, T number) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number);
  out.append(buffer, end.ptr);
}
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}  // namespace internal

/// Joins strings, characters, bools and numbers (shortest round-trip form) into one string.
template <typename... Pieces>
std::string StrCat(const Pieces&... pieces) {
  std::string out;
  (internal::AppendPiece(out, pieces), ...);
  return out;
}

template <typename... Pieces>
Status InvalidArgument(const Pieces&... pieces) {
  return {StatusCode::kInvalidArgument, StrCat(pieces...)};
}

/// The house form of a refusal: "WHAT: got GOT, expected EXPECTED". `what` names the field or the
/// file and the place in it. Strings in `got` come from outside: pass them through Quoted().
template <typename Got, typename Expected>
Status Mismatch(std::string_view what, const Got& got, const Expected& expected) {
  return InvalidArgument(what, ": got ", got, ", expected ", expected);
}

/// `text` in double quotes, control bytes and invalid UTF-8 escaped as \xNN, cut at 80 bytes: safe
/// to print and to send.
std::string Quoted(std::string_view text);

/// An I/O error with the reason of `error_number` (errno): "WHAT PATH: reason".
Status IoError(std::string_view what, std::string_view path, int error_number);

}  // namespace lookback

#define LOOKBACK_RETURN_IF_ERROR(expression)             \
  do {                                                   \
    ::lookback::Status lookback_status_ = (expression);  \
    if (!lookback_status_.ok()) return lookback_status_; \
  } while (false)

#define LOOKBACK_CONCAT_INNER_(a, b) a##b
#define LOOKBACK_CONCAT_(a, b) LOOKBACK_CONCAT_INNER_(a, b)
#define LOOKBACK_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return std::move(result).status();              \
  declaration = std::move(result).value()
/// LOOKBACK_ASSIGN_OR_RETURN(auto x, F()): x = *F(), or returns F()'s Status.
#define LOOKBACK_ASSIGN_OR_RETURN(declaration, expression) \
  LOOKBACK_ASSIGN_OR_RETURN_(LOOKBACK_CONCAT_(lookback_result_, __LINE__), declaration, expression)

/// Programmer error: prints condition and place, then aborts. Never for outside input.
#define LOOKBACK_CHECK(condition)                                                        \
  do {                                                                                   \
    if (!(condition)) ::lookback::internal::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)
