// Window tables from the diagnostics that the AAH release writes (aah.md section 4).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"
#include "engine/windows.h"
#include "tools/convert/aah_config.h"

namespace lookback::tools {

/// What a table must fit, and what the native form cannot be read without.
struct WindowCsvModel {
  int64_t layers = 0;  ///< 1 to 1024
  int64_t heads = 0;   ///< query heads, 1 to 1024
  /// Of the native form alone: the run's window choices in tokens (empty: that form is refused),
  /// and what final_window_size was clamped to.
  std::vector<int64_t> choices = {};
  int64_t w_min_gpu = 0;
  int64_t seq_len = 0;
  bool full_attention = false;  ///< blank windows are full

  static WindowCsvModel Of(const AahRun& run);
};

/// Reads a heatmap CSV. The native form (with `checkpoint_step`) gives choices[final_window_idx],
/// the last step of each head; the adapter's form (with `ACR`) gives final_window_size. Every head
/// must be there, with the same last step. Refused by line: heads outside the model, rows twice,
/// steps that go back, windows that are no whole number, < 1, or no choice of the run, sizes that
/// contradict it, several regimes in one file, rows of another length than the header, and what
/// CsvReader refuses. `where` names the file.
Result<WindowTable> ParseWindowCsv(std::string_view text, const std::string& where,
                                   const WindowCsvModel& model);
/// The same from a file.
Result<WindowTable> ReadWindowCsv(const std::string& path, const WindowCsvModel& model);

}  // namespace lookback::tools
