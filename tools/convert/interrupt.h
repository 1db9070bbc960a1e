// SIGINT and SIGTERM as a flag, so that a conversion can remove what it has begun.
#pragma once

#include "engine/status.h"

namespace lookback::tools {

/// While this lives, SIGINT and SIGTERM set a flag instead of ending the process. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

/// The signal that came since the guard was made; 0 if none has.
int PendingInterrupt();
/// Cancelled if one has.
Status CheckInterrupt();

}  // namespace lookback::tools
