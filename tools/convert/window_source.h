// Where a conversion takes its window table from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/status.h"
#include "engine/windows.h"

namespace lookback::tools {

struct SourceModel;

/// What the command line asks for.
struct WindowRequest {
  std::string windows;           ///< "", "full", a number of tokens, a .csv or a JSON file
  std::optional<int64_t> sinks;  ///< replaces the table's own
};

struct ChosenWindows {
  WindowTable table;       ///< with its provenance
  std::string input_path;  ///< the file it was read from, "" if none
};

/// In this order: the request, windows.json in `folder` ("" = none), what the checkpoint itself
/// fixes, every window full unless the model needs a table. Errors name file, layer and head.
Result<ChosenWindows> ChooseWindows(const WindowRequest& request, const std::string& folder,
                                    const SourceModel& model);

/// `table` with the sinks that the request asks for, if it does.
Result<WindowTable> WithAskedSinks(const WindowRequest& request, WindowTable table);

}  // namespace lookback::tools
