// Counts what a process allocates; linking allocations.cc replaces the global operator new.
#pragma once

#include <cstdint>

namespace lookback::testing {

/// Calls of operator new since the start, of all threads.
int64_t Allocations();

}  // namespace lookback::testing
