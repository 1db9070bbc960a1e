#include "tools/convert/zip_directory.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace lookback::tools {

namespace {

constexpr std::string_view kEndMagic = "PK\x05\x06";
constexpr std::string_view kEnd64Magic = "PK\x06\x06";
constexpr std::string_view kEnd64LocatorMagic = "PK\x06\x07";
constexpr std::string_view kCentralMagic = "PK\x01\x02";
constexpr std::string_view kLocalMagic = "PK\x03\x04";
constexpr int64_t kEndBytes = 22;
constexpr int64_t kEnd64Bytes = 56;
constexpr int64_t kEnd64LocatorBytes = 20;
constexpr int64_t kCentralBytes = 46;
constexpr int64_t kLocalBytes = 30;
constexpr int64_t kMaxDirectoryBytes = int64_t{64} << 20;
constexpr uint64_t kIn64 = 0xFFFFFFFF;  // a 32-bit field whose value is in the ZIP64 part
constexpr uint64_t kIn64Short = 0xFFFF;
constexpr uint16_t kZip64Extra = 1;
// Traditional encryption, strong encryption, masked headers.
constexpr uint64_t kEncryptedFlags = 1U << 0 | 1U << 6 | 1U << 13;
constexpr uint64_t kSizesFollowFlag = 1U << 3;

/// The little-endian integer of `count` bytes at `offset`, which the caller has checked.
uint64_t Little(std::string_view bytes, size_t offset, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  }
  return value;
}

/// Where the central directory lies.
struct Directory {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;
};

Status CheckSinglePart(const InputFile& file, bool single) {
  if (single) return {};
  return Mismatch(StrCat("archive ", file.path()), "a part of an archive in several files",
                  "an archive in one file");
}

/// Replaces `directory` by what the ZIP64 end record says, where a locator precedes the end record
/// at `end`. Returns where the first of the end records begins.
Result<int64_t> ReadZip64End(const InputFile& file, int64_t end, Directory& directory) {
  const int64_t locator_at = end - kEnd64LocatorBytes;
  if (locator_at < 0) return end;
  LOOKBACK_ASSIGN_OR_RETURN(const std::string locator,
                            file.ReadString(locator_at, kEnd64LocatorBytes));
  if (!locator.starts_with(kEnd64LocatorMagic)) return end;
  LOOKBACK_RETURN_IF_ERROR(
      CheckSinglePart(file, Little(locator, 4, 4) == 0 && Little(locator, 16, 4) <= 1));
  const uint64_t record_at = Little(locator, 8, 8);
  if (locator_at < kEnd64Bytes || record_at > static_cast<uint64_t>(locator_at - kEnd64Bytes)) {
    return Mismatch(StrCat("ZIP64 end record of ", file.path()), StrCat("offset ", record_at),
                    "a place before its locator");
  }
  LOOKBACK_ASSIGN_OR_RETURN(const std::string record,
                            file.ReadString(static_cast<int64_t>(record_at), kEnd64Bytes));
  if (!record.starts_with(kEnd64Magic)) {
    return Mismatch(StrCat("ZIP64 end record of ", file.path()), "another signature", "PK\\6\\6");
  }
  LOOKBACK_RETURN_IF_ERROR(
      CheckSinglePart(file, Little(record, 16, 4) == 0 && Little(record, 20, 4) == 0 &&
                                Little(record, 24, 8) == Little(record, 32, 8)));
  directory = {Little(record, 32, 8), Little(record, 40, 8), Little(record, 48, 8)};
  return static_cast<int64_t>(record_at);
}

Result<Directory> FindDirectory(const InputFile& file) {
  const int64_t end = file.bytes() - kEndBytes;
  std::string record;
  if (end >= 0) {
    LOOKBACK_ASSIGN_OR_RETURN(record, file.ReadString(end, kEndBytes));
  }
  if (!record.starts_with(kEndMagic) || Little(record, 20, 2) != 0) {
    return Mismatch(StrCat("archive ", file.path()), "no ZIP end record in the last 22 bytes",
                    "a ZIP file, complete and without a comment");
  }
  Directory directory = {Little(record, 10, 2), Little(record, 12, 4), Little(record, 16, 4)};
  const Directory small = directory;
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t directory_end, ReadZip64End(file, end, directory));
  LOOKBACK_RETURN_IF_ERROR(
      CheckSinglePart(file, (Little(record, 4, 2) == 0 || Little(record, 4, 2) == kIn64Short) &&
                                (Little(record, 6, 2) == 0 || Little(record, 6, 2) == kIn64Short) &&
                                Little(record, 8, 2) == small.entries));
  // Two readers, one of which heeds the ZIP64 record, must see the same directory.
  if ((small.entries != kIn64Short && small.entries != directory.entries) ||
      (small.bytes != kIn64 && small.bytes != directory.bytes) ||
      (small.offset != kIn64 && small.offset != directory.offset)) {
    return Mismatch(StrCat("end records of ", file.path()), "two that differ", "the same twice");
  }
  if (directory.entries > static_cast<uint64_t>(kMaxZipEntries)) {
    return Mismatch(StrCat("entries of ", file.path()), directory.entries,
                    StrCat("at most ", kMaxZipEntries));
  }
  const auto limit = static_cast<uint64_t>(directory_end);
  if (directory.bytes > static_cast<uint64_t>(kMaxDirectoryBytes) || directory.bytes > limit ||
      directory.offset != limit - directory.bytes) {
    return Mismatch(StrCat("central directory of ", file.path()),
                    StrCat(directory.bytes, " bytes from byte ", directory.offset),
                    StrCat("at most ", kMaxDirectoryBytes, " bytes that end at byte ", limit));
  }
  return directory;
}

/// Refuses what could lead out of a folder, or be read as two names.
Status CheckName(std::string_view name, const std::string& path) {
  const bool climbs = name == ".." || name.starts_with("../") || name.ends_with("/..") ||
                      name.find("/../") != std::string_view::npos;
  const bool drive = name.size() >= 2 && name[1] == ':';
  if (!name.empty() && name.size() <= 4096 && name[0] != '/' && !climbs && !drive &&
      name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos) {
    return {};
  }
  return Mismatch(StrCat("entry name in ", path), Quoted(name),
                  "a relative path without .., backslash or NUL");
}

/// Sizes and offset of one entry, as far as the fixed fields leave them to the ZIP64 field.
struct Sizes {
  uint64_t bytes;
  uint64_t stored_bytes;
  uint64_t offset;
};

/// False where `extra` is malformed or lacks the ZIP64 value of a field that asks for one.
bool ResolveZip64(std::string_view extra, Sizes& sizes) {
  std::optional<std::string_view> found;
  while (!extra.empty()) {
    if (extra.size() < 4) return false;
    const uint64_t id = Little(extra, 0, 2);
    const uint64_t length = Little(extra, 2, 2);
    if (length > extra.size() - 4) return false;
    if (id == kZip64Extra) {
      if (found) return false;
      found = extra.substr(4, length);
    }
    extra.remove_prefix(4 + length);
  }
  for (uint64_t* field : {&sizes.bytes, &sizes.stored_bytes, &sizes.offset}) {
    if (*field != kIn64) continue;
    if (!found || found->size() < 8) return false;
    *field = Little(*found, 0, 8);
    found->remove_prefix(8);
  }
  return true;
}

/// What a central header says beyond ZipEntry.
struct Central {
  ZipEntry entry;
  uint64_t flags = 0;
  uint64_t method = 0;
  uint64_t local_offset = 0;
};

Status CheckMethod(const Central& central, const std::string& where) {
  if ((central.flags & kEncryptedFlags) != 0) {
    return Mismatch(where, "an encrypted entry", "an entry without encryption");
  }
  if (central.method != 0 && central.method != 8) {
    return Mismatch(where, StrCat("compression method ", central.method), "0 (stored) or 8");
  }
  const ZipEntry& entry = central.entry;
  if (entry.stored && entry.bytes != entry.stored_bytes) {
    return Mismatch(where, StrCat(entry.bytes, " bytes stored in ", entry.stored_bytes),
                    "two equal sizes");
  }
  if (!entry.stored && entry.bytes > kMaxInflatedBytes) {
    return Mismatch(where, StrCat(entry.bytes, " bytes, compressed"),
                    StrCat("at most ", kMaxInflatedBytes, " (stored entries may be larger)"));
  }
  return {};
}

/// Takes one header off the front of `rest`.
Result<Central> TakeCentral(std::string_view& rest, const InputFile& file, int64_t limit) {
  const Status cut_off =
      Mismatch(StrCat("central directory of ", file.path()), "a header that is cut off or damaged",
               "as many headers as the end record says");
  if (rest.size() < kCentralBytes || !rest.starts_with(kCentralMagic)) return cut_off;
  const uint64_t name_bytes = Little(rest, 28, 2);
  const uint64_t extra_bytes = Little(rest, 30, 2);
  const uint64_t all = kCentralBytes + name_bytes + extra_bytes + Little(rest, 32, 2);
  if (all > rest.size()) return cut_off;
  Central central;
  central.flags = Little(rest, 8, 2);
  central.method = Little(rest, 10, 2);
  central.entry.name = rest.substr(kCentralBytes, name_bytes);
  central.entry.crc = static_cast<uint32_t>(Little(rest, 16, 4));
  central.entry.stored = central.method == 0;
  LOOKBACK_RETURN_IF_ERROR(CheckName(central.entry.name, file.path()));
  const uint64_t disk = Little(rest, 34, 2);
  LOOKBACK_RETURN_IF_ERROR(CheckSinglePart(file, disk == 0 || disk == kIn64Short));
  Sizes sizes = {Little(rest, 24, 4), Little(rest, 20, 4), Little(rest, 42, 4)};
  const std::string where = StrCat("entry ", Quoted(central.entry.name), " of ", file.path());
  const auto end = static_cast<uint64_t>(limit);
  if (!ResolveZip64(rest.substr(kCentralBytes + name_bytes, extra_bytes), sizes) ||
      sizes.stored_bytes > end || sizes.offset > end ||
      sizes.bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Mismatch(where,
                    StrCat(sizes.stored_bytes, " bytes, header at byte ", sizes.offset,
                           ", ZIP64 field ", extra_bytes, " bytes"),
                    StrCat("sizes within the ", limit, " bytes before the directory"));
  }
  central.entry.bytes = static_cast<int64_t>(sizes.bytes);
  central.entry.stored_bytes = static_cast<int64_t>(sizes.stored_bytes);
  central.local_offset = sizes.offset;
  LOOKBACK_RETURN_IF_ERROR(CheckMethod(central, where));
  rest.remove_prefix(all);
  return central;
}

/// Sets the entry's data_offset from its local header, which must agree with the central one.
Status ResolveLocal(const InputFile& file, int64_t limit, Central& central) {
  ZipEntry& entry = central.entry;
  const std::string where = StrCat("local header of ", Quoted(entry.name), " in ", file.path());
  const auto at = static_cast<int64_t>(central.local_offset);
  const auto name_bytes = static_cast<int64_t>(entry.name.size());
  if (at > limit - kLocalBytes - name_bytes) {
    return Mismatch(where, StrCat("byte ", at), StrCat("a place before byte ", limit));
  }
  LOOKBACK_ASSIGN_OR_RETURN(const std::string header,
                            file.ReadString(at, kLocalBytes + name_bytes));
  const bool later = (Little(header, 6, 2) & kSizesFollowFlag) != 0;
  const auto agrees = [&](size_t offset, uint64_t central_value) {
    const uint64_t value = Little(header, offset, 4);
    return value == central_value || value == kIn64 || (later && value == 0);
  };
  if (!header.starts_with(kLocalMagic) || Little(header, 26, 2) != entry.name.size() ||
      header.compare(kLocalBytes, entry.name.size(), entry.name) != 0 ||
      Little(header, 8, 2) != central.method ||
      ((Little(header, 6, 2) ^ central.flags) & (kEncryptedFlags | kSizesFollowFlag)) != 0 ||
      !agrees(14, entry.crc) || !agrees(18, static_cast<uint64_t>(entry.stored_bytes)) ||
      !agrees(22, static_cast<uint64_t>(entry.bytes))) {
    return Mismatch(where, "another name, method or size than in the central directory",
                    "the same in both");
  }
  entry.data_offset = at + kLocalBytes + name_bytes + static_cast<int64_t>(Little(header, 28, 2));
  if (entry.data_offset > limit || entry.stored_bytes > limit - entry.data_offset) {
    return Mismatch(StrCat("entry ", Quoted(entry.name), " of ", file.path()),
                    StrCat(entry.stored_bytes, " bytes from byte ", entry.data_offset),
                    StrCat("a range before byte ", limit));
  }
  return {};
}

/// Overlapping entries are how a small archive unpacks to a huge one.
Status CheckDisjoint(const std::vector<ZipEntry>& entries, const std::string& path) {
  std::vector<const ZipEntry*> order;
  order.reserve(entries.size());
  for (const ZipEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const ZipEntry* a, const ZipEntry* b) { return a->data_offset < b->data_offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const ZipEntry& before = *order[i - 1];
    // The header of the later one lies between: even empty entries cannot share a place.
    const int64_t header = kLocalBytes + static_cast<int64_t>(order[i]->name.size());
    if (before.data_offset + before.stored_bytes <= order[i]->data_offset - header) continue;
    return Mismatch(StrCat("entry ", Quoted(order[i]->name), " of ", path),
                    StrCat("bytes shared with ", Quoted(before.name)),
                    "entries that do not overlap");
  }
  return {};
}

}  // namespace

Result<std::vector<ZipEntry>> ReadZipDirectory(const InputFile& file) {
  LOOKBACK_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(file));
  const auto limit = static_cast<int64_t>(directory.offset);
  LOOKBACK_ASSIGN_OR_RETURN(const std::string bytes,
                            file.ReadString(limit, static_cast<int64_t>(directory.bytes)));
  std::vector<ZipEntry> entries;
  std::string_view rest = bytes;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    LOOKBACK_ASSIGN_OR_RETURN(Central central, TakeCentral(rest, file, limit));
    LOOKBACK_RETURN_IF_ERROR(ResolveLocal(file, limit, central));
    entries.push_back(std::move(central.entry));
  }
  if (!rest.empty()) {
    return Mismatch(StrCat("central directory of ", file.path()),
                    StrCat(rest.size(), " bytes after its ", directory.entries, " entries"),
                    "none");
  }
  LOOKBACK_RETURN_IF_ERROR(CheckDisjoint(entries, file.path()));
  return entries;
}

}  // namespace lookback::tools
