#include "tools/convert/unpickler.h"

#include <bit>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/json.h"
#include "engine/utf8.h"
#include "tools/convert/pickle_names.h"

namespace lookback::tools {

namespace {

constexpr size_t kMaxDims = 16;
constexpr size_t kMaxStorageKeyBytes = 64;
constexpr size_t kMaxGlobalBytes = 256;

/// Keys of dicts are strings and integers; nothing for other values.
std::optional<PickleDict::Key> AsKey(const PickleValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return PickleDict::Key(std::string_view(*text));
  }
  if (const auto* number = std::get_if<int64_t>(&value)) return PickleDict::Key(*number);
  return std::nullopt;
}

}  // namespace

/// The stack machine. It lives outside the anonymous namespace as PickleTree's friend.
class Unpickler {
 public:
  Unpickler(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  Result<PickleTree> Run();

 private:
  // The steps return false after Fail().
  bool Fail(const Status& status);
  bool Refuse(std::string_view got, std::string_view expected);
  bool Step(unsigned char opcode);
  bool Scalar(unsigned char opcode);
  bool Text(unsigned char opcode);
  bool Container(unsigned char opcode);
  bool Memo(unsigned char opcode);
  bool Callable(unsigned char opcode);

  bool Take(uint64_t count, std::string_view& out);
  bool TakeInt(size_t count, uint64_t& out);
  bool Push(PickleValue value);
  bool Pop(PickleId& out);
  bool PopMark(std::vector<PickleId>& out);
  bool SetItems(std::span<const PickleId> pairs);
  bool Append(std::span<const PickleId> items);
  bool Long(uint64_t count);
  bool Global(std::string_view module, std::string_view name);
  bool Reduce();
  bool Build();
  bool PersistentId();
  bool RebuildTensor(const PickleTuple& arguments);
  bool Sizes(PickleId id, std::vector<int64_t>& out) const;

  template <typename T>
  const T* Get(PickleId id) const {
    return std::get_if<T>(&tree_.values_[id]);
  }

  std::string_view bytes_;
  const std::string& where_;
  size_t at_ = 0;      // next byte
  size_t opcode_ = 0;  // where the current opcode began
  bool stopped_ = false;
  PickleTree tree_;
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint64_t, PickleId> memo_;
  std::unordered_map<PickleId, PickleGlobal> globals_;  // values that are callables or types
  Status status_;
};

bool Unpickler::Fail(const Status& status) {
  status_ = status;
  return false;
}

bool Unpickler::Refuse(std::string_view got, std::string_view expected) {
  return Fail(Mismatch(StrCat("byte ", opcode_, " of ", where_), got, expected));
}

bool Unpickler::Take(uint64_t count, std::string_view& out) {
  if (count > bytes_.size() - at_) {
    return Refuse(StrCat(PickleOpcodeName(static_cast<unsigned char>(bytes_[opcode_])), " with ",
                         count, " bytes to follow"),
                  StrCat("at most the ", bytes_.size() - at_, " that there are"));
  }
  out = bytes_.substr(at_, count);
  at_ += count;
  return true;
}

bool Unpickler::TakeInt(size_t count, uint64_t& out) {
  std::string_view raw;
  if (!Take(count, raw)) return false;
  out = 0;
  for (size_t i = count; i-- > 0;) out = out << 8 | static_cast<unsigned char>(raw[i]);
  return true;
}

bool Unpickler::Push(PickleValue value) {
  if (tree_.size() == kMaxPickleValues) {
    return Refuse("more values than the limit", StrCat("at most ", kMaxPickleValues));
  }
  tree_.values_.push_back(std::move(value));
  stack_.push_back(static_cast<PickleId>(tree_.values_.size() - 1));
  return true;
}

bool Unpickler::Pop(PickleId& out) {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) {
    return Refuse("an operand that is not on the stack", "one");
  }
  out = stack_.back();
  stack_.pop_back();
  return true;
}

bool Unpickler::PopMark(std::vector<PickleId>& out) {
  if (marks_.empty()) return Refuse("an opcode that needs a MARK", "a MARK before it");
  const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  out.assign(from, stack_.end());
  stack_.erase(from, stack_.end());
  marks_.pop_back();
  return true;
}

bool Unpickler::Long(uint64_t count) {
  std::string_view raw;
  if (count > 8) return Refuse(StrCat("an integer of ", count, " bytes"), "at most 8 bytes");
  if (!Take(count, raw)) return false;
  uint64_t value = 0;
  if (!raw.empty() && static_cast<signed char>(raw.back()) < 0) value = ~uint64_t{0};
  for (size_t i = raw.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(raw[i]);
  }
  return Push(static_cast<int64_t>(value));
}

bool Unpickler::Scalar(unsigned char opcode) {
  uint64_t raw = 0;
  switch (opcode) {
    case 'N':
      return Push(PickleNone{});
    case 0x88:
      return Push(true);
    case 0x89:
      return Push(false);
    case 'J':
      return TakeInt(4, raw) && Push(int64_t{static_cast<int32_t>(static_cast<uint32_t>(raw))});
    case 'K':
      return TakeInt(1, raw) && Push(static_cast<int64_t>(raw));
    case 'M':
      return TakeInt(2, raw) && Push(static_cast<int64_t>(raw));
    case 0x8A:
      return TakeInt(1, raw) && Long(raw);
    case 0x8B:
      return TakeInt(4, raw) && Long(raw);
    default: {  // BINFLOAT, big-endian
      std::string_view bytes;
      if (!Take(8, bytes)) return false;
      for (const char byte : bytes) raw = raw << 8 | static_cast<unsigned char>(byte);
      return Push(std::bit_cast<double>(raw));
    }
  }
}

bool Unpickler::Text(unsigned char opcode) {
  const bool is_short = opcode == 0x8C || opcode == 'C';
  const bool is_long = opcode == 0x8D || opcode == 0x8E;
  uint64_t count = 0;
  std::string_view raw;
  if (!TakeInt(is_short ? 1 : is_long ? 8 : 4, count) || !Take(count, raw)) return false;
  if (opcode == 'B' || opcode == 'C' || opcode == 0x8E) {
    return Push(PickleBytes{std::string(raw)});
  }
  if (!IsValidUtf8(raw)) return Refuse(StrCat("the string ", Quoted(raw)), "a string in UTF-8");
  return Push(std::string(raw));
}

bool Unpickler::Append(std::span<const PickleId> items) {
  PickleId target = 0;
  if (!Pop(target)) return false;
  stack_.push_back(target);
  auto* list = std::get_if<PickleList>(&tree_.values_[target]);
  if (list == nullptr) {
    return Refuse(StrCat("items for ", DescribePickle(tree_.values_[target])), "a list");
  }
  list->items.insert(list->items.end(), items.begin(), items.end());
  return true;
}

bool Unpickler::SetItems(std::span<const PickleId> pairs) {
  PickleId target = 0;
  if (pairs.size() % 2 != 0) return Refuse("a key without a value", "pairs");
  if (!Pop(target)) return false;
  stack_.push_back(target);
  auto* dict = std::get_if<PickleDict>(&tree_.values_[target]);
  if (dict == nullptr) {
    return Refuse(StrCat("items for ", DescribePickle(tree_.values_[target])), "a dict");
  }
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const PickleValue& key_value = tree_.values_[pairs[i]];
    const std::optional<PickleDict::Key> key = AsKey(key_value);
    if (!key) {
      return Refuse(StrCat("the key ", DescribePickle(key_value)), "a string or an integer");
    }
    if (!dict->by_key.emplace(*key, pairs[i + 1]).second) {
      return Refuse(StrCat("the key ", DescribePickle(key_value), " twice"), "every key once");
    }
    dict->items.emplace_back(pairs[i], pairs[i + 1]);
  }
  return true;
}

bool Unpickler::Container(unsigned char opcode) {
  std::vector<PickleId> items;
  switch (opcode) {
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case ')':
      return Push(PickleTuple{});
    case ']':
      return Push(PickleList{});
    case '}':
      return Push(PickleDict{});
    case 't':
      return PopMark(items) && Push(PickleTuple{std::move(items)});
    case 'l':
      return PopMark(items) && Push(PickleList{std::move(items)});
    case 'd':
      return PopMark(items) && Push(PickleDict{}) && SetItems(items);
    case 'e':
      return PopMark(items) && Append(items);
    case 'u':
      return PopMark(items) && SetItems(items);
    case 'a':
      items.resize(1);
      return Pop(items[0]) && Append(items);
    case 's':
      items.resize(2);
      return Pop(items[1]) && Pop(items[0]) && SetItems(items);
    default:  // TUPLE1, TUPLE2, TUPLE3
      items.resize(opcode - size_t{0x84});
      for (size_t i = items.size(); i-- > 0;) {
        if (!Pop(items[i])) return false;
      }
      return Push(PickleTuple{std::move(items)});
  }
}

bool Unpickler::Memo(unsigned char opcode) {
  uint64_t index = memo_.size();
  if (opcode != 0x94 && !TakeInt(opcode == 'q' || opcode == 'h' ? 1 : 4, index)) return false;
  if (opcode == 'h' || opcode == 'j') {
    const auto found = memo_.find(index);
    if (found == memo_.end()) {
      return Refuse(StrCat("memo ", index), "one that was stored before");
    }
    stack_.push_back(found->second);
    return true;
  }
  PickleId top = 0;
  if (!Pop(top)) return false;
  stack_.push_back(top);
  memo_[index] = top;
  return true;
}

bool Unpickler::Global(std::string_view module, std::string_view name) {
  const std::optional<PickleGlobal> global = FindPickleGlobal(module, name);
  if (!global) {
    return Refuse(StrCat("the global ", Quoted(StrCat(module.substr(0, kMaxGlobalBytes), ".",
                                                      name.substr(0, kMaxGlobalBytes)))),
                  "only what a state_dict of tensors needs (nothing of the file is executed)");
  }
  if (!Push(PickleName{global->name})) return false;
  globals_.emplace(stack_.back(), *global);
  return true;
}

bool Unpickler::Sizes(PickleId id, std::vector<int64_t>& out) const {
  const auto* tuple = Get<PickleTuple>(id);
  if (tuple == nullptr || tuple->items.size() > kMaxDims) return false;
  for (const PickleId item : tuple->items) {
    const auto* size = Get<int64_t>(item);
    if (size == nullptr || *size < 0) return false;
    out.push_back(*size);
  }
  return true;
}

/// (storage, offset, size, stride, requires_grad, backward_hooks[, metadata])
bool Unpickler::RebuildTensor(const PickleTuple& arguments) {
  const std::vector<PickleId>& items = arguments.items;
  const auto is_empty = [&](PickleId id) {
    const auto* dict = Get<PickleDict>(id);
    return Get<PickleNone>(id) != nullptr || (dict != nullptr && dict->items.empty());
  };
  PickleTensor tensor;
  if (items.size() == 6 || items.size() == 7) {
    const auto* storage = Get<PickleStorage>(items[0]);
    const auto* offset = Get<int64_t>(items[1]);
    if (storage != nullptr && offset != nullptr && *offset >= 0 && Sizes(items[2], tensor.shape) &&
        Sizes(items[3], tensor.strides) && tensor.shape.size() == tensor.strides.size() &&
        Get<bool>(items[4]) != nullptr && is_empty(items[5]) &&
        (items.size() == 6 || is_empty(items[6]))) {
      tensor.storage = *storage;
      tensor.offset = *offset;
      return Push(std::move(tensor));
    }
  }
  return Refuse("arguments of _rebuild_tensor_v2 of other types",
                StrCat("a storage, its offset, sizes and strides (at most ", kMaxDims,
                       ", none negative), a flag and no hooks"));
}

bool Unpickler::Reduce() {
  PickleId argument_id = 0;
  PickleId callable_id = 0;
  if (!Pop(argument_id) || !Pop(callable_id)) return false;
  const auto callable = globals_.find(callable_id);
  const auto* arguments = Get<PickleTuple>(argument_id);
  if (callable == globals_.end() || arguments == nullptr) {
    return Refuse(StrCat("REDUCE of ", DescribePickle(tree_.values_[callable_id])),
                  "a callable of the allow-list with a tuple");
  }
  const std::vector<PickleId>& items = arguments->items;
  switch (callable->second.kind) {
    case PickleGlobal::kOrderedDict:
      if (!items.empty()) break;
      return Push(PickleDict{{}, {}, true});
    case PickleGlobal::kRebuildTensor:
      return RebuildTensor(*arguments);
    case PickleGlobal::kRebuildParameter:  // (tensor, requires_grad, backward_hooks)
      if (items.size() != 3 || Get<PickleTensor>(items[0]) == nullptr) break;
      stack_.push_back(items[0]);
      return true;
    case PickleGlobal::kSize:  // a tuple of a tuple
      if (items.size() != 1 || Get<PickleTuple>(items[0]) == nullptr) break;
      stack_.push_back(items[0]);
      return true;
    case PickleGlobal::kStorageType:
    case PickleGlobal::kDType:
      break;
  }
  return Refuse(StrCat("REDUCE of ", callable->second.name, " with ", items.size(), " arguments"),
                "what a state_dict needs of it");
}

/// OrderedDict keeps its attributes (_metadata: versions of modules) in a dict. We need none.
bool Unpickler::Build() {
  PickleId state = 0;
  PickleId target = 0;
  if (!Pop(state) || !Pop(target)) return false;
  const auto* dict = Get<PickleDict>(target);
  if (dict == nullptr || !dict->ordered || Get<PickleDict>(state) == nullptr) {
    return Refuse(StrCat("BUILD of ", DescribePickle(tree_.values_[target]), " with ",
                         DescribePickle(tree_.values_[state])),
                  "an OrderedDict with a dict");
  }
  stack_.push_back(target);
  return true;
}

/// ('storage', TYPE, key, location, elements)
bool Unpickler::PersistentId() {
  PickleId id = 0;
  if (!Pop(id)) return false;
  const auto* tuple = Get<PickleTuple>(id);
  if (tuple != nullptr && tuple->items.size() == 5) {
    const std::vector<PickleId>& items = tuple->items;
    const auto* tag = Get<std::string>(items[0]);
    const auto type = globals_.find(items[1]);
    const auto* key = Get<std::string>(items[2]);
    const auto* elements = Get<int64_t>(items[4]);
    if (tag != nullptr && *tag == "storage" && type != globals_.end() &&
        type->second.kind == PickleGlobal::kStorageType && key != nullptr && !key->empty() &&
        key->size() <= kMaxStorageKeyBytes && Get<std::string>(items[3]) != nullptr &&
        elements != nullptr && *elements >= 0) {
      return Push(PickleStorage{type->second.dtype, *key, *elements});
    }
  }
  return Refuse(StrCat("a persistent id that is ", DescribePickle(tree_.values_[id])),
                "('storage', type, key, location, elements)");
}

bool Unpickler::Callable(unsigned char opcode) {
  if (opcode == 'R') return Reduce();
  if (opcode == 'b') return Build();
  if (opcode == 'Q') return PersistentId();
  if (opcode == 'c') {
    std::string_view lines[2];
    for (std::string_view& line : lines) {
      const size_t end = bytes_.find('\n', at_);
      if (end == std::string_view::npos) return Refuse("GLOBAL without its names", "two lines");
      line = bytes_.substr(at_, end - at_);
      at_ = end + 1;
    }
    return Global(lines[0], lines[1]);
  }
  PickleId name = 0;  // STACK_GLOBAL
  PickleId module = 0;
  if (!Pop(name) || !Pop(module)) return false;
  const auto* module_text = Get<std::string>(module);
  const auto* name_text = Get<std::string>(name);
  if (module_text == nullptr || name_text == nullptr) {
    return Refuse("STACK_GLOBAL without strings", "two strings");
  }
  return Global(*module_text, *name_text);
}

bool Unpickler::Step(unsigned char opcode) {
  uint64_t raw = 0;
  std::vector<PickleId> dropped;
  PickleId top = 0;
  switch (opcode) {
    case 0x80:  // PROTO
      if (!TakeInt(1, raw)) return false;
      return raw >= 2 && raw <= 5 ? true : Refuse(StrCat("pickle protocol ", raw), "2 to 5");
    case 0x95:  // FRAME: a hint for readers of streams
      if (!TakeInt(8, raw)) return false;
      return raw <= bytes_.size() - at_ ? true : Refuse("a frame beyond the end", "one within");
    case '.':
      stopped_ = true;
      return true;
    case '0':
      return Pop(top);
    case '1':
      return PopMark(dropped);
    case 'N':
    case 'J':
    case 'K':
    case 'M':
    case 'G':
    case 0x88:
    case 0x89:
    case 0x8A:
    case 0x8B:
      return Scalar(opcode);
    case 'X':
    case 'B':
    case 'C':
    case 0x8C:
    case 0x8D:
    case 0x8E:
      return Text(opcode);
    case '(':
    case ')':
    case ']':
    case '}':
    case 't':
    case 'l':
    case 'd':
    case 'e':
    case 'u':
    case 'a':
    case 's':
    case 0x85:
    case 0x86:
    case 0x87:
      return Container(opcode);
    case 'q':
    case 'r':
    case 'h':
    case 'j':
    case 0x94:
      return Memo(opcode);
    case 'c':
    case 'R':
    case 'b':
    case 'Q':
    case 0x93:
      return Callable(opcode);
    default:
      return Refuse(StrCat("opcode ", PickleOpcodeName(opcode)),
                    "only those of plain values and tensors (nothing of the file is executed)");
  }
}

Result<PickleTree> Unpickler::Run() {
  if (static_cast<int64_t>(bytes_.size()) > kMaxPickleBytes) {
    return Mismatch(where_, StrCat(bytes_.size(), " bytes"), StrCat("at most ", kMaxPickleBytes));
  }
  if (!bytes_.starts_with('\x80')) {
    return Mismatch(where_, QuotedNear(bytes_, 0), "a pickle of protocol 2 or later");
  }
  for (int64_t count = 0; !stopped_; ++count) {
    opcode_ = at_;
    if (at_ == bytes_.size()) {
      return Mismatch(where_, StrCat("an end after ", at_, " bytes"), "a STOP before it");
    }
    if (count == kMaxPickleOpcodes) {
      return Mismatch(where_, "more opcodes than the limit", StrCat("at most ", count));
    }
    if (!Step(static_cast<unsigned char>(bytes_[at_++]))) return status_;
  }
  if (stack_.size() != 1 || !marks_.empty() || at_ != bytes_.size()) {
    return Mismatch(where_,
                    StrCat(stack_.size(), " values and ", marks_.size(), " marks at STOP, and ",
                           bytes_.size() - at_, " bytes after it"),
                    "one value and nothing else");
  }
  tree_.root_ = stack_[0];
  LOOKBACK_RETURN_IF_ERROR(tree_.Check(where_));
  return std::move(tree_);
}

Result<PickleTree> Unpickle(std::string_view bytes, const std::string& where) {
  return Unpickler(bytes, where).Run();
}

}  // namespace lookback::tools
