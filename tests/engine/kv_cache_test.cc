#include "engine/kv_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/support/random_model.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

constexpr int64_t kBlock = 32;

KvLayout LayoutOf(std::vector<HeadWindow> reach, int64_t block_tokens = kBlock) {
  const auto heads = static_cast<int64_t>(reach.size());
  return {1, heads, 4, block_tokens, kernels::Element::kF32, std::move(reach)};
}

KvCache CacheOf(const KvLayout& layout, int64_t blocks, int64_t sequences = 4) {
  return {layout, Buffer(blocks * layout.block_bytes()), sequences};
}

/// The bound of format.md, written out apart from the code under test.
int64_t Bound(int64_t window, int64_t sinks, int64_t tokens, int64_t chunk, int64_t block) {
  const auto up = [&](int64_t n) { return (n + block - 1) / block; };
  if (window < 0) return up(tokens);
  return std::min(up(tokens), up(sinks) + up(std::min(tokens, window + chunk - 1) + block - 1));
}

int64_t Block(const kernels::BlockList& list, int64_t block) {
  return block < list.sink_blocks ? list.sinks[block] : list.ring[block % list.ring_size];
}

TEST(KvCache, NeverHoldsMoreThanTheBoundAndAlwaysWhatAQueryCanSee) {
  std::vector<HeadWindow> reach;
  for (const int32_t window : {1, 7, 31, 32, 33, 64, 500, 512, kFullWindow}) {
    for (const int32_t sinks : {0, 1, 5, 32, 40}) reach.push_back({window, sinks});
  }
  for (const int64_t block_tokens : {16, 32}) {
    const KvLayout layout = LayoutOf(reach, block_tokens);
    for (const int64_t chunk : {1, 7, 64, 129}) {
      if (testing::kSanitized && chunk == 1) continue;  // half a minute
      constexpr int64_t kTokens = 2048;
      KvCache cache = CacheOf(layout, WorstCaseBlocks(layout, kTokens, kTokens, chunk));
      const int32_t slot = cache.Open(kTokens, kTokens, chunk);
      ASSERT_GE(slot, 0);
      for (int64_t n = 0; n < kTokens;) {
        const int64_t tokens = std::min(chunk, kTokens - n);
        cache.Reserve(slot, tokens);
        for (size_t h = 0; h < reach.size(); ++h) {
          const int64_t held = cache.blocks_of(slot, 0, static_cast<int64_t>(h));
          ASSERT_LE(held, Bound(reach[h].window, reach[h].sinks, n + tokens, chunk, block_tokens))
              << "window " << reach[h].window << ", sinks " << reach[h].sinks << ", T "
              << n + tokens << ", chunk " << chunk;
          std::set<int64_t> distinct;
          for (int64_t key = 0; key < n + tokens; ++key) {
            const bool seen = reach[h].full() || key < reach[h].sinks ||
                              key >= n - reach[h].window + 1;  // by the chunk's first query
            if (!seen) continue;
            const int64_t id = Block(cache.lists(slot)[h], key / block_tokens);
            ASSERT_GE(id, 0) << "key " << key << " of a chunk at " << n << ", head " << h;
            ASSERT_EQ(cache.references(static_cast<int32_t>(id)), 1);
            distinct.insert(id);
          }
          ASSERT_LE(std::ssize(distinct), held);
        }
        cache.Commit(slot);
        n += tokens;
      }
      cache.Close(slot);
      EXPECT_EQ(cache.blocks_held(), 0);
      EXPECT_EQ(cache.blocks_promised(), 0);
    }
  }
}

TEST(KvCache, ABlockReturnsToThePoolInTheStepInWhichItsLastTokenLeavesTheWindow) {
  const KvLayout layout = LayoutOf({{40, 0}});
  KvCache cache = CacheOf(layout, 8);
  const int32_t slot = cache.Open(1, 200, 1);
  for (int64_t n = 0; n < 200; ++n) {
    cache.Reserve(slot, 1);
    cache.Commit(slot);
    const int64_t next = n + 1;  // position of the next query; it sees keys from next − 39
    const int64_t first = std::max<int64_t>(0, next - 39) / kBlock;
    EXPECT_EQ(cache.blocks_of(slot, 0, 0), n / kBlock + 1 - std::min(first, n / kBlock + 1)) << n;
  }
  cache.Close(slot);
}

TEST(KvCache, PromisesAreKeptUnderRandomLoad) {
  const KvLayout layout = LayoutOf({{1, 0}, {33, 5}, {100, 0}, {kFullWindow, 0}, {512, 40}});
  KvCache cache = CacheOf(layout, 220, 6);
  struct Live {
    int32_t slot;
    int64_t prompt, total, chunk;
  };
  std::vector<Live> live;
  std::mt19937 random(11);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  int64_t opened = 0, refused = 0;
  for (int step = 0; step < 20000; ++step) {
    if (draw(0, 9) == 0) {
      Live next{-1, draw(1, 700), 0, draw(1, 90)};
      next.total = next.prompt + draw(0, 400);
      const bool room = cache.HasRoom(next.prompt, next.total, next.chunk);
      next.slot = cache.Open(next.prompt, next.total, next.chunk);
      ASSERT_EQ(room, next.slot >= 0);
      if (next.slot >= 0) {
        live.push_back(next);
        ++opened;
      } else {
        ++refused;
      }
    }
    if (live.empty()) continue;
    const auto at = static_cast<size_t>(draw(0, std::ssize(live) - 1));
    Live& one = live[at];
    const int64_t length = cache.length(one.slot);
    if (length == one.total || draw(0, 99) == 0) {
      cache.Close(one.slot);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      continue;
    }
    const int64_t tokens =
        length < one.prompt ? draw(1, std::min(one.chunk, one.prompt - length)) : 1;
    cache.Reserve(one.slot, tokens);
    ASSERT_LE(cache.blocks_held(), cache.blocks_promised());
    cache.Commit(one.slot);
  }
  for (const Live& one : live) cache.Close(one.slot);
  EXPECT_EQ(cache.blocks_held(), 0);
  EXPECT_EQ(cache.blocks_promised(), 0);
  EXPECT_GT(opened, 100);
  EXPECT_GT(refused, 100);
  for (const int64_t held : cache.held_by_head()) EXPECT_EQ(held, 0);
}

TEST(KvCache, NoBlockIsHeldTwice) {
  const KvLayout layout = LayoutOf({{33, 5}, {kFullWindow, 0}});
  KvCache cache = CacheOf(layout, 64, 2);
  const int32_t a = cache.Open(200, 200, 50), b = cache.Open(200, 200, 50);
  for (int step = 0; step < 4; ++step) {
    std::set<int64_t> ids;
    size_t expected = 0;
    for (const int32_t slot : {a, b}) {
      cache.Reserve(slot, 50);
      const int64_t begin = cache.length(slot);
      for (size_t h = 0; h < 2; ++h) {
        const int64_t first = h == 0 ? std::max<int64_t>(0, begin - 32) / kBlock : 0;
        for (int64_t block = first; block <= (begin + 49) / kBlock; ++block, ++expected) {
          ids.insert(Block(cache.lists(slot)[h], block));
        }
      }
    }
    EXPECT_EQ(ids.size(), expected);
    cache.Commit(a);
    cache.Commit(b);
  }
  cache.Close(a);
  cache.Close(b);
}

TEST(KvCache, ASharedBlockReturnsWithItsLastHolder) {
  const KvLayout layout = LayoutOf({{kFullWindow, 0}});
  KvCache cache = CacheOf(layout, 4);
  const int32_t slot = cache.Open(10, 10, 10);
  cache.Reserve(slot, 10);
  const auto id = static_cast<int32_t>(Block(cache.lists(slot)[0], 0));
  cache.Ref(id);
  cache.Commit(slot);
  cache.Close(slot);
  EXPECT_EQ(cache.blocks_held(), 1);
  EXPECT_EQ(cache.references(id), 1);
  cache.Unref(id);
  EXPECT_EQ(cache.blocks_held(), 0);
}

TEST(KvCache, WithoutRoomOpenRefusesAndPromisesNothing) {
  const KvLayout layout = LayoutOf({{kFullWindow, 0}});
  KvCache cache = CacheOf(layout, 4, 2);
  EXPECT_EQ(cache.Open(5 * kBlock, 5 * kBlock, 64), -1);
  EXPECT_EQ(cache.blocks_promised(), 0);
  const int32_t a = cache.Open(kBlock, kBlock, 64), b = cache.Open(kBlock, kBlock, 64);
  EXPECT_GE(a, 0);
  EXPECT_GE(b, 0);
  EXPECT_EQ(cache.Open(kBlock, kBlock, 64), -1) << "no free slot";
  cache.Close(a);
  EXPECT_GE(cache.Open(kBlock, kBlock, 64), 0);
}

}  // namespace
}  // namespace lookback
