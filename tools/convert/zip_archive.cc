#include "tools/convert/zip_archive.h"

#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <utility>

#include "tools/convert/zip_directory.h"

namespace lookback::tools {

namespace {

std::string LibzipReason(int error_number) {
  zip_error_t error;
  zip_error_init_with_code(&error, error_number);
  std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  return reason;
}

bool SaysTheSame(zip* archive, uint64_t index, const ZipEntry& entry) {
  zip_stat_t info;
  zip_stat_init(&info);
  const char* name = zip_get_name(archive, index, ZIP_FL_ENC_RAW);
  if (name == nullptr || entry.name != name) return false;
  if (zip_stat_index(archive, index, ZIP_FL_ENC_RAW, &info) != 0) return false;
  constexpr zip_uint64_t kNeeded = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD |
                                   ZIP_STAT_ENCRYPTION_METHOD | ZIP_STAT_CRC;
  return (info.valid & kNeeded) == kNeeded && info.size == static_cast<uint64_t>(entry.bytes) &&
         info.comp_size == static_cast<uint64_t>(entry.stored_bytes) && info.crc == entry.crc &&
         info.encryption_method == ZIP_EM_NONE &&
         info.comp_method == (entry.stored ? ZIP_CM_STORE : ZIP_CM_DEFLATE);
}

}  // namespace

void ZipArchive::Discard::operator()(zip* archive) const { zip_discard(archive); }

Status ZipArchive::CompareWithLibzip() {
  // libzip closes the descriptor that it is given, and moves only that one's shared offset.
  const int fd = ::dup(file_.fd());
  if (fd < 0) return IoError("cannot open", file_.path(), errno);
  int error = 0;
  zip_.reset(zip_fdopen(fd, 0, &error));
  if (zip_ == nullptr) {
    ::close(fd);
    return Mismatch(StrCat("archive ", file_.path()), LibzipReason(error), "a ZIP file");
  }
  const zip_int64_t count = zip_get_num_entries(zip_.get(), 0);
  bool same = count == static_cast<zip_int64_t>(entries_.size());
  for (size_t i = 0; same && i < entries_.size(); ++i) {
    same = SaysTheSame(zip_.get(), i, entries_[i]);
  }
  if (same) return {};
  return Mismatch(StrCat("archive ", file_.path()), "a directory that libzip reads differently",
                  "one that has a single reading");
}

Result<ZipArchive> ZipArchive::Open(InputFile file) {
  ZipArchive archive(std::move(file));
  LOOKBACK_ASSIGN_OR_RETURN(archive.entries_, ReadZipDirectory(archive.file_));
  const std::vector<ZipEntry>& entries = archive.entries_;
  archive.by_name_.resize(entries.size());
  std::iota(archive.by_name_.begin(), archive.by_name_.end(), size_t{0});
  std::sort(archive.by_name_.begin(), archive.by_name_.end(),
            [&](size_t a, size_t b) { return entries[a].name < entries[b].name; });
  for (size_t i = 1; i < entries.size(); ++i) {
    const std::string& name = entries[archive.by_name_[i]].name;
    if (name != entries[archive.by_name_[i - 1]].name) continue;
    return Mismatch(StrCat("entries of ", archive.file_.path()), StrCat(Quoted(name), " twice"),
                    "every name once");
  }
  LOOKBACK_RETURN_IF_ERROR(archive.CompareWithLibzip());
  return archive;
}

const ZipEntry* ZipArchive::Find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](size_t i, std::string_view key) { return entries_[i].name < key; });
  if (found == by_name_.end() || entries_[*found].name != name) return nullptr;
  return &entries_[*found];
}

Result<std::string> ZipArchive::ReadAll(const ZipEntry& entry, int64_t max_bytes) const {
  const std::string where = StrCat("entry ", Quoted(entry.name), " of ", file_.path());
  if (entry.bytes > max_bytes) {
    return Mismatch(where, StrCat(entry.bytes, " bytes"), StrCat("at most ", max_bytes));
  }
  const auto index = static_cast<zip_uint64_t>(&entry - entries_.data());
  LOOKBACK_CHECK(index < entries_.size());
  std::string bytes(static_cast<size_t>(entry.bytes), '\0');
  zip_file_t* stream = zip_fopen_index(zip_.get(), index, 0);
  if (stream == nullptr) {
    return Mismatch(where, zip_error_strerror(zip_get_error(zip_.get())), "readable bytes");
  }
  size_t have = 0;
  zip_int64_t got = 1;
  while (got > 0) {
    // The last read, of one byte more, is what makes libzip compare the CRC.
    char beyond = 0;
    const bool full = have == bytes.size();
    got = zip_fread(stream, full ? &beyond : bytes.data() + have, full ? 1 : bytes.size() - have);
    if (got > 0 && full) break;
    if (got > 0) have += static_cast<size_t>(got);
  }
  const std::string reason = got < 0 ? zip_error_strerror(zip_file_get_error(stream)) : "";
  zip_fclose(stream);
  if (got < 0) return Mismatch(where, reason, "readable bytes with the CRC of the directory");
  if (got > 0 || have != bytes.size()) {
    return Mismatch(where, "another size than the directory says", StrCat(entry.bytes, " bytes"));
  }
  return bytes;
}

}  // namespace lookback::tools
