#include "tests/support/support.h"

#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "engine/safetensors.h"

namespace lookback::testing {

std::string DemoDir() { return std::string(LOOKBACK_SOURCE_DIR) + "/tools/demo"; }

std::string GoldenPath(const std::string& name) {
  return std::string(LOOKBACK_SOURCE_DIR) + "/tests/golden/" + name;
}

std::optional<std::string> FixturesDir() {
  const char* dir = std::getenv("LOOKBACK_FIXTURES");
  if (dir == nullptr || *dir == '\0') return std::nullopt;
  return std::string(dir);
}

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "lookback-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void WriteFile(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

namespace {
TensorView MustGet(const SafetensorsFile& file, const std::string& tensor) {
  Result<TensorView> view = file.Tensor(tensor);
  if (!view.ok()) throw std::runtime_error(view.status().message());
  return *view;
}
std::unique_ptr<SafetensorsFile> MustOpen(const std::string& path) {
  auto file = SafetensorsFile::Open(path);
  if (!file.ok()) throw std::runtime_error(file.status().message());
  return std::move(file).value();
}
}  // namespace

std::vector<float> ReadFloats(const std::string& path, const std::string& tensor) {
  const auto file = MustOpen(path);
  const TensorView view = MustGet(*file, tensor);
  std::vector<float> out(static_cast<size_t>(view.elements()));
  const Status status = CopyAsF32(view, out);
  if (!status.ok()) throw std::runtime_error(status.message());
  return out;
}

std::vector<int32_t> ReadInts(const std::string& path, const std::string& tensor) {
  const auto file = MustOpen(path);
  const TensorView view = MustGet(*file, tensor);
  if (view.dtype != DType::kI32) throw std::runtime_error(tensor + " is not I32");
  std::vector<int32_t> out(static_cast<size_t>(view.elements()));
  std::memcpy(out.data(), view.data.data(), view.data.size());
  return out;
}

Worst WorstError(std::span<const float> actual, std::span<const float> expected) {
  Worst worst;
  if (actual.size() != expected.size()) return {std::numeric_limits<double>::infinity(), 0};
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error =
        std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i]));
    if (!(error <= worst.error)) worst = {std::isnan(error) ? INFINITY : error, i};
  }
  return worst;
}

}  // namespace lookback::testing
