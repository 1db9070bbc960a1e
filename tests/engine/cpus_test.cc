#include "engine/cpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <set>

namespace lookback {
namespace {

/// {0, …, count - 1}.
std::vector<int> First(int count) {
  std::vector<int> cpus(static_cast<size_t>(count));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

TEST(Cpus, ListsAreReadInTheirOrder) {
  const std::vector<std::pair<const char*, std::vector<int>>> lists = {
      {"0", {0}},   {"7,3", {7, 3}},         {"0-3,8", {0, 1, 2, 3, 8}}, {"8,0-3", {8, 0, 1, 2, 3}},
      {"5-5", {5}}, {"0-6:2", {0, 2, 4, 6}}, {"1-6:2", {1, 3, 5}},       {"0-3:9", {0}},
      {"007", {7}}, {"1023", {1023}},
  };
  for (const auto& [text, expected] : lists) {
    const auto cpus = ParseCpus(text, First(CPU_SETSIZE));
    ASSERT_TRUE(cpus.ok()) << text << ": " << cpus.status().message();
    EXPECT_EQ(*cpus, expected) << text;
  }
}

TEST(Cpus, WhatIsNoListIsRefusedByItsPart) {
  const std::vector<std::pair<const char*, const char*>> bad = {
      {"", "\"\""},
      {",", "\"\""},
      {"0,", "\"\""},
      {"0,,1", "\"\""},
      {"3-1", "\"3-1\""},
      {"0,3-1", "\"3-1\""},
      {"x", "\"x\""},
      {"0x1", "\"0x1\""},
      {"-1", "\"-1\""},
      {"+1", "\"+1\""},
      {"1-", "\"1-\""},
      {"1--2", "\"1--2\""},
      {"1-2-3", "\"1-2-3\""},
      {"0-3:0", "\"0-3:0\""},
      {"0-3:", "\"0-3:\""},
      {"0:2", "\"0:2\""},
      {"1.5", "\"1.5\""},
      {"0, 1", "\" 1\""},
      {"1024", "\"1024\""},
      {"0-1024", "\"0-1024\""},
      {"99999999999999999999", "\"99999999999999999999\""},
      {"0-4294967296", "\"0-4294967296\""},
      {"\xff\n", "\"\\xFF\\x0A\""},
  };
  for (const auto& [text, part] : bad) {
    const auto cpus = ParseCpus(text, First(CPU_SETSIZE));
    ASSERT_FALSE(cpus.ok()) << text;
    EXPECT_EQ(cpus.status().message(),
              StrCat("got ", part, ", expected CPUs from 0 to 1023, as in 0-3,8"));
  }
  EXPECT_EQ(ParseCpus("0-3,2", First(8)).status().message(), "got 2 twice, expected each CPU once");
  EXPECT_EQ(ParseCpus("0-3", std::vector<int>{0, 1, 2, 6}).status().message(),
            "got 3, expected CPUs of 0-2,6: where this process may run");
}

TEST(Cpus, AListOfAnyTextIsOneOrIsRefused) {
  std::mt19937 random(7);
  const std::string letters = "0123456789,,,--:: x";
  int read = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string text(1 + random() % 9, ' ');
    for (char& c : text) c = letters[random() % letters.size()];
    const auto cpus = ParseCpus(text, First(100));
    if (!cpus.ok()) {
      ASSERT_TRUE(cpus.status().message().starts_with("got ")) << text;
      continue;
    }
    ++read;
    const std::set<int> distinct(cpus->begin(), cpus->end());
    ASSERT_FALSE(distinct.empty()) << text;
    ASSERT_EQ(distinct.size(), cpus->size()) << text;
    ASSERT_TRUE(*distinct.begin() >= 0 && *distinct.rbegin() < 100) << text;
    ASSERT_EQ(ParseCpus(CpuList(*cpus), First(100)).value(), *cpus) << text;
  }
  EXPECT_GT(read, 1000);
}

TEST(Cpus, AListIsWrittenShort) {
  EXPECT_EQ(CpuList({}), "");
  EXPECT_EQ(CpuList(std::vector<int>{0, 1, 2, 8}), "0-2,8");
  EXPECT_EQ(CpuList(std::vector<int>{3, 2, 1, 5, 6}), "3,2,1,5-6");
}

TEST(Cpus, ThreadsAreAsManyAsTheirCpus) {
  const auto resolved = [](int64_t threads, std::vector<int> cpus) {
    const Status status = ResolveThreads(threads, cpus);
    return status.ok() ? StrCat(threads, " on ", CpuList(cpus)) : status.message();
  };
  EXPECT_EQ(resolved(0, {4, 2, 3}), "3 on 4,2-3");
  EXPECT_EQ(resolved(2, {4, 2, 3}), "2 on 4,2");
  EXPECT_EQ(resolved(3, {4, 2, 3}), "3 on 4,2-3");
  EXPECT_EQ(resolved(4, {4, 2, 3}),
            "threads: got 4, expected at most 3, one for each of the CPUs 4,2-3");
  EXPECT_EQ(resolved(5, {}), "5 on ");
  EXPECT_EQ(resolved(0, {}), StrCat(ThreadsOfMachine(), " on "));
  EXPECT_EQ(resolved(-1, {}), "threads: got -1, expected 1 to 1024");
  EXPECT_EQ(resolved(1025, {}), "threads: got 1025, expected 1 to 1024");
}

TEST(Cpus, APinnedThreadRunsThereAloneUntilItIsReleased) {
  const std::vector<int> usable = UsableCpus();
  ASSERT_FALSE(usable.empty());
  for (const int cpu : usable) {
    const PinnedThread pinned(cpu);
    EXPECT_EQ(UsableCpus(), std::vector<int>{cpu});
    EXPECT_EQ(sched_getcpu(), cpu);
    EXPECT_EQ(ThreadsOfMachine(), 1) << "the mask counts, not the machine";
  }
  EXPECT_EQ(UsableCpus(), usable);
  {
    const PinnedThread nowhere(CPU_SETSIZE - 1);  // a CPU that went away
    EXPECT_EQ(UsableCpus(), usable);
  }
  EXPECT_EQ(UsableCpus(), usable);
}

TEST(Cpus, AQuotaOfTheContainerBoundsTheThreads) {
  namespace fs = std::filesystem;
  const std::string root = ::testing::TempDir() + "cpus_quota";
  const auto with = [&](std::vector<std::pair<std::string, std::string>> files) {
    fs::remove_all(root);
    for (const auto& [path, text] : files) {
      fs::create_directories(fs::path(root + path).parent_path());
      std::ofstream(root + path) << text;
    }
    return ThreadsOfMachine(root);
  };
  const auto all = std::ssize(UsableCpus());
  const std::string v2 = "/sys/fs/cgroup", v1 = "/sys/fs/cgroup/cpu";
  EXPECT_EQ(with({}), all);
  EXPECT_EQ(with({{v2 + "/cpu.max", "max 100000\n"}}), all);
  EXPECT_EQ(with({{v2 + "/cpu.max", "nonsense\n"}}), all);
  EXPECT_EQ(with({{v2 + "/cpu.max", "50000 100000\n"}}), 1);
  EXPECT_EQ(with({{v2 + "/cpu.max", "100001 100000\n"}}), std::min<int64_t>(2, all));
  EXPECT_EQ(with({{"/proc/self/cgroup", "0::/pod/server\n"},
                  {v2 + "/pod/server/cpu.max", "max 100000\n"},
                  {v2 + "/pod/cpu.max", "100000 100000\n"}}),
            1);
  EXPECT_EQ(with({{v1 + "/cpu.cfs_quota_us", "-1\n"}, {v1 + "/cpu.cfs_period_us", "100000\n"}}),
            all);
  EXPECT_EQ(with({{"/proc/self/cgroup", "2:cpu,cpuacct:/docker/a\n"},
                  {v1 + "/docker/a/cpu.cfs_quota_us", "100000\n"},
                  {v1 + "/docker/a/cpu.cfs_period_us", "100000\n"}}),
            1);
  fs::remove_all(root);
}

}  // namespace
}  // namespace lookback
