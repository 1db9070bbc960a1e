#include "tests/fuzz/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "engine/status.h"

namespace lookback::testing {

MemoryFile::MemoryFile(const uint8_t* data, size_t size)
    : fd_(memfd_create("fuzz", MFD_CLOEXEC)), path_(StrCat("/proc/self/fd/", fd_)) {
  size_t written = 0;
  while (fd_ >= 0 && written < size) {
    const ssize_t count = ::write(fd_, data + written, size - written);
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  if (fd_ < 0 || written < size) std::abort();  // no room for the test itself
}

MemoryFile::~MemoryFile() { ::close(fd_); }

void CheckMessage(const std::string& message) {
  LOOKBACK_CHECK(!message.empty());
  LOOKBACK_CHECK(message.find('\n') == std::string::npos);
}

}  // namespace lookback::testing
