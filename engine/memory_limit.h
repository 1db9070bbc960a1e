// How much memory a process may still take: what the machine has, and what a container allows.
#pragma once

#include <cstdint>
#include <string>

namespace lookback {

/// Bytes that this process may still take: the least of the system's estimate (MemAvailable), of
/// what every memory cgroup above it leaves (v2 and v1; pages of files that the kernel would drop
/// count as free), and of its own RLIMIT_AS and RLIMIT_DATA. What cannot be read does not limit;
/// the largest int64_t where nothing does. `root` goes before the paths of /proc and /sys, for
/// tests.
int64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace lookback
