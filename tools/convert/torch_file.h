// A checkpoint that torch.save wrote: tensors by name, where their bytes lie, and plain metadata.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/json.h"
#include "engine/status.h"
#include "engine/tensor.h"
#include "tools/convert/input_file.h"
#include "tools/convert/pickle_tree.h"
#include "tools/convert/zip_archive.h"

namespace lookback::tools {

/// A contiguous row-major tensor of a state_dict. Two of them may share their bytes.
struct TorchTensor {
  std::string name;  ///< without "module." and "_orig_mod." in front
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t offset = 0;  ///< of its first byte in the file
  int64_t bytes = 0;   ///< elements · DTypeBytes(dtype)
};

/// An opened `.pt`. Nothing of a tensor is read before Read(): buffers that nobody asks for cost
/// nothing.
class TorchFile {
 public:
  /// Opens the ZIP form (PyTorch 1.6 and later), little-endian. The state_dict is the root, or lies
  /// under `state_dict`, `model_state_dict`, `model` or `module`, nested at will. Refused by name:
  /// the older form, TorchScript, compressed and non-contiguous tensors, tensors beyond their
  /// storage, storages whose size is not what the pickle says, values that are no tensors.
  static Result<TorchFile> Open(const std::string& path);

  const InputFile& file() const { return archive_.file(); }
  /// Sorted by name.
  const std::map<std::string, TorchTensor, std::less<>>& tensors() const { return tensors_; }
  /// NotFound names tensor and file.
  Result<const TorchTensor*> Find(std::string_view name) const;
  /// Bytes [from, from + out.size()) of `tensor`. The errors are those of InputFile::Read.
  Status Read(const TorchTensor& tensor, int64_t from, std::span<std::byte> out) const;
  /// What lies beside the state_dict under `key` at the root ("metadata" of an adapter), as JSON:
  /// null where there is no such key; refused where it holds more than plain values.
  Result<Json> Metadata(std::string_view key) const;

 private:
  explicit TorchFile(ZipArchive archive) : archive_(std::move(archive)) {}
  Status ReadTree();
  Status CheckByteOrder() const;
  Result<const PickleDict*> FindStateDict() const;
  Status AddTensors(const PickleDict& state_dict);
  Result<TorchTensor> Resolve(std::string_view name, const PickleTensor& tensor) const;

  ZipArchive archive_;
  std::string folder_;  // of the entries, with its slash
  PickleTree tree_;
  std::map<std::string, TorchTensor, std::less<>> tensors_;
};

}  // namespace lookback::tools
