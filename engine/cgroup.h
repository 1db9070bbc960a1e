// The limits that control groups, and so containers, put on this process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lookback {

/// What the group with this folder allows; the largest int64_t where it does not limit.
using CgroupLimit = std::function<int64_t(const std::string& folder)>;

/// The least that any group of `controller` ("memory") allows that this process is in, or that is
/// above one: `v2` and `v1` read a folder of that version. `root` goes before the paths of /proc
/// and /sys, for tests.
int64_t LeastOfCgroups(const std::string& root, std::string_view controller, const CgroupLimit& v2,
                       const CgroupLimit& v1);

}  // namespace lookback
