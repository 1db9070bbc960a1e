#include "engine/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace lookback {
namespace {

namespace fs = std::filesystem;

/// A folder that stands for / and holds what a test writes there.
class MemoryLimit : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "memory_limit_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    Write("/proc/meminfo", "MemTotal: 9000 kB\nMemFree:  100 kB\nMemAvailable:    8000 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  int64_t Available() const { return AvailableMemoryBytes(root_); }

  std::string root_;
};

TEST_F(MemoryLimit, IsTheSystemsEstimateWithoutACgroup) { EXPECT_EQ(Available(), 8000 * 1024); }

TEST_F(MemoryLimit, IsUnlimitedWhereNothingCanBeRead) {
  fs::remove_all(root_);
  EXPECT_EQ(Available(), INT64_MAX);
}

TEST_F(MemoryLimit, IsWhatTheContainersOwnGroupLeaves) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "5000000\n");
  Write("/sys/fs/cgroup/memory.current", "1000000\n");
  EXPECT_EQ(Available(), 4'000'000);
  Write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(Available(), 8000 * 1024);
  Write("/sys/fs/cgroup/memory.max", "999999\n");
  EXPECT_EQ(Available(), 0);
}

TEST_F(MemoryLimit, CountsPagesOfFilesThatTheKernelWouldDropAsFree) {
  Write("/sys/fs/cgroup/memory.max", "5000000\n");
  Write("/sys/fs/cgroup/memory.current", "3000000\n");
  Write("/sys/fs/cgroup/memory.stat", "file 2500000\ninactive_file 2000000\nactive_file 500000\n");
  EXPECT_EQ(Available(), 4'000'000);
}

TEST_F(MemoryLimit, TheTightestOfTheGroupsAboveCounts) {
  Write("/proc/self/cgroup", "0::/pod/server\n");
  Write("/sys/fs/cgroup/pod/server/memory.max", "max\n");
  Write("/sys/fs/cgroup/pod/server/memory.current", "10\n");
  Write("/sys/fs/cgroup/pod/memory.max", "3000\n");
  Write("/sys/fs/cgroup/pod/memory.current", "1000\n");
  EXPECT_EQ(Available(), 2000);
  Write("/sys/fs/cgroup/pod/server/memory.max", "1500\n");
  EXPECT_EQ(Available(), 1490);
}

TEST_F(MemoryLimit, ReadsTheFirstVersionsFilesToo) {
  Write("/proc/self/cgroup", "5:devices:/\n4:cpu,memory:/docker/abc\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "123456\n");
  EXPECT_EQ(Available(), 8000 * 1024);
  Write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "7000\n");
  Write("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "5000\n");
  Write("/sys/fs/cgroup/memory/docker/abc/memory.stat",
        "inactive_file 1\ntotal_inactive_file 1000\n");
  EXPECT_EQ(Available(), 3000);
  // In a container the path is the host's, and the mount its own group.
  fs::remove_all(root_ + "/sys/fs/cgroup/memory/docker");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "200000\n");
  EXPECT_EQ(Available(), 200'000 - 123'456);
}

TEST_F(MemoryLimit, LinesThatAreNoCgroupsAreIgnored) {
  Write("/proc/self/cgroup", "nonsense\n:\n0:\n\n1:memory_other:/x\n0::");
  EXPECT_EQ(Available(), 8000 * 1024);
}

TEST_F(MemoryLimit, ALimitOfTheProcessCounts) {
  Write("/proc/self/statm", "100 10 5 1 0 50 0\n");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  // Above what any process holds, a sanitizer's shadow included: nothing may fail meanwhile.
  const int64_t limit = int64_t{1} << 50;
  Write("/proc/meminfo", "MemAvailable: 4398046511104 kB\n");
  rlimit lowered = before;
  lowered.rlim_cur = static_cast<rlim_t>(limit);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &lowered), 0);
  const int64_t available = Available();
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  EXPECT_EQ(available, limit - 50 * sysconf(_SC_PAGESIZE));
}

}  // namespace
}  // namespace lookback
