#include "tools/convert/interrupt.h"

#include <signal.h>

namespace lookback::tools {

namespace {

volatile sig_atomic_t pending = 0;
struct sigaction previous_int {};
struct sigaction previous_term {};

void OnSignal(int signal) { pending = signal; }

}  // namespace

InterruptGuard::InterruptGuard() {
  pending = 0;
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &previous_int);
  sigaction(SIGTERM, &action, &previous_term);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
  pending = 0;
}

int PendingInterrupt() { return pending; }

Status CheckInterrupt() {
  if (pending == 0) return {};
  return {StatusCode::kCancelled, "interrupted: nothing was written"};
}

}  // namespace lookback::tools
