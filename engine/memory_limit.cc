#include "engine/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "engine/cgroup.h"

namespace lookback {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// The files of one kind of memory cgroup.
struct CgroupKind {
  const char* limit;
  const char* used;
  const char* droppable;  ///< the line of memory.stat with the pages that reclaim takes first
};
constexpr CgroupKind kV2 = {"/memory.max", "/memory.current", "inactive_file"};
constexpr CgroupKind kV1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                            "total_inactive_file"};

/// A file that is one number; none where it cannot be read or says "max".
std::optional<int64_t> ReadNumber(const std::string& path) {
  int64_t value = 0;
  if (std::ifstream(path) >> value) return value;
  return std::nullopt;
}

/// The number after `key` in a file of keys and numbers.
std::optional<int64_t> ReadKey(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.compare(0, space, key) != 0) continue;
    return std::strtoll(line.c_str() + space, nullptr, 10);
  }
  return std::nullopt;
}

int64_t LeftInCgroup(const CgroupKind& kind, const std::string& folder) {
  const std::optional<int64_t> limit = ReadNumber(folder + kind.limit);
  const std::optional<int64_t> used = ReadNumber(folder + kind.used);
  if (!limit || !used) return kUnlimited;
  const int64_t droppable = ReadKey(folder + "/memory.stat", kind.droppable).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - droppable));
}

/// What RLIMIT_AS and RLIMIT_DATA leave. /proc/self/statm counts pages: all, resident, shared,
/// text, libraries (0), data.
int64_t LeftInProcess(const std::string& root) {
  int64_t all = 0, resident = 0, shared = 0, text = 0, libraries = 0, data = 0;
  std::ifstream(root + "/proc/self/statm") >> all >> resident >> shared >> text >> libraries >>
      data;
  const int64_t page = sysconf(_SC_PAGESIZE);
  const auto left = [page](auto resource, int64_t used_pages) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(kUnlimited)) {
      return kUnlimited;
    }
    return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - used_pages * page);
  };
  return std::min(left(RLIMIT_AS, all), left(RLIMIT_DATA, data));
}

}  // namespace

int64_t AvailableMemoryBytes(const std::string& root) {
  const std::optional<int64_t> kibibytes = ReadKey(root + "/proc/meminfo", "MemAvailable:");
  const int64_t machine = kibibytes ? *kibibytes * 1024 : kUnlimited;
  const auto left_in = [](const CgroupKind& kind) {
    return [&kind](const std::string& folder) { return LeftInCgroup(kind, folder); };
  };
  return std::min(
      {machine, LeastOfCgroups(root, "memory", left_in(kV2), left_in(kV1)), LeftInProcess(root)});
}

}  // namespace lookback
