// What a controller saw and chose, forward by forward: as JSON and as a tree.
#pragma once

#include <cstdint>
#include <string>

#include "engine/calibration.h"
#include "engine/json.h"

namespace lookback::tools {

/// One forward: {"forward", "layers": [{"layer", "regime", "cached", "groups" (level-0 node of each
/// head), "levels": [{"nodes": [{"heads", "children", "logits", "raw_index", "index",
/// "raw_window", "window"}], "margin"}] (level 0 first), "clusterings", "chosen_windows",
/// "mean_index" (the EMA over choices), "index", "windows"}]}. Windows are tokens, the rest counts
/// from 0.
Json TraceJson(int64_t forward, const Calibrator& calibrator);

/// The same for people: a tree of each layer's nodes from the top down, with the window that each
/// chose and, where that differs, what its logits alone would have chosen; then a table of the
/// heads. Updates that are carried over unchanged (`cached`) are said in one line.
std::string TraceText(int64_t forward, const Calibrator& calibrator);

}  // namespace lookback::tools
