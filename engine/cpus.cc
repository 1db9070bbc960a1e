#include "engine/cpus.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <thread>

#include "engine/cgroup.h"

namespace lookback {
namespace {

constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// CPUs that are busy all the time when `quota` is used up in each `period`.
int64_t CpusOfQuota(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return kUnlimited;
  return quota / period + (quota % period != 0 ? 1 : 0);
}

int64_t CpusOfCgroupV2(const std::string& folder) {
  int64_t quota = 0, period = 0;  // "max 100000" is no number
  std::ifstream(folder + "/cpu.max") >> quota >> period;
  return CpusOfQuota(quota, period);
}

int64_t CpusOfCgroupV1(const std::string& folder) {
  int64_t quota = 0, period = 0;  // -1 is no limit
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return CpusOfQuota(quota, period);
}

bool Take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

bool TakeNumber(std::string_view& text, uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number >= CPU_SETSIZE) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

/// Appends the CPUs of "8", "0-3" or "0-30:2".
bool AppendRange(std::string_view range, std::vector<int>& cpus) {
  uint32_t first = 0, step = 1;
  if (!TakeNumber(range, first)) return false;
  uint32_t last = first;
  if (Take(range, '-')) {
    if (!TakeNumber(range, last)) return false;
    if (Take(range, ':') && !TakeNumber(range, step)) return false;
  }
  if (!range.empty() || last < first || step == 0) return false;
  for (uint32_t cpu = first; cpu <= last; cpu += step) cpus.push_back(static_cast<int>(cpu));
  return true;
}

}  // namespace

std::vector<int> UsableCpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

int64_t ThreadsOfMachine(const std::string& root) {
  // The library's own number is that of the machine: it does not know of the mask.
  const std::vector<int> usable = UsableCpus();
  const int64_t cpus = usable.empty() ? std::thread::hardware_concurrency() : std::ssize(usable);
  const int64_t quota = LeastOfCgroups(root, "cpu", CpusOfCgroupV2, CpusOfCgroupV1);
  return std::max<int64_t>(1, std::min({cpus, quota, kMaxThreads}));
}

Result<std::vector<int>> ParseCpus(std::string_view text, std::span<const int> usable) {
  std::vector<int> cpus;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    const std::string_view range = text.substr(0, comma);
    if (!AppendRange(range, cpus)) {
      return InvalidArgument("got ", Quoted(range), ", expected CPUs from 0 to ", CPU_SETSIZE - 1,
                             ", as in 0-3,8");
    }
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  for (auto cpu = cpus.begin(); cpu != cpus.end(); ++cpu) {
    if (std::find(usable.begin(), usable.end(), *cpu) == usable.end()) {
      return InvalidArgument("got ", *cpu, ", expected CPUs of ", CpuList(usable),
                             ": where this process may run");
    }
    if (std::find(cpus.begin(), cpu, *cpu) != cpu) {
      return InvalidArgument("got ", *cpu, " twice, expected each CPU once");
    }
  }
  return cpus;
}

std::string CpuList(std::span<const int> cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size(); ++i) {
    const size_t first = i;
    while (i + 1 < cpus.size() && cpus[i + 1] == cpus[i] + 1) ++i;
    text += StrCat(text.empty() ? "" : ",", cpus[first]);
    if (i > first) text += StrCat("-", cpus[i]);
  }
  return text;
}

Status ResolveThreads(int64_t& threads, std::vector<int>& cpus) {
  if (threads == 0) threads = cpus.empty() ? ThreadsOfMachine() : std::ssize(cpus);
  if (threads < 1 || threads > kMaxThreads) {
    return Mismatch("threads", threads, StrCat("1 to ", kMaxThreads));
  }
  if (cpus.empty()) return {};
  if (threads > std::ssize(cpus)) {
    return Mismatch("threads", threads,
                    StrCat("at most ", cpus.size(), ", one for each of the CPUs ", CpuList(cpus)));
  }
  cpus.resize(static_cast<size_t>(threads));
  return {};
}

PinnedThread::PinnedThread(int cpu) {
  if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  // A CPU that was taken from us since it was checked is no error: where a thread runs changes no
  // result.
  pinned_ = sched_setaffinity(0, sizeof set, &set) == 0;
}

PinnedThread::~PinnedThread() {
  if (pinned_) sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace lookback
