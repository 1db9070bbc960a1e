#include "engine/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <thread>

namespace lookback {
namespace {

TEST(ThreadPool, CoversEveryItemOnce) {
  for (const int64_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (const int64_t items : {0, 1, 2, 7, 64, 1001}) {
      for (const int64_t grain : {1, 5, 2000}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(items));
        std::atomic<bool> thread_in_range{true};
        pool.For(items, grain, [&](int64_t begin, int64_t end, int64_t thread) {
          if (thread < 0 || thread >= threads) thread_in_range = false;
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
        EXPECT_TRUE(thread_in_range);
      }
    }
  }
}

TEST(ThreadPool, ALoopSeesWhatTheLastOneWrote) {
  ThreadPool pool(4);
  std::vector<int64_t> values(1000, 0);
  for (int round = 0; round < 300; ++round) {
    pool.For(std::ssize(values), 10, [&](int64_t begin, int64_t end, int64_t) {
      for (int64_t i = begin; i < end; ++i) {
        // Reads an element that another thread may have written in the round before.
        values[static_cast<size_t>(i)] += 1;
      }
    });
    // The sum is taken by the caller: every write of the loop is visible when For returns.
    int64_t sum = 0;
    for (const int64_t value : values) sum += value;
    ASSERT_EQ(sum, std::ssize(values) * (round + 1));
  }
}

TEST(ThreadPool, WorkersWakeAfterSleeping) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int64_t> sum{0};
    pool.For(100, 1, [&](int64_t begin, int64_t end, int64_t) { sum += end - begin; });
    ASSERT_EQ(sum.load(), 100);
  }
}

TEST(ThreadPool, EveryThreadStaysOnItsCpuAndTheCallerIsFreeAgainAfterwards) {
  const std::vector<int> usable = UsableCpus();
  ASSERT_FALSE(usable.empty());
  const std::vector<int> cpus = {usable.back(), usable.front(), usable.back()};
  {
    ThreadPool pool(3, cpus);
    EXPECT_EQ(UsableCpus(), usable) << "a pool alone pins nobody but its workers";
    const PinnedThread pinned = pool.PinCaller();
    std::vector<std::vector<int>> seen(3);
    std::latch all(3);  // so that each thread takes a range
    pool.For(3, 1, [&](int64_t, int64_t, int64_t thread) {
      seen[static_cast<size_t>(thread)] = UsableCpus();
      all.arrive_and_wait();
    });
    for (size_t i = 0; i < cpus.size(); ++i) EXPECT_EQ(seen[i], std::vector<int>{cpus[i]}) << i;
  }
  EXPECT_EQ(UsableCpus(), usable);
  const PinnedThread pinned = ThreadPool(2).PinCaller();
  EXPECT_EQ(UsableCpus(), usable) << "without CPUs nothing is pinned";
}

}  // namespace
}  // namespace lookback
