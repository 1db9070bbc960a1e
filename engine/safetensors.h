// Reading and writing safetensors containers. Files are hostile until Open() has returned.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/tensor.h"

namespace lookback {

/// Longest header accepted, as in the public library, bytes.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// Bytes of the header's length, a little-endian integer at the start of the file.
inline constexpr int64_t kSafetensorsLengthBytes = 8;

/// What a header says of one tensor.
struct SafetensorsEntry {
  DType dtype;
  std::vector<int64_t> shape;
  int64_t begin;  ///< byte offset in the file
  int64_t end;
};

/// A header that has been checked: known dtypes, shape × dtype = byte range, ranges inside the
/// file, no overlap, no hole, no duplicate name.
struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry, std::less<>> entries;
  std::map<std::string, std::string, std::less<>> metadata;
};

/// The header's length, from the `first` 8 bytes (fewer where the file is shorter) of a file of
/// `file_bytes`: within the cap and the file.
Result<int64_t> SafetensorsHeaderBytes(std::span<const std::byte> first, int64_t file_bytes,
                                       const std::string& path);
/// Parses and checks the `json` behind it.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t file_bytes,
                                                 const std::string& path);

/// A file mapped read-only whose header has been checked.
class SafetensorsFile {
 public:
  static Result<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t file_bytes() const { return static_cast<int64_t>(mapped_.size()); }
  /// Sorted by name.
  const std::map<std::string, SafetensorsEntry, std::less<>>& entries() const {
    return header_.entries;
  }
  const std::map<std::string, std::string, std::less<>>& metadata() const {
    return header_.metadata;
  }
  /// The JSON of the header as it lies in the file, with its padding.
  std::string_view header() const { return json_; }
  bool Has(std::string_view name) const { return header_.entries.contains(name); }
  /// View into the mapping, valid while this lives. NotFound names file and tensor.
  Result<TensorView> Tensor(std::string_view name) const;
  /// The same, with dtype and shape checked.
  Result<TensorView> Tensor(std::string_view name, DType dtype,
                            std::span<const int64_t> shape) const;

 private:
  SafetensorsFile() = default;

  std::string path_;
  std::span<const std::byte> mapped_;
  std::string_view json_;
  SafetensorsHeader header_;
};

/// Writes one safetensors file: declare every tensor, Begin(), then each tensor's bytes in the
/// order of declaration, then Finish(). Every tensor starts at a multiple of 64 in the file (U8
/// tensors `lookback.pad.N` fill the gaps). The bytes go to a temporary file beside the target,
/// which is synced and renamed by Finish(): before that nothing is to be seen under the target's
/// name, and a writer that is destroyed unfinished removes its temporary file.
class SafetensorsWriter {
 public:
  explicit SafetensorsWriter(std::string path);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  void SetMetadata(std::string key, std::string value);
  /// Declares the next tensor; the name must be new.
  void Declare(std::string name, DType dtype, std::vector<int64_t> shape);
  /// Creates the temporary file and writes the header.
  Status Begin();
  /// Appends bytes to the tensor that is being written; a tensor ends when its size is reached.
  Status Append(std::span<const std::byte> bytes);
  /// The path of the temporary file, in which all that was appended can be read and the rest is
  /// zeros: for whoever makes the last tensors from the first ones.
  Result<std::string> Preview();
  /// Changes a metadata value after Begin(). InvalidArgument if the header would become longer than
  /// it was then; it may become shorter.
  Status ReplaceMetadata(std::string key, std::string value);
  /// Syncs, renames, syncs the folder. Every declared byte must have been appended.
  Status Finish();
  /// Bytes of the whole file, known after Begin().
  int64_t file_bytes() const { return file_bytes_; }
  int64_t written_bytes() const { return written_bytes_; }

 private:
  struct Declared {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    int64_t bytes;
    int64_t pad_before;
  };
  std::string Header(int64_t& data_bytes);
  Status Write(std::span<const std::byte> bytes);
  Status PadToNextTensor();

  std::string path_;
  std::string temporary_path_;
  int fd_ = -1;
  std::vector<Declared> declared_;
  std::map<std::string, std::string> metadata_;
  size_t current_ = 0;
  int64_t current_written_ = 0;
  int64_t written_bytes_ = 0;
  int64_t handed_over_ = 0;  // bytes that the system was asked to put on the disk already
  int64_t header_bytes_ = 0;
  int64_t file_bytes_ = 0;
};

}  // namespace lookback
