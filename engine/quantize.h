// Weights in groups of 32 with one scale each (kernels.h, Element::kQ8 and kQ4).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/safetensors.h"
#include "kernels/kernels.h"

namespace lookback {

/// Quantizes one group of 1 to 32 finite values to integers of `low` to `high`; returns the scale
/// as f16 bits. Of several scales it takes the one whose values come nearest (least sum of
/// squares), each refined to the best for its integers. Infinite where no f16 is large enough.
uint16_t QuantizeGroup(std::span<const float> values, int low, int high, std::span<int8_t> out);

/// One row of `k` finite values in the form of `type`: `row` has RowBytes(type, k) bytes, `scales`
/// QuantGroups(k). An infinite scale is left for the caller to refuse.
void QuantizeRow(std::span<const float> values, kernels::Element type, std::span<std::byte> row,
                 std::span<uint16_t> scales);

/// Declares `name` of `shape` as it is stored in the form `target`: one tensor, or for a quantized
/// matrix NAME and NAME.scale.
void DeclareWeights(const std::string& name, std::span<const int64_t> shape,
                    kernels::Element target, SafetensorsWriter& writer);

}  // namespace lookback
