#include "engine/cgroup.h"

#include <algorithm>
#include <fstream>

#include "engine/status.h"

namespace lookback {
namespace {

constexpr std::string_view kMount = "/sys/fs/cgroup";

/// The least of the group at `path` and all above it. A container sees its own group at the mount,
/// whatever path the host has for it: folders that are not there do not count.
int64_t LeastAbove(const CgroupLimit& limit, const std::string& mount, std::string path) {
  int64_t least = limit(mount);
  while (!path.empty()) {
    least = std::min(least, limit(mount + path));
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  return least;
}

}  // namespace

int64_t LeastOfCgroups(const std::string& root, std::string_view controller, const CgroupLimit& v2,
                       const CgroupLimit& v1) {
  const std::string mount_v2 = StrCat(root, kMount), mount_v1 = StrCat(mount_v2, "/", controller);
  int64_t least = std::min(v2(mount_v2), v1(mount_v1));
  // Lines are ID:CONTROLLERS:PATH; v2 has no controllers there.
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = StrCat(",", line.substr(first + 1, second - first - 1), ",");
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, LeastAbove(v2, mount_v2, path));
    if (controllers.find(StrCat(",", controller, ",")) != std::string::npos) {
      least = std::min(least, LeastAbove(v1, mount_v1, path));
    }
  }
  return least;
}

}  // namespace lookback
