#include "engine/kv_cache.h"

#include <algorithm>

namespace lookback {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Blocks of the window part: what MaxBlocksHeld adds to the sinks.
int64_t WindowBlocks(HeadWindow reach, int64_t tokens, int64_t chunk, int64_t block_tokens) {
  const int64_t all = CeilDiv(tokens, block_tokens);
  if (reach.full()) return all;
  const int64_t live = std::min(tokens, int64_t{reach.window} + chunk - 1);
  return std::min(all, CeilDiv(live + block_tokens - 1, block_tokens));
}

int64_t SinkBlocks(HeadWindow reach, int64_t block_tokens) {
  return reach.full() ? 0 : CeilDiv(reach.sinks, block_tokens);
}

}  // namespace

KvLayout KvLayout::For(const ModelConfig& config, int64_t block_tokens, kernels::Element type,
                       bool full_attention) {
  KvLayout layout{config.layers, config.kv_heads, config.head_dim, block_tokens, type, {}};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (int64_t head = 0; head < config.kv_heads; ++head) {
      layout.reach.push_back(full_attention ? HeadWindow{}
                                            : config.windows.KvHead(layer, head, config.group()));
    }
  }
  return layout;
}

int64_t KvLayout::block_bytes() const {
  return block_tokens * head_dim * 2 * (type == kernels::Element::kF32 ? 4 : 2);
}

int64_t MaxBlocksHeld(HeadWindow reach, int64_t tokens, int64_t chunk, int64_t block_tokens) {
  return std::min(
      CeilDiv(tokens, block_tokens),
      SinkBlocks(reach, block_tokens) + WindowBlocks(reach, tokens, chunk, block_tokens));
}

int64_t WorstCaseBlocks(const KvLayout& layout, int64_t prompt, int64_t total, int64_t chunk) {
  int64_t prefill = 0, decode = 0;
  for (const HeadWindow& reach : layout.reach) {
    prefill += MaxBlocksHeld(reach, prompt, std::min(chunk, prompt), layout.block_tokens);
    decode += MaxBlocksHeld(reach, total, 1, layout.block_tokens);
  }
  return std::max(prefill, decode);
}

KvCache::KvCache(KvLayout layout, Buffer memory, int64_t max_sequences)
    : layout_(std::move(layout)),
      blocks_(memory.bytes() / layout_.block_bytes()),
      memory_(std::move(memory)),
      references_(static_cast<size_t>(blocks_)),
      sequences_(static_cast<size_t>(max_sequences)),
      held_by_head_(static_cast<size_t>(layout_.heads())) {
  free_.reserve(static_cast<size_t>(blocks_));
  // Low ids are handed out first, so that a short-lived process touches little of the pool.
  for (int64_t id = blocks_ - 1; id >= 0; --id) free_.push_back(static_cast<int32_t>(id));
}

kernels::KvPool KvCache::pool() const {
  return {memory_.data(), layout_.block_bytes(), layout_.block_tokens, layout_.head_dim,
          layout_.type};
}

bool KvCache::HasRoom(int64_t prompt, int64_t total, int64_t chunk) const {
  return promised_ + WorstCaseBlocks(layout_, prompt, total, chunk) <= blocks_ &&
         std::any_of(sequences_.begin(), sequences_.end(), [](const auto& s) { return !s.open; });
}

int32_t KvCache::Open(int64_t prompt, int64_t total, int64_t chunk) {
  if (!HasRoom(prompt, total, chunk)) return -1;
  const auto slot =
      std::find_if(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return !s.open; });
  Sequence& sequence = *slot;
  sequence.open = true;
  sequence.length = sequence.reserved = sequence.held = sequence.held_peak = 0;
  sequence.promised = WorstCaseBlocks(layout_, prompt, total, chunk);
  promised_ += sequence.promised;

  const auto heads = static_cast<size_t>(layout_.heads());
  sequence.heads.assign(heads, {});
  sequence.lists.resize(heads);
  int64_t ids = 0;
  for (size_t h = 0; h < heads; ++h) {
    const HeadWindow reach = layout_.reach[h];
    // Live blocks are one run of absolute indices no longer than this, so b % ring is unique.
    const int64_t ring =
        std::max(WindowBlocks(reach, prompt, std::min(chunk, prompt), layout_.block_tokens),
                 WindowBlocks(reach, total, 1, layout_.block_tokens));
    const int64_t sinks =
        std::min(SinkBlocks(reach, layout_.block_tokens), CeilDiv(total, layout_.block_tokens));
    sequence.heads[h].ids_at = ids;
    sequence.heads[h].first = sequence.heads[h].end = sinks;
    sequence.lists[h] = {nullptr, nullptr, sinks, std::max<int64_t>(ring, 1)};
    ids += sinks + sequence.lists[h].ring_size;
  }
  sequence.ids.assign(static_cast<size_t>(ids), -1);
  for (size_t h = 0; h < heads; ++h) {
    sequence.lists[h].sinks = sequence.ids.data() + sequence.heads[h].ids_at;
    sequence.lists[h].ring = sequence.lists[h].sinks + sequence.lists[h].sink_blocks;
  }
  return static_cast<int32_t>(slot - sequences_.begin());
}

int32_t& KvCache::IdAt(Sequence& sequence, size_t head, int64_t block) {
  const kernels::BlockList& list = sequence.lists[head];
  const int64_t at = block < list.sink_blocks ? block : list.sink_blocks + block % list.ring_size;
  return sequence.ids[static_cast<size_t>(sequence.heads[head].ids_at + at)];
}

int32_t KvCache::Take(Sequence& sequence, size_t head) {
  LOOKBACK_CHECK(!free_.empty());
  const int32_t block = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(block)] = 1;
  ++held_by_head_[head];
  ++sequence.held;
  held_peak_ = std::max(held_peak_, blocks_held());
  sequence.held_peak = std::max(sequence.held_peak, sequence.held);
  return block;
}

void KvCache::Give(Sequence& sequence, size_t head, int32_t block) {
  Unref(block);
  --held_by_head_[head];
  --sequence.held;
}

void KvCache::Unref(int32_t block) {
  int32_t& references = references_[static_cast<size_t>(block)];
  LOOKBACK_CHECK(references > 0);
  if (--references == 0) free_.push_back(block);
}

void KvCache::Reserve(int32_t slot, int64_t tokens) {
  Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  LOOKBACK_CHECK(sequence.open && sequence.reserved == 0 && tokens > 0);
  sequence.reserved = tokens;
  const int64_t end = CeilDiv(sequence.length + tokens, layout_.block_tokens);
  for (size_t h = 0; h < sequence.heads.size(); ++h) {
    HeadBlocks& head = sequence.heads[h];
    for (const int64_t sinks = std::min(end, sequence.lists[h].sink_blocks);
         head.sinks_held < sinks; ++head.sinks_held) {
      IdAt(sequence, h, head.sinks_held) = Take(sequence, h);
    }
    for (; head.end < end; ++head.end) {
      LOOKBACK_CHECK(head.end - head.first < sequence.lists[h].ring_size);
      IdAt(sequence, h, head.end) = Take(sequence, h);
    }
  }
  LOOKBACK_CHECK(sequence.held <= sequence.promised);
}

void KvCache::FreeBefore(Sequence& sequence, size_t head, int64_t block) {
  HeadBlocks& blocks = sequence.heads[head];
  for (; blocks.first < std::min(block, blocks.end); ++blocks.first) {
    int32_t& id = IdAt(sequence, head, blocks.first);
    Give(sequence, head, id);
    id = -1;
  }
}

void KvCache::Commit(int32_t slot) {
  Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  sequence.length += sequence.reserved;
  sequence.reserved = 0;
  for (size_t h = 0; h < sequence.heads.size(); ++h) {
    const HeadWindow reach = layout_.reach[h];
    if (reach.full()) continue;
    // The next query stands at `length` and sees keys from length − W + 1 on.
    FreeBefore(sequence, h, (sequence.length - reach.window + 1) / layout_.block_tokens);
  }
}

void KvCache::Close(int32_t slot) {
  Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  LOOKBACK_CHECK(sequence.open);
  for (size_t h = 0; h < sequence.heads.size(); ++h) {
    FreeBefore(sequence, h, sequence.heads[h].end);
    for (int64_t b = 0; b < sequence.heads[h].sinks_held; ++b) {
      Give(sequence, h, IdAt(sequence, h, b));
    }
  }
  LOOKBACK_CHECK(sequence.held == 0);
  promised_ -= sequence.promised;
  sequence.open = false;
}

int64_t KvCache::blocks_of(int32_t slot, int64_t layer, int64_t kv_head) const {
  const HeadBlocks& head =
      sequence(slot).heads[static_cast<size_t>(layer * layout_.kv_heads + kv_head)];
  return head.end - head.first + head.sinks_held;
}

}  // namespace lookback
