#include "server/log.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

namespace lookback::server {
namespace {

/// RFC 3339, UTC, milliseconds.
std::string TimeStamp() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + size, sizeof text - size, ".%03dZ", static_cast<int>(ms % 1000));
  return text;
}

}  // namespace

void LogLine(std::string_view event, Json fields) {
  fields["time"] = TimeStamp();
  fields["event"] = event;
  // A request id is the client's: invalid UTF-8 cannot get here, but nothing should throw if it
  // does.
  std::string line = fields.dump(-1, ' ', false, Json::error_handler_t::replace);
  line.push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call: lines of two threads never mix
}

}  // namespace lookback::server
