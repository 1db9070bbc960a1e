// What several tests share: where the data lies, temporary folders, tensor comparison.
#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lookback::testing {

/// This build runs under a sanitizer, at a tenth of the speed or less.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Trials, tokens, bytes: `count`, or a tenth of them under a sanitizer.
constexpr int Trials(int count) { return kSanitized ? (count + 9) / 10 : count; }

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

/// The demo checkpoint of the repository (tools/demo).
std::string DemoDir();
/// A file or folder of the goldens that the repository carries (tests/golden/NAME).
std::string GoldenPath(const std::string& name);
/// The folder of further goldens that LOOKBACK_FIXTURES names; nothing where it is unset.
std::optional<std::string> FixturesDir();

/// A fresh folder that goes away with the object.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void WriteFile(const std::string& path, std::string_view bytes);
std::string ReadFile(const std::string& path);

/// Tensors of a safetensors file, widened: F32/BF16/F16 to float, I32 to int32.
std::vector<float> ReadFloats(const std::string& path, const std::string& tensor);
std::vector<int32_t> ReadInts(const std::string& path, const std::string& tensor);

/// Largest |a − b|, with its index; NaN anywhere counts as infinite.
struct Worst {
  double error = 0.0;
  size_t index = 0;
};
Worst WorstError(std::span<const float> actual, std::span<const float> expected);

}  // namespace lookback::testing
