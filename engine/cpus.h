// The CPUs of this machine: which there are for us, lists of them, threads that stay on one.
#pragma once

#include <sched.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"

namespace lookback {

/// The CPUs that the calling thread may run on, ascending (sched_getaffinity: what taskset and
/// containers set). Empty if the system does not say.
std::vector<int> UsableCpus();

/// What "0 threads" stands for: one a usable CPU, but no more than the CPU time that the process
/// may take (a cgroup's quota, rounded up); at least one. `root` as in AvailableMemoryBytes().
int64_t ThreadsOfMachine(const std::string& root = "");

/// Reads a list as taskset and cpuset have it, "0-3,8" or "0-30:2" for every second, and keeps its
/// order. InvalidArgument, without the name of the flag, if it is none, has a CPU twice or one that
/// is not in `usable`.
Result<std::vector<int>> ParseCpus(std::string_view text, std::span<const int> usable);

/// {0, 1, 2, 8} as "0-2,8": what ParseCpus() reads.
std::string CpuList(std::span<const int> cpus);

/// Settles how many threads compute and where: 0 threads are one a CPU of `cpus`, or
/// ThreadsOfMachine() where that is empty; of more `cpus` than threads the first stay.
/// InvalidArgument if `threads` is out of range or more than `cpus`.
Status ResolveThreads(int64_t& threads, std::vector<int>& cpus);

/// Keeps the thread that makes it on one CPU and, when it goes, lets it run again where it could
/// before. Threads made meanwhile would inherit the CPU.
class PinnedThread {
 public:
  PinnedThread() = default;  ///< leaves the thread alone
  explicit PinnedThread(int cpu);
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

 private:
  bool pinned_ = false;
  cpu_set_t before_;
};

}  // namespace lookback
