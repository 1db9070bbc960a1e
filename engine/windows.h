// The window table: how far back every query head looks (AAH, arXiv 2608.19203; aah.md section 4).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/json.h"
#include "engine/status.h"

namespace lookback {

/// A window without limit: plain causal attention at every context. Written as JSON null; −1 in the
/// hash.
inline constexpr int32_t kFullWindow = -1;

/// One query head's reach: it sees key j from position i iff j <= i and (j < sinks or j >= i −
/// window + 1).
struct HeadWindow {
  int32_t window = kFullWindow;  ///< tokens, the query's own included; kFullWindow = all
  int32_t sinks = 0;             ///< first tokens that stay visible, tokens
  bool operator==(const HeadWindow&) const = default;

  bool full() const { return window == kFullWindow; }
};

/// Keys that `head` sees at a decode step with `context` tokens (the new one included):
/// min(context, window) plus the sinks outside the window.
int64_t VisibleKeys(HeadWindow head, int64_t context);

/// [layer][query head] → window and sinks. Immutable once made; every window is >= 1 or full.
class WindowTable {
 public:
  WindowTable() = default;
  /// Every head full.
  static WindowTable Full(int64_t layers, int64_t heads);
  /// Every head the same. InvalidArgument if window < 1 or sinks < 0.
  static Result<WindowTable> Uniform(int64_t layers, int64_t heads, int64_t window, int64_t sinks,
                                     std::string source);
  /// Reads {"windows", "sinks", "train_context", "source"} of format.md. `where` names the file in
  /// errors. The table must be layers × heads; NaN, fractions, <= 0 and > 2^31 − 1 are refused by
  /// place.
  static Result<WindowTable> FromJson(const Json& json, int64_t layers, int64_t heads,
                                      const std::string& where);
  Json ToJson() const;

  int64_t layers() const { return layers_; }
  int64_t heads() const { return heads_; }
  HeadWindow at(int64_t layer, int64_t head) const {
    return table_[static_cast<size_t>(layer * heads_ + head)];
  }
  /// What a KV head that serves `group` consecutive query heads must keep: the largest window and
  /// the largest sinks of its query heads.
  HeadWindow KvHead(int64_t layer, int64_t kv_head, int64_t group) const;

  /// Where the table came from, for people.
  const std::string& source() const { return source_; }
  void set_source(std::string source) { source_ = std::move(source); }
  /// Tokens the model was trained with; 0 if unknown.
  int64_t train_context() const { return train_context_; }
  void set_train_context(int64_t tokens) { train_context_ = tokens; }
  /// The same windows with every head's sinks set to `sinks` (>= 0).
  WindowTable WithSinks(int32_t sinks) const;

  /// SHA-256 in lower-case hex over the little-endian int32 windows, then the sinks (format.md).
  std::string Hash() const;
  /// Mean over heads of min(window, context)/context, sinks left out as the paper counts (aah.md
  /// section 4).
  double Acr(int64_t context) const;
  double AcrOfLayer(int64_t layer, int64_t context) const;

 private:
  WindowTable(int64_t layers, int64_t heads)
      : layers_(layers), heads_(heads), table_(static_cast<size_t>(layers * heads)) {}

  int64_t layers_ = 0;
  int64_t heads_ = 0;
  std::vector<HeadWindow> table_;
  int64_t train_context_ = 0;
  std::string source_;
};

}  // namespace lookback
