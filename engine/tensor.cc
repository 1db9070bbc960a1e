#include "engine/tensor.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace lookback {

namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<DTypeRow, 10> kDTypes = {{
    {DType::kF64, "F64", 8},
    {DType::kF32, "F32", 4},
    {DType::kF16, "F16", 2},
    {DType::kBF16, "BF16", 2},
    {DType::kI64, "I64", 8},
    {DType::kI32, "I32", 4},
    {DType::kI16, "I16", 2},
    {DType::kI8, "I8", 1},
    {DType::kU8, "U8", 1},
    {DType::kBool, "BOOL", 1},
}};

constexpr size_t kBufferAlignment = 64;

const DTypeRow& Row(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  LOOKBACK_CHECK(index < kDTypes.size() && kDTypes[index].dtype == dtype);
  return kDTypes[index];
}

}  // namespace

int64_t DTypeBytes(DType dtype) { return Row(dtype).bytes; }

std::string_view DTypeName(DType dtype) { return Row(dtype).name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<int64_t> CheckedElements(std::span<const int64_t> shape) {
  // A zero anywhere makes the product 0, but the sizes beside it must still multiply without
  // overflow: otherwise [2^62, 2^62, 0] would pass here and break whoever computes strides.
  int64_t product = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      empty = true;
      continue;
    }
    if (product > std::numeric_limits<int64_t>::max() / size) return std::nullopt;
    product *= size;
  }
  return empty ? 0 : product;
}

std::string ShapeString(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ',';
    out += StrCat(shape[i]);
  }
  return out + "]";
}

float BF16ToF32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t F32ToBF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  // A NaN whose payload lies in the low half would round to infinity: keep it a quiet NaN.
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  const uint32_t rounding = 0x7FFFU + ((bits >> 16) & 1U);
  return static_cast<uint16_t>((bits + rounding) >> 16);
}

float F16ToF32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t F32ToF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return sign | 0x7E00U;
  if (magnitude >= 0x477FF000U) return sign | 0x7C00U;  // 65520, halfway to 65536
  if (magnitude < 0x38800000U) {
    // Below the smallest normal: a multiple of 2^-24. Adding 0.5, whose last place that is, rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t rounding = 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((magnitude + rounding - 0x38000000U) >> 13));
}

int64_t TensorView::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

namespace {

template <typename T, float (*kWiden)(uint16_t)>
void WidenAll(std::span<const std::byte> in, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T bits;
    std::memcpy(&bits, in.data() + i * sizeof bits, sizeof bits);
    out[i] = kWiden(bits);
  }
}

}  // namespace

Status CopyAsF32(const TensorView& source, std::span<float> out) {
  LOOKBACK_CHECK(static_cast<int64_t>(out.size()) == source.elements());
  switch (source.dtype) {
    case DType::kF32:
      if (!out.empty()) std::memcpy(out.data(), source.data.data(), out.size_bytes());
      return {};
    case DType::kF16:
      WidenAll<uint16_t, F16ToF32>(source.data, out);
      return {};
    case DType::kBF16:
      WidenAll<uint16_t, BF16ToF32>(source.data, out);
      return {};
    default:
      return Mismatch("tensor dtype", DTypeName(source.dtype), "F32, F16 or BF16");
  }
}

Result<Buffer> Buffer::Allocate(int64_t bytes) {
  LOOKBACK_CHECK(bytes >= 0);
  Buffer buffer;
  if (bytes == 0) return buffer;
  // calloc hands out large sizes as untouched pages: a pool costs memory only as it is used.
  buffer.allocation_ = std::calloc(static_cast<size_t>(bytes) + kBufferAlignment, 1);
  if (buffer.allocation_ == nullptr) {
    return Status(StatusCode::kResourceExhausted,
                  StrCat("memory: cannot allocate ", bytes, " bytes"));
  }
  const auto address = reinterpret_cast<uintptr_t>(buffer.allocation_);
  const size_t shift = (kBufferAlignment - address % kBufferAlignment) % kBufferAlignment;
  buffer.data_ = static_cast<std::byte*>(buffer.allocation_) + shift;
  buffer.bytes_ = bytes;
  return buffer;
}

Buffer::Buffer(int64_t bytes) {
  Result<Buffer> buffer = Allocate(bytes);
  LOOKBACK_CHECK(buffer.ok());
  *this = std::move(buffer).value();
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(allocation_, other.allocation_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() { std::free(allocation_); }

}  // namespace lookback
