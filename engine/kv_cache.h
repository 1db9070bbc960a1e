// The paged KV cache: one pool of equal blocks, one queue of blocks a (sequence, layer, KV head),
// each only as long as that head's window needs (format.md, "Memory").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/config.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "kernels/kernels.h"

namespace lookback {

/// What a KV head keeps and how its blocks are laid out.
struct KvLayout {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t block_tokens = 32;
  kernels::Element type = kernels::Element::kF32;
  std::vector<HeadWindow> reach;  ///< [layer][KV head]: the largest of its query heads

  /// `full_attention`: every head keeps everything, whatever the table says (for comparison).
  static KvLayout For(const ModelConfig& config, int64_t block_tokens, kernels::Element type,
                      bool full_attention = false);
  int64_t heads() const { return layers * kv_heads; }
  /// Keys and values of one block, bytes.
  int64_t block_bytes() const;
};

/// Most blocks that one KV head holds at any time while `tokens` tokens are fed in chunks of at
/// most `chunk`: min(ceil(T/B), ceil(s/B) + ceil((min(T, W + C − 1) + B − 1)/B)).
int64_t MaxBlocksHeld(HeadWindow reach, int64_t tokens, int64_t chunk, int64_t block_tokens);

/// Most blocks that one sequence holds over all heads: `prompt` tokens in chunks of at most
/// `chunk`, then single tokens up to `total`.
int64_t WorstCaseBlocks(const KvLayout& layout, int64_t prompt, int64_t total, int64_t chunk);

/// Not thread-safe: the engine's loop owns it. Nothing allocates but Open().
class KvCache {
 public:
  /// `memory`: what the blocks lie in; memory.bytes() / layout.block_bytes() of them, at most 2^31
  /// − 1.
  KvCache(KvLayout layout, Buffer memory, int64_t max_sequences);

  const KvLayout& layout() const { return layout_; }

  /// Whether Open() with these arguments would succeed now.
  bool HasRoom(int64_t prompt, int64_t total, int64_t chunk) const;
  /// Starts an empty sequence and promises it its worst case. Returns its slot, or −1 if there is
  /// no room for the promise or no free slot.
  int32_t Open(int64_t prompt, int64_t total, int64_t chunk);
  /// Allocates the blocks of the next `tokens` tokens; cannot fail within what Open() was promised.
  void Reserve(int32_t slot, int64_t tokens);
  /// The reserved tokens have been written: the length grows, and every block that no later query
  /// can see goes back to the pool at once.
  void Commit(int32_t slot);
  /// Gives everything back.
  void Close(int32_t slot);

  /// Tokens committed.
  int64_t length(int32_t slot) const { return sequence(slot).length; }
  /// [layers · kv_heads] lists, valid from Open() to Close(), contents until the next Commit().
  const kernels::BlockList* lists(int32_t slot) const { return sequence(slot).lists.data(); }
  kernels::KvPool pool() const;

  int64_t blocks_total() const { return blocks_; }
  int64_t blocks_held() const { return blocks_ - static_cast<int64_t>(free_.size()); }
  int64_t blocks_held_peak() const { return held_peak_; }
  int64_t blocks_promised() const { return promised_; }
  /// Blocks held now by one sequence, and by one of its heads.
  int64_t blocks_of(int32_t slot) const { return sequence(slot).held; }
  int64_t blocks_of(int32_t slot, int64_t layer, int64_t kv_head) const;
  int64_t blocks_of_peak(int32_t slot) const { return sequence(slot).held_peak; }
  /// Blocks held over all sequences, [layer][KV head].
  std::span<const int64_t> held_by_head() const { return held_by_head_; }

  /// Another holder of a block; the block returns to the pool when the last one lets go.
  void Ref(int32_t block) { ++references_[static_cast<size_t>(block)]; }
  void Unref(int32_t block);
  int32_t references(int32_t block) const { return references_[static_cast<size_t>(block)]; }

 private:
  /// Blocks [first, end) of the window part, at ring[b % ring_size]; sink blocks apart.
  struct HeadBlocks {
    int64_t first = 0;
    int64_t end = 0;
    int64_t sinks_held = 0;
    int64_t ids_at = 0;  ///< into Sequence::ids: sink ids, then the ring
  };
  struct Sequence {
    bool open = false;
    int64_t length = 0;
    int64_t reserved = 0;
    int64_t promised = 0;
    int64_t held = 0;
    int64_t held_peak = 0;
    std::vector<HeadBlocks> heads;
    std::vector<kernels::BlockList> lists;
    std::vector<int32_t> ids;
  };

  const Sequence& sequence(int32_t slot) const { return sequences_[static_cast<size_t>(slot)]; }
  int32_t Take(Sequence& sequence, size_t head);
  void Give(Sequence& sequence, size_t head, int32_t block);
  int32_t& IdAt(Sequence& sequence, size_t head, int64_t block);
  void FreeBefore(Sequence& sequence, size_t head, int64_t block);

  KvLayout layout_;
  int64_t blocks_;
  Buffer memory_;
  std::vector<int32_t> free_;
  std::vector<int32_t> references_;
  std::vector<Sequence> sequences_;
  std::vector<int64_t> held_by_head_;
  int64_t promised_ = 0;
  int64_t held_peak_ = 0;
};

}  // namespace lookback
