#include "tools/convert/weight_copy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/quantize.h"
#include "engine/tensor.h"
#include "engine/thread_pool.h"

namespace lookback::tools {

namespace {

using kernels::Element;

constexpr int64_t kSliceElements = int64_t{1} << 20;

std::string IndexString(int64_t flat, std::span<const int64_t> shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return ShapeString(index);
}

/// Place of the first NaN or infinity among values whose exponent bits are `exponent`; -1 if none.
template <typename Bits>
int64_t FindNonFinite(std::span<const std::byte> bytes, Bits exponent) {
  const size_t count = bytes.size() / sizeof(Bits);
  const auto is_bad = [&](size_t i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
    return (bits & exponent) == exponent;
  };
  bool any = false;
  for (size_t i = 0; i < count; ++i) any |= is_bad(i);  // without an exit: the compiler's vectors
  if (!any) return -1;
  size_t place = 0;
  while (!is_bad(place)) ++place;
  return static_cast<int64_t>(place);
}

int64_t FindNonFinite(std::span<const std::byte> bytes, DType dtype) {
  if (dtype == DType::kBF16) return FindNonFinite<uint16_t>(bytes, 0x7F80);
  return FindNonFinite<uint32_t>(bytes, 0x7F800000);
}

Status NotFinite(const std::string& name, const SourceTensor& source, int64_t place, float value,
                 std::string_view type) {
  return Mismatch(StrCat("weight ", IndexString(place, source.shape), " of tensor ", Quoted(name),
                         " in ", source.file->path()),
                  value, StrCat("a finite ", type, " number"));
}

Status CopyPlain(const std::string& name, const SourceTensor& source, DType target,
                 SafetensorsWriter& writer, const std::function<Status(int64_t)>& after_slice) {
  const int64_t total = source.elements();
  const int64_t width = DTypeBytes(source.dtype);
  const auto slice_elements = static_cast<size_t>(std::min(total, kSliceElements));
  const bool converts = source.dtype != target;
  std::vector<std::byte> bytes(slice_elements * static_cast<size_t>(width));
  std::vector<float> values(converts ? slice_elements : 0);
  std::vector<uint16_t> rounded(converts && target == DType::kBF16 ? slice_elements : 0);
  for (int64_t begin = 0; begin < total; begin += kSliceElements) {
    const int64_t count = std::min(kSliceElements, total - begin);
    const std::span<std::byte> read = std::span(bytes).first(static_cast<size_t>(count * width));
    LOOKBACK_RETURN_IF_ERROR(source.file->Read(source.offset + begin * width, read));
    std::span<const std::byte> out = read;
    if (converts) {
      const std::span<float> slice = std::span(values).first(static_cast<size_t>(count));
      LOOKBACK_RETURN_IF_ERROR(CopyAsF32({source.dtype, {count}, read}, slice));
      out = std::as_bytes(slice);
      if (target == DType::kBF16) {
        std::transform(slice.begin(), slice.end(), rounded.begin(), F32ToBF16);
        out = std::as_bytes(std::span(rounded).first(slice.size()));
      }
    }
    if (const int64_t place = FindNonFinite(out, target); place >= 0) {
      float value = 0.0F;
      const auto one = read.subspan(static_cast<size_t>(place * width), static_cast<size_t>(width));
      LOOKBACK_RETURN_IF_ERROR(CopyAsF32({source.dtype, {1}, one}, {&value, 1}));
      return NotFinite(name, source, begin + place, value, DTypeName(target));
    }
    LOOKBACK_RETURN_IF_ERROR(writer.Append(out));
    LOOKBACK_RETURN_IF_ERROR(after_slice(std::ssize(out)));
  }
  return {};
}

/// A matrix in groups of 32, whole rows at a time, several threads over the rows of a slice.
Status CopyQuantized(const std::string& name, const SourceTensor& source, Element target,
                     SafetensorsWriter& writer, const std::function<Status(int64_t)>& after_slice) {
  LOOKBACK_CHECK(source.shape.size() == 2);
  const int64_t rows = source.shape[0], k = source.shape[1];
  const int64_t row_bytes = kernels::RowBytes(target, k), groups = kernels::QuantGroups(k);
  const int64_t source_bytes = k * DTypeBytes(source.dtype);
  const int64_t slice_rows =
      std::clamp<int64_t>(kSliceElements / std::max<int64_t>(k, 1), 1, std::max<int64_t>(rows, 1));
  std::vector<std::byte> bytes(static_cast<size_t>(slice_rows * source_bytes));
  std::vector<float> values(static_cast<size_t>(slice_rows * k));
  std::vector<std::byte> quantized(static_cast<size_t>(slice_rows * row_bytes));
  std::vector<uint16_t> scales(static_cast<size_t>(rows * groups));
  ThreadPool threads(ThreadsOfMachine());
  for (int64_t begin = 0; begin < rows; begin += slice_rows) {
    const int64_t count = std::min(slice_rows, rows - begin);
    const auto read = std::span(bytes).first(static_cast<size_t>(count * source_bytes));
    const auto slice = std::span(values).first(static_cast<size_t>(count * k));
    LOOKBACK_RETURN_IF_ERROR(source.file->Read(source.offset + begin * source_bytes, read));
    LOOKBACK_RETURN_IF_ERROR(CopyAsF32({source.dtype, {count * k}, read}, slice));
    if (const int64_t place = FindNonFinite(std::as_bytes(slice), DType::kF32); place >= 0) {
      return NotFinite(name, source, begin * k + place, slice[static_cast<size_t>(place)], "F32");
    }
    threads.For(count, 1, [&](int64_t first, int64_t last, int64_t) {
      for (int64_t row = first; row < last; ++row) {
        const auto at = [](int64_t index, int64_t width) {
          return std::pair(static_cast<size_t>(index * width), static_cast<size_t>(width));
        };
        const auto [value, value_count] = at(row, k);
        const auto [byte, byte_count] = at(row, row_bytes);
        const auto [scale, scale_count] = at(begin + row, groups);
        QuantizeRow(std::span(values).subspan(value, value_count), target,
                    std::span(quantized).subspan(byte, byte_count),
                    std::span(scales).subspan(scale, scale_count));
      }
    });
    for (int64_t i = begin * groups; i < (begin + count) * groups; ++i) {
      if (std::isfinite(F16ToF32(scales[static_cast<size_t>(i)]))) continue;
      const int64_t row = i / groups, column = i % groups * kernels::kQuantGroup;
      return NotFinite(name, source, row * k + column,
                       values[static_cast<size_t>((row - begin) * k + column)], "F16 scale as a");
    }
    const auto out = std::span(quantized).first(static_cast<size_t>(count * row_bytes));
    LOOKBACK_RETURN_IF_ERROR(writer.Append(out));
    LOOKBACK_RETURN_IF_ERROR(after_slice(std::ssize(out)));
  }
  LOOKBACK_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(scales))));
  return after_slice(std::ssize(scales) * 2);
}

}  // namespace

Status CopyWeights(const std::string& name, const SourceTensor& source, Element target,
                   SafetensorsWriter& writer, const std::function<Status(int64_t)>& after_slice) {
  if (IsQuantized(target)) return CopyQuantized(name, source, target, writer, after_slice);
  const DType dtype = target == Element::kF32 ? DType::kF32 : DType::kBF16;
  return CopyPlain(name, source, dtype, writer, after_slice);
}

}  // namespace lookback::tools
