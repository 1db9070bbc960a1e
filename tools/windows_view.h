// How a window table is shown: heat map, table, JSON.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config.h"
#include "engine/json.h"
#include "engine/windows.h"

namespace lookback::tools {

/// One cell a (layer, query head), shaded by window over `context` on a log scale, full = solid,
/// with the layer's ACR beside its row. More heads than fit in 64 cells share a cell (the largest
/// window is shown). With `colour`, ANSI 256-colour codes.
std::string HeatMap(const WindowTable& table, int64_t context, bool colour);

/// The windows in tokens, a line a layer; "full" and "W+S" (S sinks) as they come. At most 16 heads
/// a line, then continued.
std::string WindowText(const WindowTable& table);

/// {"windows", "sinks", …, "hash", "context", "acr", "acr_per_layer"}: a table that convert reads.
Json WindowJson(const WindowTable& table, int64_t context);

/// The context at which a model is looked at unless the user says otherwise: the one its table was
/// made for, else the model's.
int64_t TrainContext(const ModelConfig& config);

/// K and V bytes that one sequence of `context` tokens needs: `windowed` as the table allows
/// (largest window and sinks of each KV head's group), `full` without windows. `element_bytes`: 2
/// or 4.
struct KvBytes {
  int64_t windowed;
  int64_t full;
};
KvBytes SequenceKvBytes(const ModelConfig& config, int64_t context, int64_t element_bytes);

/// What `lookback windows FILE` prints on stdout, or the error. `context` 0: the train context.
Result<std::string> WindowsReport(const std::string& path, bool json, int64_t context, bool colour);

/// Writes the heat map of the file at `path` to the files `svg` and `png`; "" = not.
Status WriteImages(const std::string& path, int64_t context, const std::string& svg,
                   const std::string& png);

}  // namespace lookback::tools
