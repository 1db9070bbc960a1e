// What a pickle of PyTorch holds, as plain values.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"

namespace lookback::tools {

/// Index of a value in its PickleTree. A value may have several parents, but is no part of itself.
using PickleId = uint32_t;

struct PickleNone {};
struct PickleBytes {
  std::string bytes;
};
struct PickleList {
  std::vector<PickleId> items;
};
struct PickleTuple {
  std::vector<PickleId> items;
};
/// A dict or an OrderedDict. Keys are strings or integers, each once.
struct PickleDict {
  using Key = std::variant<int64_t, std::string_view>;
  std::vector<std::pair<PickleId, PickleId>> items;  ///< key and value, in order of insertion
  std::map<Key, PickleId> by_key;                    ///< the strings are the tree's own
  bool ordered = false;                              ///< made by collections.OrderedDict
};
/// The bytes that tensors lie in: entry `data/KEY` of the archive.
struct PickleStorage {
  DType dtype = DType::kF32;
  std::string key;
  int64_t elements = 0;
};
/// A view of a storage, in elements. Nothing but the signs of the numbers has been checked.
struct PickleTensor {
  PickleStorage storage;
  int64_t offset = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};
/// A name of the allow-list that stands for a value: "torch.float32".
struct PickleName {
  std::string_view name;
};

using PickleValue =
    std::variant<PickleNone, bool, int64_t, double, std::string, PickleBytes, PickleList,
                 PickleTuple, PickleDict, PickleStorage, PickleTensor, PickleName>;

/// For the "got" of an error: "a tensor", "the integer 3", "a dict of 4 keys".
std::string DescribePickle(const PickleValue& value);

/// The values of one pickle. Owned in one place, so that neither sharing nor nesting costs
/// anything: the walk over the whole tree is bounded by kMaxPickleNodes and kMaxPickleDepth.
class PickleTree {
 public:
  PickleTree() = default;
  // A copy's keys would point into the original.
  PickleTree(PickleTree&&) = default;
  PickleTree& operator=(PickleTree&&) = default;

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& at(PickleId id) const { return values_[id]; }
  int64_t size() const { return static_cast<int64_t>(values_.size()); }
  /// The value of a string key; null where there is none or `value` is no dict.
  const PickleValue* Find(const PickleValue& value, std::string_view key) const;

 private:
  friend class Unpickler;
  /// Refuses cycles, too much depth, and sharing that unfolds to too many nodes.
  Status Check(const std::string& where) const;

  std::deque<PickleValue> values_;  // a deque: the strings stay where keys point to
  PickleId root_ = 0;
};

/// Deepest nesting of containers.
inline constexpr int64_t kMaxPickleDepth = 32;
/// Most nodes of the tree with every shared value counted wherever it occurs.
inline constexpr int64_t kMaxPickleNodes = 10'000'000;

}  // namespace lookback::tools
