#include "tools/convert/window_csv.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "engine/json.h"
#include "tools/convert/csv.h"

namespace lookback::tools {

namespace {

constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

/// Digits, maybe with ".0": a data frame with a gap in a column writes its integers so.
std::optional<int64_t> WholeNumber(std::string_view text) {
  if (text.ends_with(".0")) text.remove_suffix(2);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// What is known of one head so far.
struct Head {
  int64_t line = 0;  ///< 0 = no row yet
  int64_t step = 0;
  int64_t window = kFullWindow;
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& where, const WindowCsvModel& model)
      : csv_(text, where), where_(where), model_(model) {}

  Result<WindowTable> Read();

 private:
  static constexpr size_t kAbsent = std::numeric_limits<size_t>::max();

  Status ReadHeader();
  Result<size_t> Column(std::string_view name) const;
  Status ReadRow();
  Result<int64_t> NativeWindow() const;
  Status CheckClampedSize(int64_t window) const;
  Status CheckRegime();
  Status CheckComplete() const;
  WindowTable MakeTable() const;
  Result<int64_t> Int(size_t column, int64_t low, int64_t high) const;
  Status Error(std::string_view got, std::string_view expected) const {
    return Mismatch(StrCat("line ", row_.line, " of ", where_), got, expected);
  }

  CsvReader csv_;
  const std::string& where_;
  const WindowCsvModel& model_;
  CsvRow header_;
  CsvRow row_;
  bool native_ = false;
  size_t layer_ = kAbsent, head_ = kAbsent, step_ = kAbsent, index_ = kAbsent, size_ = kAbsent,
         context_ = kAbsent, regime_ = kAbsent;
  std::string first_regime_;
  std::vector<Head> heads_;
};

Result<size_t> Reader::Column(std::string_view name) const {
  size_t found = kAbsent;
  for (size_t i = 0; i < header_.fields.size(); ++i) {
    if (header_.fields[i] != name) continue;
    if (found != kAbsent) {
      return Mismatch(StrCat("columns of ", where_), StrCat(name, " twice"), "every column once");
    }
    found = i;
  }
  return found;
}

Status Reader::ReadHeader() {
  LOOKBACK_ASSIGN_OR_RETURN(const bool any, csv_.Next(header_));
  if (!any) return Mismatch(where_, "an empty file", "a heatmap CSV of AAH");
  LOOKBACK_ASSIGN_OR_RETURN(layer_, Column("layer_id"));
  LOOKBACK_ASSIGN_OR_RETURN(head_, Column("head_id"));
  LOOKBACK_ASSIGN_OR_RETURN(step_, Column("checkpoint_step"));
  LOOKBACK_ASSIGN_OR_RETURN(index_, Column("final_window_idx"));
  LOOKBACK_ASSIGN_OR_RETURN(size_, Column("final_window_size"));
  LOOKBACK_ASSIGN_OR_RETURN(context_, Column("context_length"));
  LOOKBACK_ASSIGN_OR_RETURN(regime_, Column("regime"));
  LOOKBACK_ASSIGN_OR_RETURN(const size_t acr, Column("ACR"));
  native_ = step_ != kAbsent;
  const bool complete = layer_ != kAbsent && head_ != kAbsent &&
                        (native_ ? index_ != kAbsent : size_ != kAbsent && acr != kAbsent);
  if (!complete) {
    return Mismatch(
        StrCat("columns of ", where_),
        StrCat(header_.fields.size(), ", the first of them ", Quoted(header_.fields[0])),
        "layer_id, head_id and either checkpoint_step and final_window_idx or "
        "final_window_size and ACR");
  }
  if (native_ && model_.choices.empty()) {
    return Mismatch(where_, "indices of windows (the native CSV)",
                    "the run's config beside it, which says how long they are");
  }
  return {};
}

Result<int64_t> Reader::Int(size_t column, int64_t low, int64_t high) const {
  const std::string& text = row_.fields[column];
  const std::optional<int64_t> value = WholeNumber(text);
  if (value && *value >= low && *value <= high) return *value;
  return Error(StrCat(header_.fields[column], " ", Quoted(text)),
               StrCat("a whole number from ", low, " to ", high));
}

/// final_window_size is the window between the run's floor and its context: what tells a CSV of
/// another run. The attention itself heeds neither.
Status Reader::CheckClampedSize(int64_t window) const {
  if (size_ == kAbsent) return {};
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t size, Int(size_, 1, kMaxTokens));
  int64_t context = model_.seq_len;
  if (context_ != kAbsent) {
    LOOKBACK_ASSIGN_OR_RETURN(context, Int(context_, 1, kMaxTokens));
  }
  const int64_t floor_last = std::max(std::min(window, context), model_.w_min_gpu);
  const int64_t context_last = std::min(std::max(window, model_.w_min_gpu), context);
  if (size == floor_last || size == context_last) return {};
  return Error(StrCat("final_window_size ", size),
               StrCat(floor_last, ", which the run's config makes of the window ", window));
}

Result<int64_t> Reader::NativeWindow() const {
  if (row_.fields[index_].empty()) {
    if (model_.full_attention) return int64_t{kFullWindow};
    return Error("a blank final_window_idx", "an index: only full-attention runs leave it blank");
  }
  if (model_.full_attention) {
    return Error(StrCat("final_window_idx ", Quoted(row_.fields[index_])),
                 "a blank, since the run's config says full attention");
  }
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t index,
                            Int(index_, 0, static_cast<int64_t>(model_.choices.size()) - 1));
  const int64_t window = model_.choices[static_cast<size_t>(index)];
  LOOKBACK_RETURN_IF_ERROR(CheckClampedSize(window));
  return window;
}

Status Reader::CheckRegime() {
  if (regime_ == kAbsent) return {};
  const std::string& regime = row_.fields[regime_];
  if (heads_.empty()) first_regime_ = regime;
  if (regime == first_regime_) return {};
  return Error(StrCat("regime ", Quoted(regime)),
               StrCat(Quoted(first_regime_), " as in the rows before"));
}

Status Reader::ReadRow() {
  if (row_.fields.size() != header_.fields.size()) {
    return Error(StrCat(row_.fields.size(), " fields"),
                 StrCat(header_.fields.size(), ", as in the header"));
  }
  LOOKBACK_RETURN_IF_ERROR(CheckRegime());
  heads_.resize(static_cast<size_t>(model_.layers * model_.heads));
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t layer, Int(layer_, 0, model_.layers - 1));
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t head, Int(head_, 0, model_.heads - 1));
  Head made{row_.line, 0, kFullWindow};
  if (native_) {
    LOOKBACK_ASSIGN_OR_RETURN(made.step, Int(step_, 0, INT64_MAX));
    LOOKBACK_ASSIGN_OR_RETURN(made.window, NativeWindow());
  } else {
    LOOKBACK_ASSIGN_OR_RETURN(made.window, Int(size_, 1, kMaxTokens));
  }
  Head& known = heads_[static_cast<size_t>(layer * model_.heads + head)];
  if (known.line != 0 && (!native_ || made.step <= known.step)) {
    return Error(StrCat("layer ", layer, " head ", head, " again after line ", known.line,
                        native_ ? ", and no later step" : ""),
                 "every head once in a step, steps ascending");
  }
  known = made;
  return {};
}

Status Reader::CheckComplete() const {
  if (heads_.empty()) return Mismatch(where_, "no rows", "one for every head");
  for (size_t i = 0; i < heads_.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const std::string what =
        StrCat("layer ", place / model_.heads, " head ", place % model_.heads, " in ", where_);
    if (heads_[i].line == 0) {
      return Mismatch(
          what, "no row",
          StrCat("one for each of ", model_.layers, " layers and ", model_.heads, " query heads"));
    }
    if (heads_[i].step != heads_[0].step) {
      return Mismatch(what, StrCat("a last step ", heads_[i].step),
                      StrCat(heads_[0].step, ", as for layer 0 head 0"));
    }
  }
  return {};
}

WindowTable Reader::MakeTable() const {
  Json rows = Json::array();
  for (int64_t layer = 0; layer < model_.layers; ++layer) {
    Json row = Json::array();
    for (int64_t head = 0; head < model_.heads; ++head) {
      const int64_t window = heads_[static_cast<size_t>(layer * model_.heads + head)].window;
      row.push_back(window == kFullWindow ? Json(nullptr) : Json(window));
    }
    rows.push_back(std::move(row));
  }
  Result<WindowTable> table = WindowTable::FromJson(Json{{"windows", std::move(rows)}},
                                                    model_.layers, model_.heads, where_);
  LOOKBACK_CHECK(table.ok());  // every window has been checked
  std::string source = std::filesystem::path(where_).filename().string();
  if (!first_regime_.empty()) source += ": " + first_regime_;
  if (native_) source += StrCat(", step ", heads_[0].step);
  table->set_source(std::move(source));
  table->set_train_context(model_.seq_len);
  return *std::move(table);
}

Result<WindowTable> Reader::Read() {
  if (model_.layers < 1 || model_.layers > kMaxHeads || model_.heads < 1 ||
      model_.heads > kMaxHeads) {
    return Mismatch(StrCat("model of ", where_),
                    StrCat(model_.layers, " layers of ", model_.heads, " heads"),
                    StrCat("1 to ", kMaxHeads, " of each"));
  }
  LOOKBACK_RETURN_IF_ERROR(ReadHeader());
  while (true) {
    LOOKBACK_ASSIGN_OR_RETURN(const bool more, csv_.Next(row_));
    if (!more) break;
    LOOKBACK_RETURN_IF_ERROR(ReadRow());
  }
  LOOKBACK_RETURN_IF_ERROR(CheckComplete());
  return MakeTable();
}

}  // namespace

WindowCsvModel WindowCsvModel::Of(const AahRun& run) {
  return {run.layers, run.heads, run.windows, run.w_min_gpu, run.seq_len, run.full_attention()};
}

Result<WindowTable> ParseWindowCsv(std::string_view text, const std::string& where,
                                   const WindowCsvModel& model) {
  return Reader(text, where, model).Read();
}

Result<WindowTable> ReadWindowCsv(const std::string& path, const WindowCsvModel& model) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxCsvBytes));
  return ParseWindowCsv(text, path, model);
}

}  // namespace lookback::tools
