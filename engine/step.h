// One step of the engine as a value: which tokens of which sequences are fed together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"

namespace lookback {

/// Consecutive tokens of one sequence.
struct StepItem {
  int32_t slot = 0;               ///< KvCache slot
  std::span<const int32_t> ids;   ///< the tokens fed, at least one
  bool want_last_logits = false;  ///< logits of the last token
  bool want_all_logits = false;   ///< logits of every token
  int64_t first_row = 0;          ///< row of ids[0] in the step; filled in by the executor
};

/// At most Workspace::max_rows() rows over all items.
struct StepPlan {
  std::vector<StepItem> items;

  int64_t rows() const {
    int64_t rows = 0;
    for (const StepItem& item : items) rows += static_cast<int64_t>(item.ids.size());
    return rows;
  }
};

/// What the forward pass reads of a step: flat arrays, one element a row.
struct StepRows {
  int64_t rows = 0;
  const int32_t* ids = nullptr;
  kernels::RowMap map;  ///< list_offset is set by the pass, layer by layer
};

}  // namespace lookback
