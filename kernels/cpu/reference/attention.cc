#include <cmath>

#include "kernels/cpu/block_walk.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/reference/scalar.h"

namespace lookback::kernels::reference {
namespace {

/// Each query head takes the keys of one block that it sees in ascending order.
template <typename T>
struct Block {
  static void Take(const AttentionArgs& args, const BlockView<T>& block, const Task* tasks,
                   int64_t count) {
    for (int64_t i = 0; i < count; ++i) TakeOne(args, block, tasks[i]);
  }

  static void TakeOne(const AttentionArgs& args, const BlockView<T>& block, const Task& task) {
    const int64_t dim = args.pool.head_dim;
    const SeenKeys& seen = task.seen;
    Softmax& state = *task.softmax;
    float scores[kMaxBlockTokens];
    float largest = state.largest;
    for (int64_t run = 0; run < 2; ++run) {
      for (int64_t t = seen.begin[run]; t < seen.end[run]; ++t) {
        scores[t] = Dot(task.query, block.keys + t * dim, dim) * args.scale;
        largest = std::fmax(largest, scores[t]);
      }
    }
    const float shrink = std::exp(state.largest - largest);
    for (int64_t c = 0; c < dim; ++c) task.out[c] *= shrink;
    float sum = 0.0F;
    for (int64_t run = 0; run < 2; ++run) {
      for (int64_t t = seen.begin[run]; t < seen.end[run]; ++t) {
        const float share = std::exp(scores[t] - largest);
        sum += share;
        const T* value = block.values + t * dim;
        for (int64_t c = 0; c < dim; ++c) task.out[c] += share * Widen(value[c]);
      }
    }
    state.largest = largest;
    state.sum = state.sum * shrink + sum;
  }
};

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

void Attention(const AttentionArgs& args) { WalkBlocks<Block>(args); }

void MaskedAttention(const AttentionArgs& args) { WalkAllBlocks<Block>(args); }

void KvWrite(const KvWriteArgs& args) {
  if (args.pool.type == Element::kF32) {
    WriteRows<float>(args);
  } else {
    WriteRows<uint16_t>(args);
  }
}

}  // namespace lookback::kernels::reference
