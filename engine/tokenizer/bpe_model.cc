#include "engine/tokenizer/bpe_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace lookback {
namespace {

// Up to here a scan for the lowest rank is faster than a heap.
constexpr size_t kShortPiece = 32;

uint64_t HashOf(uint64_t value) {
  value *= 0x9E3779B97F4A7C15U;
  return value ^ value >> 32;
}

uint64_t HashOf(std::string_view bytes) {
  uint64_t hash = bytes.size();
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    hash = HashOf(hash ^ word);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, bytes.data(), bytes.size());
  return HashOf(hash ^ tail);
}

uint64_t KeyOf(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void BpeModel::Build(std::vector<std::string> tokens, std::vector<Merge> merges,
                     bool ignore_merges) {
  tokens_ = std::move(tokens);
  slots_.assign(std::bit_ceil(2 * tokens_.size() + 2), Slot{});
  byte_ids_.fill(-1);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const std::string& token = tokens_[id];
    if (token.empty()) continue;
    longest_ = std::max(longest_, token.size());
    if (token.size() == 1) {
      byte_ids_[static_cast<uint8_t>(token.front())] = static_cast<int32_t>(id);
    }
    const uint64_t hash = HashOf(token);
    size_t slot = hash & (slots_.size() - 1);
    while (slots_[slot].id >= 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = {static_cast<uint32_t>(hash >> 32), static_cast<int32_t>(id)};
  }

  pairs_.assign(std::bit_ceil(2 * merges.size() + 2), Pair{});
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    const uint64_t key = KeyOf(merge.left, merge.right);
    size_t slot = HashOf(key) & (pairs_.size() - 1);
    while (pairs_[slot].rank != kNoMerge && pairs_[slot].key != key) {
      slot = (slot + 1) & (pairs_.size() - 1);
    }
    pairs_[slot] = {key, static_cast<uint32_t>(rank), merge.merged};
    merged_by_rank_.push_back(merge.merged);
  }

  whole_.assign(tokens_.size(), ignore_merges);
  if (ignore_merges) return;
  // Most pre-tokens are one token. Those that merging arrives at are found without merging.
  Scratch scratch;
  std::vector<int32_t> ids;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    ids.clear();
    EncodeByMerging(tokens_[id], scratch, ids);
    whole_[id] = ids.size() == 1 && ids.front() == static_cast<int32_t>(id);
  }
}

int32_t BpeModel::Find(std::string_view bytes) const {
  if (bytes.empty() || bytes.size() > longest_) return -1;
  const uint64_t hash = HashOf(bytes);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.id < 0) return -1;
    if (slot.tag == tag && tokens_[static_cast<size_t>(slot.id)] == bytes) return slot.id;
  }
}

const BpeModel::Pair* BpeModel::FindPair(int32_t left, int32_t right) const {
  const uint64_t key = KeyOf(left, right);
  for (size_t slot = HashOf(key) & (pairs_.size() - 1);; slot = (slot + 1) & (pairs_.size() - 1)) {
    if (pairs_[slot].rank == kNoMerge) return nullptr;
    if (pairs_[slot].key == key) return &pairs_[slot];
  }
}

uint32_t BpeModel::RankOf(int32_t left, int32_t right) const {
  const Pair* pair = FindPair(left, right);
  return pair == nullptr ? kNoMerge : pair->rank;
}

void BpeModel::Encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  const int32_t id = Find(piece);
  if (id >= 0 && whole_[static_cast<size_t>(id)]) {
    ids.push_back(id);
    return;
  }
  EncodeByMerging(piece, scratch, ids);
}

void BpeModel::EncodeByMerging(std::string_view piece, Scratch& scratch,
                               std::vector<int32_t>& ids) const {
  scratch.ids.clear();
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) scratch.ids.push_back(id);
  }
  if (scratch.ids.empty()) return;
  scratch.ranks.resize(scratch.ids.size());
  for (size_t i = 0; i + 1 < scratch.ids.size(); ++i) {
    scratch.ranks[i] = RankOf(scratch.ids[i], scratch.ids[i + 1]);
  }
  scratch.ranks.back() = kNoMerge;
  if (scratch.ids.size() <= kShortPiece) {
    MergeShort(scratch, ids);
  } else {
    MergeLong(scratch, ids);
  }
}

// ranks[i] is that of the pair (ids[i], ids[i + 1]); both vectors shrink with every merge.
void BpeModel::MergeShort(Scratch& scratch, std::vector<int32_t>& ids) const {
  auto& symbols = scratch.ids;
  auto& ranks = scratch.ranks;
  while (true) {
    const auto lowest = std::min_element(ranks.begin(), ranks.end());
    if (*lowest == kNoMerge) break;
    const auto i = static_cast<size_t>(lowest - ranks.begin());
    symbols[i] = merged_by_rank_[*lowest];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks[i] = i + 1 < symbols.size() ? RankOf(symbols[i], symbols[i + 1]) : kNoMerge;
    if (i > 0) ranks[i - 1] = RankOf(symbols[i - 1], symbols[i]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

// The same with a linked list of symbols and a heap of (rank, position). An entry whose pair has
// changed since is passed over: its rank is no longer the one at its position.
void BpeModel::MergeLong(Scratch& scratch, std::vector<int32_t>& ids) const {
  auto& symbols = scratch.ids;
  auto& ranks = scratch.ranks;
  auto& heap = scratch.heap;
  const size_t count = symbols.size();
  scratch.next.resize(count);
  scratch.previous.resize(count);
  heap.clear();
  for (size_t i = 0; i < count; ++i) {
    scratch.next[i] = i + 1 < count ? static_cast<int32_t>(i + 1) : -1;
    scratch.previous[i] = static_cast<int32_t>(i) - 1;
    if (ranks[i] != kNoMerge) heap.push_back(uint64_t{ranks[i]} << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto set_rank = [&](size_t at, uint32_t rank) {
    ranks[at] = rank;
    if (rank == kNoMerge) return;
    heap.push_back(uint64_t{rank} << 32 | at);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto at = static_cast<size_t>(heap.back() & UINT32_MAX);
    heap.pop_back();
    if (ranks[at] != rank) continue;
    const auto gone = static_cast<size_t>(scratch.next[at]);
    const int32_t after = scratch.next[gone];
    symbols[at] = merged_by_rank_[rank];
    ranks[gone] = kNoMerge;
    scratch.next[at] = after;
    if (after >= 0) scratch.previous[static_cast<size_t>(after)] = static_cast<int32_t>(at);
    set_rank(at, after < 0 ? kNoMerge : RankOf(symbols[at], symbols[static_cast<size_t>(after)]));
    const int32_t before = scratch.previous[at];
    if (before >= 0) {
      set_rank(static_cast<size_t>(before),
               RankOf(symbols[static_cast<size_t>(before)], symbols[at]));
    }
  }
  for (int32_t i = 0; i >= 0; i = scratch.next[static_cast<size_t>(i)]) {
    ids.push_back(symbols[static_cast<size_t>(i)]);
  }
}

}  // namespace lookback
