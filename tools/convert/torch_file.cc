#include "tools/convert/torch_file.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/convert/unpickler.h"

namespace lookback::tools {

namespace {

constexpr std::string_view kPickleName = "/data.pkl";
constexpr int64_t kMaxByteOrderBytes = 16;
constexpr int kMaxWrappers = 4;

bool IsOldForm(const InputFile& file) {
  // The pickled magic number of torch.save before 1.6, and the tar files before that.
  constexpr std::string_view kMagic("\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19", 14);
  constexpr int64_t kTarMagicAt = 257;
  const Result<std::string> head = file.ReadString(0, std::min<int64_t>(file.bytes(), 14));
  if (head.ok() && *head == kMagic) return true;
  const Result<std::string> tar =
      file.bytes() >= 512 ? file.ReadString(kTarMagicAt, 5) : Result<std::string>(std::string());
  return tar.ok() && *tar == "ustar";
}

std::string_view StripPrefixes(std::string_view name) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"module.", "_orig_mod."}) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      again = true;
    }
  }
  return name;
}

/// Row-major without gaps. The stride of a dimension of size 1 says nothing.
bool IsContiguous(const PickleTensor& tensor, int64_t elements) {
  if (elements == 0) return true;
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];  // a divisor of `elements`: no overflow
  }
  return true;
}

/// Recursion ends: PickleTree limits depth and nodes.
Result<Json> ToJson(const PickleTree& tree, const PickleValue& value, const std::string& where) {
  if (std::holds_alternative<PickleNone>(value)) return Json(nullptr);
  if (const auto* flag = std::get_if<bool>(&value)) return Json(*flag);
  if (const auto* number = std::get_if<int64_t>(&value)) return Json(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return Json(*text);
  if (const auto* number = std::get_if<double>(&value)) {
    if (std::isfinite(*number)) return Json(*number);
    return Mismatch(where, StrCat("the float ", *number), "a finite one");
  }
  if (const auto* dict = std::get_if<PickleDict>(&value)) {
    Json out = Json::object();
    for (const auto& [key, child] : dict->items) {
      const auto* name = std::get_if<std::string>(&tree.at(key));
      if (name == nullptr) return Mismatch(where, DescribePickle(tree.at(key)), "a string as key");
      LOOKBACK_ASSIGN_OR_RETURN(out[*name], ToJson(tree, tree.at(child), where));
    }
    return out;
  }
  const auto* list = std::get_if<PickleList>(&value);
  const auto* tuple = std::get_if<PickleTuple>(&value);
  if (list == nullptr && tuple == nullptr) {
    return Mismatch(where, DescribePickle(value), "numbers, strings, lists and dicts of them");
  }
  Json out = Json::array();
  for (const PickleId item : list != nullptr ? list->items : tuple->items) {
    LOOKBACK_ASSIGN_OR_RETURN(Json element, ToJson(tree, tree.at(item), where));
    out.push_back(std::move(element));
  }
  return out;
}

bool HasTensor(const PickleTree& tree, const PickleDict& dict) {
  return std::any_of(dict.items.begin(), dict.items.end(), [&](const auto& item) {
    return std::holds_alternative<PickleTensor>(tree.at(item.second));
  });
}

}  // namespace

Result<TorchFile> TorchFile::Open(const std::string& path) {
  LOOKBACK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (IsOldForm(file)) {
    return Mismatch(path, "a PyTorch file of the form before 1.6 (no ZIP)",
                    "a ZIP file, as torch.save writes it since");
  }
  LOOKBACK_ASSIGN_OR_RETURN(ZipArchive archive, ZipArchive::Open(std::move(file)));
  TorchFile torch(std::move(archive));
  LOOKBACK_RETURN_IF_ERROR(torch.ReadTree());
  LOOKBACK_ASSIGN_OR_RETURN(const PickleDict* state_dict, torch.FindStateDict());
  LOOKBACK_RETURN_IF_ERROR(torch.AddTensors(*state_dict));
  return torch;
}

Status TorchFile::CheckByteOrder() const {
  const ZipEntry* entry = archive_.Find(folder_ + "byteorder");
  if (entry == nullptr) return {};  // before PyTorch 2.1, when there was little-endian alone
  LOOKBACK_ASSIGN_OR_RETURN(const std::string order, archive_.ReadAll(*entry, kMaxByteOrderBytes));
  if (order == "little") return {};
  return Mismatch(StrCat("byteorder of ", file().path()), Quoted(order), "\"little\"");
}

Status TorchFile::ReadTree() {
  const ZipEntry* pickle = nullptr;
  for (const ZipEntry& entry : archive_.entries()) {
    const std::string_view name = entry.name;
    if (name.ends_with("/constants.pkl") || name.find("/code/") != std::string_view::npos) {
      return Mismatch(file().path(), StrCat("a TorchScript archive (entry ", Quoted(name), ")"),
                      "a state_dict written by torch.save");
    }
    // "ROOT/data.pkl" alone: deeper ones are something else.
    if (!name.ends_with(kPickleName) || name.find('/') != name.size() - kPickleName.size()) {
      continue;
    }
    if (pickle != nullptr) {
      return Mismatch(file().path(), "two entries */data.pkl", "one");
    }
    pickle = &entry;
  }
  if (pickle == nullptr) {
    return Mismatch(file().path(), "no entry */data.pkl", "an archive written by torch.save");
  }
  folder_ = pickle->name.substr(0, pickle->name.size() - kPickleName.size() + 1);
  LOOKBACK_RETURN_IF_ERROR(CheckByteOrder());
  LOOKBACK_ASSIGN_OR_RETURN(const std::string bytes, archive_.ReadAll(*pickle, kMaxPickleBytes));
  LOOKBACK_ASSIGN_OR_RETURN(tree_, Unpickle(bytes, StrCat(pickle->name, " in ", file().path())));
  return {};
}

Result<const PickleDict*> TorchFile::FindStateDict() const {
  const PickleValue* value = &tree_.root();
  std::string place = "the root";
  for (int wrappers = 0; wrappers <= kMaxWrappers; ++wrappers) {
    const auto* dict = std::get_if<PickleDict>(value);
    if (dict == nullptr) {
      return Mismatch(StrCat(place, " of ", file().path()), DescribePickle(*value),
                      "a state_dict (save that, not the module)");
    }
    value = nullptr;
    for (const std::string_view key : {"state_dict", "model_state_dict", "model", "module"}) {
      const PickleValue* inner = tree_.Find(*dict, key);
      if (inner == nullptr || !std::holds_alternative<PickleDict>(*inner)) continue;
      if (value != nullptr) {
        return Mismatch(StrCat("state_dict of ", file().path()),
                        StrCat("one under ", place, " and one under ", Quoted(key)), "one alone");
      }
      value = inner;
      place = Quoted(key);
    }
    if (value == nullptr && HasTensor(tree_, *dict)) return dict;
    if (value == nullptr) break;
  }
  return Mismatch(StrCat(place, " of ", file().path()), "no tensors", "a state_dict");
}

Status TorchFile::AddTensors(const PickleDict& state_dict) {
  for (const auto& [key, id] : state_dict.items) {
    const auto* name = std::get_if<std::string>(&tree_.at(key));
    const PickleValue& value = tree_.at(id);
    const auto* tensor = std::get_if<PickleTensor>(&value);
    if (name == nullptr || tensor == nullptr) {
      return Mismatch(StrCat("state_dict of ", file().path()),
                      StrCat(DescribePickle(value), " under ", DescribePickle(tree_.at(key))),
                      "a tensor under a name");
    }
    LOOKBACK_ASSIGN_OR_RETURN(TorchTensor resolved, Resolve(StripPrefixes(*name), *tensor));
    std::string stripped = resolved.name;
    if (!tensors_.emplace(stripped, std::move(resolved)).second) {
      return Mismatch(StrCat("tensors of ", file().path()),
                      StrCat(Quoted(stripped), " twice, once its prefixes are gone"),
                      "every name once");
    }
  }
  return {};
}

Result<TorchTensor> TorchFile::Resolve(std::string_view name, const PickleTensor& tensor) const {
  const PickleStorage& storage = tensor.storage;
  const std::string where = StrCat("tensor ", Quoted(name), " in ", file().path());
  const int64_t item = DTypeBytes(storage.dtype);
  const ZipEntry* entry = archive_.Find(StrCat(folder_, "data/", storage.key));
  if (entry == nullptr) {
    return Mismatch(where, StrCat("the storage ", Quoted(storage.key), " that is not in the file"),
                    "an entry data/KEY");
  }
  if (!entry->stored) return Mismatch(where, "a compressed entry", "a stored one");
  if (entry->bytes % item != 0 || entry->bytes / item != storage.elements) {
    return Mismatch(where, StrCat("a storage of ", entry->bytes, " bytes"),
                    StrCat(storage.elements, " ", DTypeName(storage.dtype)));
  }
  const std::optional<int64_t> elements = CheckedElements(tensor.shape);
  if (!elements || tensor.offset > storage.elements ||
      *elements > storage.elements - tensor.offset) {
    return Mismatch(where,
                    StrCat("shape ", ShapeString(tensor.shape), " from element ", tensor.offset),
                    StrCat("a range within the ", storage.elements, " of its storage"));
  }
  if (!IsContiguous(tensor, *elements)) {
    return Mismatch(
        where,
        StrCat("shape ", ShapeString(tensor.shape), " with strides ", ShapeString(tensor.strides)),
        "a contiguous tensor");
  }
  return TorchTensor{std::string(name), storage.dtype, tensor.shape,
                     entry->data_offset + tensor.offset * item, *elements * item};
}

Result<const TorchTensor*> TorchFile::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return &found->second;
  return Status(StatusCode::kNotFound, StrCat("tensor ", Quoted(name), ": not in ", file().path()));
}

Status TorchFile::Read(const TorchTensor& tensor, int64_t from, std::span<std::byte> out) const {
  const auto count = static_cast<int64_t>(out.size());
  LOOKBACK_CHECK(from >= 0 && count <= tensor.bytes && from <= tensor.bytes - count);
  return file().Read(tensor.offset + from, out);
}

Result<Json> TorchFile::Metadata(std::string_view key) const {
  const PickleValue* value = tree_.Find(tree_.root(), key);
  if (value == nullptr) return Json(nullptr);
  return ToJson(tree_, *value, StrCat(key, " in ", file().path()));
}

}  // namespace lookback::tools
