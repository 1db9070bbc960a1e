#include "tools/convert/pickle_tree.h"

#include <algorithm>
#include <optional>

namespace lookback::tools {

namespace {

/// Child number `index` of a container, keys of dicts apart (they are strings and integers);
/// nothing behind the last and for all else.
std::optional<PickleId> Child(const PickleValue& value, size_t index) {
  if (const auto* list = std::get_if<PickleList>(&value)) {
    if (index < list->items.size()) return list->items[index];
  } else if (const auto* tuple = std::get_if<PickleTuple>(&value)) {
    if (index < tuple->items.size()) return tuple->items[index];
  } else if (const auto* dict = std::get_if<PickleDict>(&value)) {
    if (index < dict->items.size()) return dict->items[index].second;
  }
  return std::nullopt;
}

}  // namespace

std::string DescribePickle(const PickleValue& value) {
  struct Describe {
    std::string operator()(const PickleNone&) const { return "None"; }
    std::string operator()(bool flag) const { return flag ? "True" : "False"; }
    std::string operator()(int64_t number) const { return StrCat("the integer ", number); }
    std::string operator()(double number) const { return StrCat("the float ", number); }
    std::string operator()(const std::string& text) const {
      return StrCat("the string ", Quoted(text));
    }
    std::string operator()(const PickleBytes& bytes) const {
      return StrCat(bytes.bytes.size(), " bytes");
    }
    std::string operator()(const PickleList& list) const {
      return StrCat("a list of ", list.items.size());
    }
    std::string operator()(const PickleTuple& tuple) const {
      return StrCat("a tuple of ", tuple.items.size());
    }
    std::string operator()(const PickleDict& dict) const {
      return StrCat("a dict of ", dict.items.size(), " keys");
    }
    std::string operator()(const PickleStorage&) const { return "a storage"; }
    std::string operator()(const PickleTensor&) const { return "a tensor"; }
    std::string operator()(const PickleName& name) const { return std::string(name.name); }
  };
  return std::visit(Describe{}, value);
}

const PickleValue* PickleTree::Find(const PickleValue& value, std::string_view key) const {
  const auto* dict = std::get_if<PickleDict>(&value);
  if (dict == nullptr) return nullptr;
  const auto found = dict->by_key.find(PickleDict::Key(key));
  return found == dict->by_key.end() ? nullptr : &values_[found->second];
}

Status PickleTree::Check(const std::string& where) const {
  // Depth first, without recursion: a container is finished when all its children are.
  constexpr int64_t kUnseen = -1;
  constexpr int64_t kOpen = -2;
  struct Open {
    PickleId id;
    size_t next = 0;
    int64_t nodes = 1;
    int64_t depth = 0;
  };
  std::vector<int64_t> nodes(values_.size(), kUnseen);
  std::vector<int64_t> depths(values_.size(), 0);
  std::vector<Open> path = {{root_}};
  nodes[root_] = kOpen;
  while (!path.empty()) {
    Open& top = path.back();
    const std::optional<PickleId> child = Child(values_[top.id], top.next);
    if (!child) {
      nodes[top.id] = top.nodes;
      depths[top.id] = top.depth;
      path.pop_back();
      continue;
    }
    if (nodes[*child] == kOpen) {
      return Mismatch(where, "a container that contains itself", "values without cycles");
    }
    if (nodes[*child] == kUnseen) {
      nodes[*child] = kOpen;
      path.push_back({*child});  // and comes back to this child when it is known
      continue;
    }
    top.nodes += nodes[*child];  // no overflow: each is below the limit
    top.depth = std::max(top.depth, depths[*child] + 1);
    ++top.next;
    if (top.nodes > kMaxPickleNodes) {
      return Mismatch(where, "shared values that unfold to more than the limit",
                      StrCat("at most ", kMaxPickleNodes, " values"));
    }
    if (top.depth > kMaxPickleDepth) {
      return Mismatch(StrCat("nesting in ", where),
                      StrCat("more than ", kMaxPickleDepth, " levels"),
                      StrCat("at most ", kMaxPickleDepth));
    }
  }
  return {};
}

}  // namespace lookback::tools
