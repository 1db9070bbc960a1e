#include "tools/convert/weight_copy.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "engine/tensor.h"

namespace lookback::tools {

namespace {

constexpr int64_t kSliceElements = int64_t{1} << 20;

std::string IndexString(int64_t flat, std::span<const int64_t> shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return ShapeString(index);
}

}  // namespace

Status CopyWeights(const std::string& name, const SourceTensor& source, DType target,
                   SafetensorsWriter& writer, const std::function<Status(int64_t)>& after_slice) {
  LOOKBACK_CHECK(target == DType::kF32 || target == DType::kBF16);
  const int64_t total = source.elements();
  const int64_t width = DTypeBytes(source.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(total, kSliceElements) * width));
  std::vector<float> values(static_cast<size_t>(std::min(total, kSliceElements)));
  std::vector<uint16_t> rounded(target == DType::kBF16 ? values.size() : 0);
  for (int64_t begin = 0; begin < total; begin += kSliceElements) {
    const int64_t count = std::min(kSliceElements, total - begin);
    const std::span<float> slice(values.data(), static_cast<size_t>(count));
    const std::span<std::byte> read = std::span(bytes).first(static_cast<size_t>(count * width));
    LOOKBACK_RETURN_IF_ERROR(source.file->Read(source.offset + begin * width, read));
    LOOKBACK_RETURN_IF_ERROR(CopyAsF32({source.dtype, {count}, read}, slice));
    for (size_t i = 0; i < slice.size(); ++i) {
      float written = slice[i];
      if (target == DType::kBF16) {
        rounded[i] = F32ToBF16(written);
        written = BF16ToF32(rounded[i]);
      }
      if (std::isfinite(written)) continue;
      const int64_t place = begin + static_cast<int64_t>(i);
      return Mismatch(StrCat("weight ", IndexString(place, source.shape), " of tensor ",
                             Quoted(name), " in ", source.file->path()),
                      slice[i], StrCat("a finite ", DTypeName(target), " number"));
    }
    const auto out = target == DType::kBF16 ? std::as_bytes(std::span(rounded).first(slice.size()))
                                            : std::as_bytes(slice);
    LOOKBACK_RETURN_IF_ERROR(writer.Append(out));
    LOOKBACK_RETURN_IF_ERROR(after_slice(static_cast<int64_t>(out.size())));
  }
  return {};
}

}  // namespace lookback::tools
