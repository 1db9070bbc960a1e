#include "tools/convert/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lookback::tools {

Result<InputFile> InputFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not hang before fstat can refuse it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return IoError("cannot open", path, errno);
  InputFile file(path, fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return IoError("cannot read", path, errno);
  if (!S_ISREG(info.st_mode)) return Mismatch(path, "no regular file", "a regular file");
  file.bytes_ = info.st_size;
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  path_ = std::move(other.path_);
  fd_ = std::exchange(other.fd_, -1);
  bytes_ = other.bytes_;
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status InputFile::Read(int64_t offset, std::span<std::byte> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (offset < 0 || count > bytes_ || offset > bytes_ - count) {
    return Mismatch(StrCat("bytes of ", path_), StrCat(count, " from byte ", offset),
                    StrCat("a range within its ", bytes_, " bytes"));
  }
  size_t have = 0;
  while (have < out.size()) {
    const ssize_t got =
        ::pread(fd_, out.data() + have, out.size() - have, offset + static_cast<int64_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError("cannot read", path_, errno);
    if (got == 0) {
      return Mismatch(StrCat("size of ", path_),
                      StrCat("only ", offset + static_cast<int64_t>(have),
                             " bytes: it became shorter while it was read"),
                      bytes_);
    }
    have += static_cast<size_t>(got);
  }
  return {};
}

Result<std::string> InputFile::ReadString(int64_t offset, int64_t count) const {
  LOOKBACK_CHECK(count >= 0);
  // Before the string is made: a length that the file cannot have must not be allocated.
  if (count > bytes_) {
    return Mismatch(StrCat("bytes of ", path_), count, StrCat("at most ", bytes_));
  }
  std::string text(static_cast<size_t>(count), '\0');
  LOOKBACK_RETURN_IF_ERROR(Read(offset, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace lookback::tools
