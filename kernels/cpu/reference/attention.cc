#include <algorithm>
#include <cmath>

#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {
namespace {

constexpr int64_t kMaxBlockTokens = 64;
constexpr int64_t kHeadTile = 16;  // query heads that share a fetched key; more take another pass

int64_t BlockId(const BlockList& list, int64_t block) {
  return block < list.sink_blocks ? list.sinks[block] : list.ring[block % list.ring_size];
}

template <typename T>
const T* Keys(const KvPool& pool, int64_t id) {
  return reinterpret_cast<const T*>(pool.data + id * pool.block_bytes);
}

/// Keys of [begin, end) that `reach` sees from `position`: [begin, sink_end) and [window_begin,
/// last].
struct Visible {
  int64_t sink_end;
  int64_t window_begin;
  int64_t window_end;
  int64_t size(int64_t begin) const { return (sink_end - begin) + (window_end - window_begin); }
};

Visible VisibleIn(int64_t begin, int64_t end, int64_t position, HeadReach reach) {
  Visible v;
  v.window_end = std::min(end, position + 1);
  v.sink_end = std::clamp(reach.sinks, begin, v.window_end);
  v.window_begin = std::clamp(position - reach.window + 1, v.sink_end, v.window_end);
  return v;
}

/// Online softmax of one query head: the largest score and the sum of exp(score − largest) so far.
struct Softmax {
  float largest = -INFINITY;
  float sum = 0.0F;
};

/// Takes the visible keys of one block into `state` and `out` (the unnormalised mix of values).
/// scores[t] holds the score of the block's token t where it is visible.
template <typename T, typename IsVisible>
void TakeBlock(const float* scores, const T* values, int64_t tokens, int64_t head_dim,
               const IsVisible& visible, Softmax& state, float* out) {
  float largest = state.largest;
  for (int64_t t = 0; t < tokens; ++t) {
    if (visible(t)) largest = std::fmax(largest, scores[t]);
  }
  const float shrink = std::exp(state.largest - largest);
  for (int64_t c = 0; c < head_dim; ++c) out[c] *= shrink;
  float sum = 0.0F;
  for (int64_t t = 0; t < tokens; ++t) {
    if (!visible(t)) continue;
    const float share = std::exp(scores[t] - largest);
    sum += share;
    const T* value = values + t * head_dim;
    for (int64_t c = 0; c < head_dim; ++c) out[c] += share * Widen(value[c]);
  }
  state.largest = largest;
  state.sum = state.sum * shrink + sum;
}

/// `heads` query heads (at most kHeadTile) of one item, from query head `first` on.
template <typename T>
void AttendTile(const AttentionArgs& args, int64_t row, int64_t kv_head, int64_t first,
                int64_t heads) {
  const KvPool& pool = args.pool;
  const int64_t dim = pool.head_dim, block_tokens = pool.block_tokens;
  const int64_t position = args.map.position[row];
  const BlockList& list = args.map.lists[args.map.sequence[row]][args.map.list_offset + kv_head];
  HeadReach widest{0, 0};
  for (int64_t h = 0; h < heads; ++h) {
    widest.window = std::max(widest.window, args.reach[first + h].window);
    widest.sinks = std::max(widest.sinks, args.reach[first + h].sinks);
  }
  Softmax states[kHeadTile];
  float* out = args.out + row * args.stride + first * dim;
  std::fill(out, out + heads * dim, 0.0F);

  const int64_t sink_blocks =
      (std::min(widest.sinks, position + 1) + block_tokens - 1) / block_tokens;
  const int64_t window_block = std::max<int64_t>(0, position - widest.window + 1) / block_tokens;
  const int64_t last_block = position / block_tokens;
  for (int64_t block = sink_blocks > 0 ? 0 : window_block; block <= last_block;
       block = block + 1 == sink_blocks ? std::max(block + 1, window_block) : block + 1) {
    const int64_t begin = block * block_tokens, end = begin + block_tokens;
    const T* keys = Keys<T>(pool, BlockId(list, block));
    const T* values = keys + block_tokens * dim;
    args.count->keys_read += VisibleIn(begin, end, position, widest).size(begin);
    for (int64_t h = 0; h < heads; ++h) {
      const Visible seen = VisibleIn(begin, end, position, args.reach[first + h]);
      const int64_t products = seen.size(begin);
      if (products == 0) continue;
      args.count->products += products;
      const auto visible = [&](int64_t t) {
        const int64_t key = begin + t;
        return key < seen.sink_end || (key >= seen.window_begin && key < seen.window_end);
      };
      const float* query = args.q + row * args.stride + (first + h) * dim;
      float scores[kMaxBlockTokens];
      for (int64_t t = 0; t < block_tokens; ++t) {
        if (visible(t)) scores[t] = Dot(query, keys + t * dim, dim) * args.scale;
      }
      TakeBlock(scores, values, block_tokens, dim, visible, states[h], out + h * dim);
    }
  }
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t c = 0; c < dim; ++c) out[h * dim + c] /= states[h].sum;
  }
}

template <typename T>
void AttendItems(const AttentionArgs& args) {
  for (int64_t item = args.item_begin; item < args.item_end; ++item) {
    const int64_t row = item / args.kv_heads, kv_head = item % args.kv_heads;
    const int64_t first = kv_head * args.group;
    for (int64_t h = 0; h < args.group; h += kHeadTile) {
      AttendTile<T>(args, row, kv_head, first + h, std::min(kHeadTile, args.group - h));
    }
  }
}

template <typename T>
void MaskedItems(const AttentionArgs& args) {
  const int64_t dim = args.pool.head_dim, block_tokens = args.pool.block_tokens;
  for (int64_t item = args.item_begin; item < args.item_end; ++item) {
    const int64_t row = item / args.kv_heads, kv_head = item % args.kv_heads;
    const int64_t position = args.map.position[row];
    const BlockList& list = args.map.lists[args.map.sequence[row]][args.map.list_offset + kv_head];
    for (int64_t head = kv_head * args.group; head < (kv_head + 1) * args.group; ++head) {
      const HeadReach reach = args.reach[head];
      const float* query = args.q + row * args.stride + head * dim;
      float* out = args.out + row * args.stride + head * dim;
      std::fill(out, out + dim, 0.0F);
      Softmax state;
      for (int64_t block = 0; block <= position / block_tokens; ++block) {
        const T* keys = Keys<T>(args.pool, BlockId(list, block));
        const T* values = keys + block_tokens * dim;
        float scores[kMaxBlockTokens];
        bool any = false;
        for (int64_t t = 0; t < block_tokens; ++t) {
          const int64_t key = block * block_tokens + t;
          const bool seen =
              key <= position && (key < reach.sinks || key >= position - reach.window + 1);
          any = any || seen;
          scores[t] = seen ? Dot(query, keys + t * dim, dim) * args.scale : -INFINITY;
        }
        if (!any) continue;
        TakeBlock(
            scores, values, block_tokens, dim, [&](int64_t t) { return scores[t] != -INFINITY; },
            state, out);
      }
      for (int64_t c = 0; c < dim; ++c) out[c] /= state.sum;
    }
  }
}

template <typename T>
T Narrow(float value);
template <>
float Narrow<float>(float value) {
  return value;
}
template <>
uint16_t Narrow<uint16_t>(float value) {
  return NarrowToBF16(value);
}

template <typename T>
void WriteRows(const KvWriteArgs& args) {
  const KvPool& pool = args.pool;
  for (int64_t r = args.row_begin; r < args.row_end; ++r) {
    const int64_t position = args.map.position[r];
    const BlockList* lists = args.map.lists[args.map.sequence[r]] + args.map.list_offset;
    const int64_t block = position / pool.block_tokens, slot = position % pool.block_tokens;
    for (int64_t head = 0; head < args.kv_heads; ++head) {
      T* keys = reinterpret_cast<T*>(pool.data + BlockId(lists[head], block) * pool.block_bytes);
      T* values = keys + pool.block_tokens * pool.head_dim;
      const int64_t from = r * args.stride + head * pool.head_dim, to = slot * pool.head_dim;
      for (int64_t c = 0; c < pool.head_dim; ++c) {
        keys[to + c] = Narrow<T>(args.k[from + c]);
        values[to + c] = Narrow<T>(args.v[from + c]);
      }
    }
  }
}

}  // namespace

void Attention(const AttentionArgs& args) {
  if (args.pool.type == Element::kF32) {
    AttendItems<float>(args);
  } else {
    AttendItems<uint16_t>(args);
  }
}

void KvWrite(const KvWriteArgs& args) {
  if (args.pool.type == Element::kF32) {
    WriteRows<float>(args);
  } else {
    WriteRows<uint16_t>(args);
  }
}

}  // namespace lookback::kernels::reference

namespace lookback::kernels {

void MaskedAttention(const AttentionArgs& args) {
  if (args.pool.type == Element::kF32) {
    reference::MaskedItems<float>(args);
  } else {
    reference::MaskedItems<uint16_t>(args);
  }
}

}  // namespace lookback::kernels
