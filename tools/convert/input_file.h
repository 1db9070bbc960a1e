// A file that is read in pieces and never mapped: one that shrinks meanwhile is an error, no
// SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/status.h"

namespace lookback::tools {

/// A regular file, open for reading. Move-only.
class InputFile {
 public:
  /// NotFound or Io where it cannot be opened; InvalidArgument for anything but a regular file.
  static Result<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  /// Size when it was opened.
  int64_t bytes() const { return bytes_; }
  /// The descriptor, for libraries that take one. Whoever moves its offset disturbs nobody here.
  int fd() const { return fd_; }

  /// Fills `out` from byte `offset`. InvalidArgument if the range is not within bytes(), or if the
  /// file has become shorter since; Io if the system refuses. Thread-safe.
  Status Read(int64_t offset, std::span<std::byte> out) const;
  /// The same as a string of `count` bytes (>= 0), which the caller has bounded.
  Result<std::string> ReadString(int64_t offset, int64_t count) const;

 private:
  InputFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
};

}  // namespace lookback::tools
