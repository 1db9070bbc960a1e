#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "engine/checkpoint.h"
#include "engine/json.h"
#include "engine/safetensors.h"

namespace lookback {

namespace {

constexpr int64_t kHandOverBytes = int64_t{32} << 20;

int64_t Padding(int64_t bytes) {
  return (kTensorAlignment - bytes % kTensorAlignment) % kTensorAlignment;
}

std::filesystem::path FolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? std::filesystem::path(".") : folder;
}

/// What open(2) with mode 0666 would have given: mkstemp makes files that only their owner reads.
mode_t DefaultFileMode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return static_cast<mode_t>(0666) & ~mask;
}

Status SyncFolder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return IoError("cannot open", folder, errno);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems cannot sync a folder; the file itself is synced, so that is no failure.
  if (result != 0 && error != EINVAL) return IoError("cannot sync", folder, error);
  return {};
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path) : path_(std::move(path)) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_path_.empty()) ::unlink(temporary_path_.c_str());
}

void SafetensorsWriter::SetMetadata(std::string key, std::string value) {
  LOOKBACK_CHECK(fd_ < 0);
  metadata_[std::move(key)] = std::move(value);
}

void SafetensorsWriter::Declare(std::string name, DType dtype, std::vector<int64_t> shape) {
  LOOKBACK_CHECK(fd_ < 0);
  const auto elements = CheckedElements(shape);
  LOOKBACK_CHECK(elements.has_value() && *elements <= INT64_MAX / DTypeBytes(dtype));
  const int64_t bytes = *elements * DTypeBytes(dtype);
  const int64_t pad = declared_.empty() ? 0 : Padding(declared_.back().bytes);
  declared_.push_back({std::move(name), dtype, std::move(shape), bytes, pad});
}

std::string SafetensorsWriter::Header(int64_t& data_bytes) {
  Json header = Json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  int64_t offset = 0;
  const auto add = [&](const std::string& name, DType dtype, Json shape, int64_t bytes) {
    LOOKBACK_CHECK(!header.contains(name));
    header[name] = {{"dtype", std::string(DTypeName(dtype))},
                    {"shape", std::move(shape)},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  };
  int64_t pads = 0;
  for (const Declared& tensor : declared_) {
    if (tensor.pad_before > 0) {
      add(StrCat("lookback.pad.", pads++), DType::kU8, Json::array({tensor.pad_before}),
          tensor.pad_before);
    }
    add(tensor.name, tensor.dtype, Json(tensor.shape), tensor.bytes);
  }
  data_bytes = offset;
  std::string text = DumpJson(header);
  text.append(
      static_cast<size_t>(Padding(kSafetensorsLengthBytes + static_cast<int64_t>(text.size()))),
      ' ');
  return text;
}

Status SafetensorsWriter::Begin() {
  LOOKBACK_CHECK(fd_ < 0);
  int64_t data_bytes = 0;
  const std::string header = Header(data_bytes);
  const auto header_bytes = static_cast<int64_t>(header.size());
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return Mismatch(StrCat("header for ", path_), StrCat(header_bytes, " bytes"),
                    StrCat("at most ", kMaxSafetensorsHeaderBytes));
  }
  header_bytes_ = header_bytes;
  file_bytes_ = kSafetensorsLengthBytes + header_bytes + data_bytes;
  const std::string name = std::filesystem::path(path_).filename().string();
  std::string temporary = (FolderOf(path_) / StrCat(".", name, ".partial-XXXXXX")).string();
  fd_ = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd_ < 0) return IoError("cannot create a file beside", path_, errno);
  temporary_path_ = std::move(temporary);
  if (::fchmod(fd_, DefaultFileMode()) != 0) return IoError("cannot write", path_, errno);
  std::byte length[kSafetensorsLengthBytes];
  for (int64_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    length[i] = static_cast<std::byte>(static_cast<uint64_t>(header_bytes) >> (8 * i));
  }
  LOOKBACK_RETURN_IF_ERROR(Write(length));
  LOOKBACK_RETURN_IF_ERROR(Write(std::as_bytes(std::span(header))));
  return PadToNextTensor();
}

Status SafetensorsWriter::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return IoError("cannot write", path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
    written_bytes_ += count;
  }
  // The disk starts now, not at the sync. Where that cannot be asked for, the sync does it all.
  if (written_bytes_ - handed_over_ >= kHandOverBytes) {
    ::sync_file_range(fd_, handed_over_, written_bytes_ - handed_over_, SYNC_FILE_RANGE_WRITE);
    handed_over_ = written_bytes_;
  }
  return {};
}

// Leaves current_ at the next tensor that still wants bytes, everything before it written.
Status SafetensorsWriter::PadToNextTensor() {
  while (current_ < declared_.size() && current_written_ == declared_[current_].bytes) {
    ++current_;
    current_written_ = 0;
    if (current_ == declared_.size()) break;
    const std::byte zeros[kTensorAlignment] = {};
    LOOKBACK_RETURN_IF_ERROR(
        Write(std::span(zeros).first(static_cast<size_t>(declared_[current_].pad_before))));
  }
  return {};
}

Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  LOOKBACK_CHECK(fd_ >= 0 && current_ < declared_.size());
  const auto count = static_cast<int64_t>(bytes.size());
  LOOKBACK_CHECK(count <= declared_[current_].bytes - current_written_);
  LOOKBACK_RETURN_IF_ERROR(Write(bytes));
  current_written_ += count;
  return PadToNextTensor();
}

Result<std::string> SafetensorsWriter::Preview() {
  LOOKBACK_CHECK(fd_ >= 0);
  if (::ftruncate(fd_, file_bytes_) != 0) return IoError("cannot write", path_, errno);
  return temporary_path_;
}

Status SafetensorsWriter::ReplaceMetadata(std::string key, std::string value) {
  LOOKBACK_CHECK(fd_ >= 0);
  metadata_[std::move(key)] = std::move(value);
  int64_t data_bytes = 0;
  std::string header = Header(data_bytes);
  if (std::ssize(header) > header_bytes_) {
    return Mismatch(StrCat("header for ", path_), StrCat(header.size(), " bytes"),
                    StrCat("at most the ", header_bytes_, " that it began with"));
  }
  header.resize(static_cast<size_t>(header_bytes_), ' ');
  for (size_t done = 0; done < header.size();) {
    const ssize_t count = ::pwrite(fd_, header.data() + done, header.size() - done,
                                   kSafetensorsLengthBytes + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return IoError("cannot write", path_, errno);
    done += static_cast<size_t>(count);
  }
  return {};
}

Status SafetensorsWriter::Finish() {
  LOOKBACK_CHECK(fd_ >= 0 && current_ == declared_.size() && written_bytes_ == file_bytes_);
  if (::fsync(fd_) != 0) return IoError("cannot sync", path_, errno);
  if (::close(std::exchange(fd_, -1)) != 0) return IoError("cannot write", path_, errno);
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return IoError("cannot rename to", path_, errno);
  }
  temporary_path_.clear();
  return SyncFolder(FolderOf(path_).string());
}

}  // namespace lookback
