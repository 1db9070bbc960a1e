// The heat map of a window table as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/status.h"
#include "engine/windows.h"

namespace lookback::tools {

/// An SVG document: a cell a (layer, query head), coloured by window over `context` on a log scale,
/// with its window as a tooltip, layer numbers, each layer's ACR and a legend.
std::string WindowSvg(const WindowTable& table, int64_t context);

/// The cells alone as a PNG, a square of pixels each (fewer where the table is large).
std::string WindowPng(const WindowTable& table, int64_t context);

/// A PNG of `height` rows of `width` pixels, RGB.
std::string EncodePng(const std::vector<uint8_t>& rgb, int64_t width, int64_t height);

/// Writes a temporary file beside `path` and renames it. After an error there is neither.
Status WriteWholeFile(const std::string& path, const std::string& bytes);

}  // namespace lookback::tools
