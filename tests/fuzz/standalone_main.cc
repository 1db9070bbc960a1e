// Runs a fuzz target over files and folders: what tests the targets where there is no libFuzzer.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

int RunFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    return -1;
  }
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  // Every prefix of a small file as well: files that are cut off are the commonest broken ones.
  constexpr size_t kAllPrefixes = 2000;
  const size_t step = bytes.size() < kAllPrefixes ? 1 : bytes.size() / kAllPrefixes + 1;
  for (size_t size = 0; size < bytes.size(); size += step) LLVMFuzzerTestOneInput(data, size);
  LLVMFuzzerTestOneInput(data, bytes.size());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  int files = 0;
  for (int i = 1; i < argc; ++i) {
    if (fs::is_regular_file(argv[i])) {
      files += RunFile(argv[i]);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(argv[i])) {
      if (entry.is_regular_file()) files += RunFile(entry.path());
    }
  }
  std::printf("%d files\n", files);
  return files > 0 ? 0 : 1;
}
