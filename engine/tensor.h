// Dtypes, non-owning tensor views and the one owner of aligned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"

namespace lookback {

/// Element types of safetensors files that we read or write.
enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };

/// Bytes of one element.
int64_t DTypeBytes(DType dtype);
/// The safetensors name ("F32", "BF16", …).
std::string_view DTypeName(DType dtype);
/// The dtype of that name; nothing for names we do not know (F8_E4M3, say).
std::optional<DType> ParseDType(std::string_view name);

/// Elements of `shape`; nothing if a size is negative or the product passes 2^63 − 1.
std::optional<int64_t> CheckedElements(std::span<const int64_t> shape);
/// "[4096,192]"
std::string ShapeString(std::span<const int64_t> shape);

/// f32 from the bits of a bf16 (exact) and the bf16 nearest to an f32 (ties to even; NaN stays
/// NaN).
float BF16ToF32(uint16_t bits);
uint16_t F32ToBF16(float value);
/// f32 from the bits of an f16 (exact, subnormals too) and the f16 nearest to an f32 (ties to even;
/// infinite from 65520 on; NaN stays NaN).
float F16ToF32(uint16_t bits);
uint16_t F32ToF16(float value);

/// Non-owning view of a contiguous row-major tensor. `data` may be misaligned for its dtype when it
/// points into a foreign file: read it with CopyAsF32 or memcpy.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  ///< exactly elements() · DTypeBytes(dtype) bytes

  int64_t elements() const;
  int64_t bytes() const { return static_cast<int64_t>(data.size()); }
};

/// Widens `source` (F32, F16 or BF16, any alignment) into `out`, which has source.elements()
/// floats. InvalidArgument for another dtype.
Status CopyAsF32(const TensorView& source, std::span<float> out);

/// Owner of zeroed bytes, 64-byte aligned, move-only. A size of 0 owns nothing.
class Buffer {
 public:
  Buffer() = default;
  /// For sizes that must fit; for a size that a user chose, Allocate().
  explicit Buffer(int64_t bytes);
  /// ResourceExhausted, with the size, if there is no room.
  static Result<Buffer> Allocate(int64_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void* allocation_ = nullptr;
  std::byte* data_ = nullptr;  // allocation_, aligned
  int64_t bytes_ = 0;
};

}  // namespace lookback
