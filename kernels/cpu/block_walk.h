// Which blocks and keys an item of attention visits, the same for every set of kernels: a set
// brings what one query head makes of one block. Internal linkage and no std:: templates, since
// this is compiled with each set's instructions.
#pragma once

#include <math.h>

#include "kernels/kernels.h"

namespace lookback::kernels {
namespace {

constexpr int64_t kMaxBlockTokens = 64;
constexpr int64_t kTasks = 16;  // queries that share a fetched key; more take another pass

/// Online softmax of one query head: the largest score and the sum of exp(score − largest) so far.
struct Softmax {
  float largest = -INFINITY;
  float sum = 0.0F;
};

/// Keys and values of one block, [tokens][head_dim] each.
template <typename T>
struct BlockView {
  const T* keys;
  const T* values;
  int64_t tokens;
  const T* next;  ///< keys of the block after it, or null: what a set may fetch ahead
};

/// The tokens of one block that a head sees, counted from the block's first: two runs, of which
/// either may be empty (the sinks' and the window's).
struct SeenKeys {
  int64_t begin[2];
  int64_t end[2];
  int64_t size() const { return (end[0] - begin[0]) + (end[1] - begin[1]); }
};

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t Most(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t Clamped(int64_t value, int64_t low, int64_t high) {
  return Least(Most(value, low), high);
}

inline int64_t BlockId(const BlockList& list, int64_t block) {
  return block < list.sink_blocks ? list.sinks[block] : list.ring[block % list.ring_size];
}

template <typename T>
inline BlockView<T> ViewBlock(const KvPool& pool, const BlockList& list, int64_t block) {
  const auto* keys =
      reinterpret_cast<const T*>(pool.data + BlockId(list, block) * pool.block_bytes);
  return {keys, keys + pool.block_tokens * pool.head_dim, pool.block_tokens, nullptr};
}

/// Keys of [begin, end) that `reach` sees from `position`.
inline SeenKeys SeenIn(int64_t begin, int64_t end, int64_t position, HeadReach reach) {
  const int64_t window_end = Clamped(position + 1, begin, end);
  const int64_t sink_end = Clamped(reach.sinks, begin, window_end);
  const int64_t window_begin = Clamped(position - reach.window + 1, sink_end, window_end);
  return {{0, window_begin - begin}, {sink_end - begin, window_end - begin}};
}

/// What one query makes of one block.
struct Task {
  const float* query;
  SeenKeys seen;  ///< at least one
  Softmax* softmax;
  float* out;  ///< the mix of values before the division by the softmax' sum
};

/// Queries that go over their blocks together: those of `rows` rows, one position after another in
/// one sequence, by `heads` query heads of one KV head, at most kTasks.
struct Tile {
  int64_t row;
  int64_t rows;
  int64_t kv_head;
  int64_t head;
  int64_t heads;
};

/// Block<T>::Take(args, view, tasks, count) takes the seen keys of one block into the softmax and
/// into `out` of every task. What a query makes of its blocks does not depend on the others of its
/// tile.
template <template <typename> typename Block, typename T>
void WalkTile(const AttentionArgs& args, const Tile& tile) {
  const KvPool& pool = args.pool;
  const int64_t dim = pool.head_dim, block_tokens = pool.block_tokens;
  const int64_t first = args.map.position[tile.row], last = first + tile.rows - 1;
  const BlockList& list =
      args.map.lists[args.map.sequence[tile.row]][args.map.list_offset + tile.kv_head];
  HeadReach widest{0, 0};
  for (int64_t h = 0; h < tile.heads; ++h) {
    widest.window = Most(widest.window, args.reach[tile.head + h].window);
    widest.sinks = Most(widest.sinks, args.reach[tile.head + h].sinks);
  }
  Softmax states[kTasks];
  const int64_t offset = tile.row * args.stride + tile.head * dim;
  for (int64_t r = 0; r < tile.rows; ++r) {
    for (int64_t c = 0; c < tile.heads * dim; ++c) args.out[offset + r * args.stride + c] = 0.0F;
  }

  const int64_t sink_blocks = (Least(widest.sinks, last + 1) + block_tokens - 1) / block_tokens;
  const int64_t window_block = Most(0, first - widest.window + 1) / block_tokens;
  const int64_t last_block = last / block_tokens;
  int64_t next = sink_blocks > 0 ? 0 : window_block;
  for (int64_t block = next; block <= last_block; block = next) {
    next = block + 1 == sink_blocks ? Most(block + 1, window_block) : block + 1;
    const int64_t begin = block * block_tokens, end = begin + block_tokens;
    Task tasks[kTasks];
    int64_t count = 0;
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t position = first + r;
      args.count->keys_read += SeenIn(begin, end, position, widest).size();
      for (int64_t h = 0; h < tile.heads; ++h) {
        const SeenKeys seen = SeenIn(begin, end, position, args.reach[tile.head + h]);
        if (seen.size() == 0) continue;
        args.count->products += seen.size();
        const int64_t at = offset + r * args.stride + h * dim;
        tasks[count++] = {args.q + at, seen, &states[r * tile.heads + h], args.out + at};
      }
    }
    if (count == 0) continue;
    BlockView<T> view = ViewBlock<T>(pool, list, block);
    if (next <= last_block) view.next = ViewBlock<T>(pool, list, next).keys;
    Block<T>::Take(args, view, tasks, count);
  }
  for (int64_t r = 0; r < tile.rows; ++r) {
    for (int64_t h = 0; h < tile.heads; ++h) {
      float* out = args.out + offset + r * args.stride + h * dim;
      for (int64_t c = 0; c < dim; ++c) out[c] /= states[r * tile.heads + h].sum;
    }
  }
}

/// Rows from `row` on that go over their blocks together: one, or up to `most`.
inline int64_t RowsTogether(const RowMap& map, int64_t row, int64_t most) {
  int64_t rows = 1;
  while (rows < most && map.sequence[row + rows] == map.sequence[row] &&
         map.position[row + rows] == map.position[row] + rows) {
    ++rows;
  }
  return rows;
}

template <template <typename> typename Block, typename T>
void WalkItems(const AttentionArgs& args) {
  for (int64_t item = args.item_begin; item < args.item_end;) {
    const int64_t row = item / args.kv_heads, kv_head = item % args.kv_heads;
    // Whole rows go together; what a range has of others goes an item at a time.
    const int64_t whole = kv_head == 0 ? (args.item_end - item) / args.kv_heads : 0;
    const int64_t most = kTasks / Least(kTasks, args.group);
    const int64_t rows = RowsTogether(args.map, row, Least(whole, most));
    const int64_t kv_heads = whole > 0 ? args.kv_heads : 1;
    for (int64_t kv = kv_head; kv < kv_head + kv_heads; ++kv) {
      for (int64_t h = 0; h < args.group; h += kTasks) {
        WalkTile<Block, T>(args,
                           {row, rows, kv, kv * args.group + h, Least(kTasks, args.group - h)});
      }
    }
    item += rows * kv_heads;
  }
}

/// Attention.
template <template <typename> typename Block>
void WalkBlocks(const AttentionArgs& args) {
  if (args.pool.type == Element::kF32) {
    WalkItems<Block, float>(args);
  } else {
    WalkItems<Block, uint16_t>(args);
  }
}

/// The same by asking of every key up to the position whether it is seen.
inline SeenKeys SeenByMask(int64_t begin, int64_t tokens, int64_t position, HeadReach reach) {
  SeenKeys seen{{0, 0}, {0, 0}};
  int64_t run = -1;
  bool before = false;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t key = begin + t;
    const bool is_seen = key <= position && (key < reach.sinks || key > position - reach.window);
    if (is_seen && !before) seen.begin[++run] = t;
    if (is_seen) seen.end[run] = t + 1;
    before = is_seen;
  }
  return seen;
}

template <template <typename> typename Block, typename T>
void WalkAllItems(const AttentionArgs& args) {
  const int64_t dim = args.pool.head_dim, block_tokens = args.pool.block_tokens;
  for (int64_t item = args.item_begin; item < args.item_end; ++item) {
    const int64_t row = item / args.kv_heads, kv_head = item % args.kv_heads;
    const int64_t position = args.map.position[row];
    const BlockList& list = args.map.lists[args.map.sequence[row]][args.map.list_offset + kv_head];
    for (int64_t head = kv_head * args.group; head < (kv_head + 1) * args.group; ++head) {
      const float* query = args.q + row * args.stride + head * dim;
      float* out = args.out + row * args.stride + head * dim;
      for (int64_t c = 0; c < dim; ++c) out[c] = 0.0F;
      Softmax state;
      for (int64_t block = 0; block <= position / block_tokens; ++block) {
        const SeenKeys seen =
            SeenByMask(block * block_tokens, block_tokens, position, args.reach[head]);
        if (seen.size() == 0) continue;
        const Task task{query, seen, &state, out};
        Block<T>::Take(args, ViewBlock<T>(args.pool, list, block), &task, 1);
      }
      for (int64_t c = 0; c < dim; ++c) out[c] /= state.sum;
    }
  }
}

/// MaskedAttention.
template <template <typename> typename Block>
void WalkAllBlocks(const AttentionArgs& args) {
  if (args.pool.type == Element::kF32) {
    WalkAllItems<Block, float>(args);
  } else {
    WalkAllItems<Block, uint16_t>(args);
  }
}

}  // namespace
}  // namespace lookback::kernels
