#include "tools/progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/status.h"

namespace lookback::tools {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 10.0;
constexpr int kBarCells = 24;

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string Amount(int64_t value, std::string_view unit) {
  return unit.empty() ? HumanBytes(value) : StrCat(value, " ", unit);
}

}  // namespace

std::string HumanBytes(int64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  const bool fraction = unit > 0 && value < 99.95;
  return StrCat(Fixed(value, fraction ? 1 : 0), " ", kUnits[unit]);
}

bool IsColourTerminal(int fd) {
  const char* terminal = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  return ::isatty(fd) == 1 && !(terminal != nullptr && std::strcmp(terminal, "dumb") == 0) &&
         !(no_colour != nullptr && *no_colour != '\0');
}

Progress::Progress(bool quiet) : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { Finish(); }

void Progress::Update(std::string_view stage, int64_t done, int64_t total, std::string_view unit) {
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  if (stage_ != stage) {
    Finish();
    stage_ = stage;
    started_ = now;
    drawn_ = now;
    line_open_ = terminal_;
    if (!terminal_) {
      std::fprintf(stderr, "%s %s\n", stage_.c_str(), Amount(total, unit).c_str());
      return;
    }
  } else {
    const double since = std::chrono::duration<double>(now - drawn_).count();
    if (since < (terminal_ ? kRedrawSeconds : kLineSeconds) && done < total) return;
    if (!terminal_ && since < kLineSeconds) return;
  }
  drawn_ = now;
  Draw(done, total, std::chrono::duration<double>(now - started_).count(), unit);
}

void Progress::Draw(int64_t done, int64_t total, double seconds, std::string_view unit) {
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
  const std::string percent = Fixed(100.0 * share, 0);
  std::string left;
  if (share > 0.0 && share < 1.0 && seconds > 0.5) {
    left = StrCat(", ", Fixed(seconds * (1.0 - share) / share, 0), " s left");
  }
  if (!terminal_) {
    if (done >= total) return;
    std::fprintf(stderr, "%s %s%% of %s%s\n", stage_.c_str(), percent.c_str(),
                 Amount(total, unit).c_str(), left.c_str());
    return;
  }
  const int filled = std::clamp(static_cast<int>(share * kBarCells), 0, kBarCells);
  std::string bar;
  for (int i = 0; i < kBarCells; ++i) bar += i < filled ? "█" : "░";
  std::fprintf(stderr, "\r%s %s %s of %s, %s%%%s\033[K", stage_.c_str(), bar.c_str(),
               Amount(done, unit).c_str(), Amount(total, unit).c_str(), percent.c_str(),
               left.c_str());
  std::fflush(stderr);
}

void Progress::Finish() {
  if (line_open_) std::fputc('\n', stderr);
  line_open_ = false;
}

}  // namespace lookback::tools
