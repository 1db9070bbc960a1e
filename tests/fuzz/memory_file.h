// Fuzzed bytes under a path, for readers that open files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lookback::testing {

/// An unnamed file in memory that goes away with the object.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

/// What every target promises of an error: it says something, on one line.
void CheckMessage(const std::string& message);

}  // namespace lookback::testing
