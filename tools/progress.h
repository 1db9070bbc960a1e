// How far a long command is: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace lookback::tools {

/// "6.5 MB": bytes for people, decimal units.
std::string HumanBytes(int64_t bytes);

/// Writes to stderr. On a terminal one line that is drawn over itself (bar, bytes, percent, time
/// left), elsewhere a line a stage and one every ten seconds. Quiet: nothing.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of `total` bytes of `stage`, or of what `unit` names. A new stage starts a new line.
  void Update(std::string_view stage, int64_t done, int64_t total, std::string_view unit = {});
  /// Ends the line that is being drawn.
  void Finish();

 private:
  using Clock = std::chrono::steady_clock;
  void Draw(int64_t done, int64_t total, double seconds, std::string_view unit);

  bool quiet_;
  bool terminal_;
  bool line_open_ = false;
  std::string stage_;
  Clock::time_point started_;
  Clock::time_point drawn_;
};

/// True if colour and cursor movement may be written to file descriptor `fd`: a terminal, not
/// "dumb", and NO_COLOR unset.
bool IsColourTerminal(int fd);

}  // namespace lookback::tools
