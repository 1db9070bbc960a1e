#include "engine/status.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "engine/utf8.h"

namespace lookback {

namespace internal {
void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: internal error: %s does not hold\n", file, line, condition);
  std::abort();
}
}  // namespace internal

namespace {

constexpr size_t kQuotedBytes = 80;

}  // namespace

Status::Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  size_t i = 0;
  while (i < text.size() && i < kQuotedBytes) {
    const Utf8Head head = DecodeUtf8Head(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (head.kind != Utf8Head::kComplete || byte < 0x20 || byte == 0x7F) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02X", byte);
      out += escaped;
      ++i;
      continue;
    }
    if (byte == '"' || byte == '\\') out += '\\';
    out.append(text.substr(i, head.length));
    i += head.length;
  }
  out += i < text.size() ? "…\"" : "\"";
  return out;
}

Status IoError(std::string_view what, std::string_view path, int error_number) {
  const StatusCode code = error_number == ENOENT ? StatusCode::kNotFound : StatusCode::kIo;
  return {code, StrCat(what, " ", path, ": ", std::generic_category().message(error_number))};
}

}  // namespace lookback
