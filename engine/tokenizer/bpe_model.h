// The vocabulary of a byte-level BPE and its merges.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lookback {

/// Turns pre-tokens into ids. Immutable once Build has run.
/// Source: Word::merge_all and BPE::tokenize of the tokenizers library.
class BpeModel {
 public:
  /// What one Encode leaves for the next to use again. One a thread.
  struct Scratch {
    std::vector<int32_t> ids;
    std::vector<uint32_t> ranks;
    std::vector<int32_t> next;
    std::vector<int32_t> previous;
    std::vector<uint64_t> heap;
  };

  struct Merge {
    int32_t left;
    int32_t right;
    int32_t merged;
  };

  /// `tokens[id]` are the bytes of a token, empty where the id has none that text can become; no
  /// two are equal. `merges` are in order of rank, and the bytes of `merged` are those of `left`
  /// and `right`. Of two merges of the same pair the later counts. With `ignore_merges`, a
  /// pre-token that is in the vocabulary is that token, whatever the merges make of it.
  void Build(std::vector<std::string> tokens, std::vector<Merge> merges, bool ignore_merges);

  /// Appends the ids of one pre-token of less than 2^31 bytes. Bytes that are not in the vocabulary
  /// are left out. O(n log n).
  void Encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

  /// The token that is exactly `bytes`; −1 if there is none.
  int32_t Find(std::string_view bytes) const;

 private:
  static constexpr uint32_t kNoMerge = UINT32_MAX;
  struct Pair {
    uint64_t key;
    uint32_t rank = kNoMerge;  // kNoMerge: an empty slot
    int32_t merged;
  };

  struct Slot {
    uint32_t tag = 0;  // of the hash: most tokens that are not meant differ in it
    int32_t id = -1;   // −1: empty
  };

  const Pair* FindPair(int32_t left, int32_t right) const;
  uint32_t RankOf(int32_t left, int32_t right) const;
  void MergeShort(Scratch& scratch, std::vector<int32_t>& ids) const;
  void MergeLong(Scratch& scratch, std::vector<int32_t>& ids) const;
  void EncodeByMerging(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

  std::vector<std::string> tokens_;  // by id
  std::vector<Slot> slots_;          // hash table of ids by their bytes
  std::vector<bool> whole_;          // by id: a pre-token with these bytes becomes this one token
  size_t longest_ = 0;               // bytes of the longest token
  std::array<int32_t, 256> byte_ids_{};
  std::vector<Pair> pairs_;  // hash table; its size is a power of two
  std::vector<int32_t> merged_by_rank_;
};

}  // namespace lookback
