// The ZIP container of a PyTorch file: where each entry's bytes lie. Hostile until Open() returned.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "tools/convert/input_file.h"

struct zip;

namespace lookback::tools {

/// Most entries of an archive; a checkpoint has a few for each tensor.
inline constexpr int64_t kMaxZipEntries = 100'000;
/// Most bytes that one compressed entry may unpack to. Stored entries have no such limit.
inline constexpr int64_t kMaxInflatedBytes = int64_t{64} << 20;

struct ZipEntry {
  std::string name;
  bool stored = true;        ///< as it is; else deflated
  int64_t data_offset = 0;   ///< of its bytes in the archive's file
  int64_t stored_bytes = 0;  ///< in the file
  int64_t bytes = 0;         ///< unpacked; equal to stored_bytes where stored
  uint32_t crc = 0;          ///< CRC-32 of the unpacked bytes, as the directory says
};

/// A ZIP file whose directory has been checked: read once by us, for the offsets, and once by
/// libzip; an archive that two readers understand differently is refused. Refused by name are
/// encrypted entries, names that leave the folder, names twice, methods other than stored and
/// deflate, entries that overlap or leave the file, more than the limits above, archives of several
/// parts and archives with a comment (PyTorch writes none, and it can hide a second directory).
class ZipArchive {
 public:
  static Result<ZipArchive> Open(InputFile file);

  const InputFile& file() const { return file_; }
  /// In the order of the directory.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// Null where there is no such entry.
  const ZipEntry* Find(std::string_view name) const;
  /// The unpacked bytes of an entry of this archive, CRC checked; more than `max_bytes` are
  /// refused. One thread at a time.
  Result<std::string> ReadAll(const ZipEntry& entry, int64_t max_bytes) const;

 private:
  struct Discard {
    void operator()(zip* archive) const;
  };
  explicit ZipArchive(InputFile file) : file_(std::move(file)) {}
  Status CompareWithLibzip();

  InputFile file_;
  std::vector<ZipEntry> entries_;
  std::vector<size_t> by_name_;  // indices of entries_, sorted by name
  std::unique_ptr<zip, Discard> zip_;
};

}  // namespace lookback::tools
