#include "engine/windows.h"

#include <algorithm>
#include <cmath>

#include "engine/sha256.h"

namespace lookback {

namespace {

std::string Place(std::string_view what, int64_t layer, int64_t head, const std::string& where) {
  return StrCat(what, "[", layer, "][", head, "] in ", where);
}

/// An integer, also one that is written as 32.0; nothing for anything else.
std::optional<int64_t> WholeNumber(const Json& value) {
  if (const std::optional<int64_t> whole = JsonInt(value)) return whole;
  const std::optional<double> number = JsonNumber(value);
  // The comparison is false for NaN, and keeps the cast below in range.
  if (!number || !(std::abs(*number) <= 4e15) || *number != std::trunc(*number)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*number);
}

/// Calls set(layer, head, element) for every element of a layers × heads array of arrays.
template <typename Set>
Status ForEachHead(const Json& rows, std::string_view what, int64_t layers, int64_t heads,
                   const std::string& where, Set set) {
  if (!rows.is_array() || static_cast<int64_t>(rows.size()) != layers) {
    return Mismatch(StrCat(what, " in ", where), DescribeJson(rows),
                    StrCat("an array of ", layers, " layers"));
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    const Json& row = rows[static_cast<size_t>(layer)];
    if (!row.is_array() || static_cast<int64_t>(row.size()) != heads) {
      return Mismatch(StrCat(what, "[", layer, "] in ", where), DescribeJson(row),
                      StrCat("an array of ", heads, " query heads"));
    }
    for (int64_t head = 0; head < heads; ++head) {
      LOOKBACK_RETURN_IF_ERROR(set(layer, head, row[static_cast<size_t>(head)]));
    }
  }
  return {};
}

void AppendLittleEndian(std::string& out, int32_t value) {
  const auto bits = static_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) {
    out += static_cast<char>(static_cast<unsigned char>(bits >> shift));
  }
}

}  // namespace

int64_t VisibleKeys(HeadWindow head, int64_t context) {
  if (head.full() || head.window >= context) return context;
  return head.window + std::min<int64_t>(head.sinks, context - head.window);
}

WindowTable WindowTable::Full(int64_t layers, int64_t heads) {
  LOOKBACK_CHECK(layers >= 0 && heads >= 0);
  WindowTable table(layers, heads);
  table.source_ = "every window full";
  return table;
}

Result<WindowTable> WindowTable::Uniform(int64_t layers, int64_t heads, int64_t window,
                                         int64_t sinks, std::string source) {
  LOOKBACK_CHECK(layers >= 0 && heads >= 0);
  if (window < 1 || window > kMaxInt32) {
    return Mismatch("window", window, StrCat("an integer from 1 to ", kMaxInt32));
  }
  if (sinks < 0 || sinks > kMaxInt32) {
    return Mismatch("sinks", sinks, StrCat("an integer from 0 to ", kMaxInt32));
  }
  WindowTable table(layers, heads);
  const HeadWindow head{static_cast<int32_t>(window), static_cast<int32_t>(sinks)};
  std::fill(table.table_.begin(), table.table_.end(), head);
  table.source_ = std::move(source);
  return table;
}

Result<WindowTable> WindowTable::FromJson(const Json& json, int64_t layers, int64_t heads,
                                          const std::string& where) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(json, where));
  const Json* windows = object.Find("windows");
  if (windows == nullptr) {
    return Mismatch(StrCat("windows in ", where), "nothing", "a table [layer][query head]");
  }
  WindowTable table(layers, heads);
  const auto cell = [&](int64_t layer, int64_t head) -> HeadWindow& {
    return table.table_[static_cast<size_t>(layer * heads + head)];
  };
  LOOKBACK_RETURN_IF_ERROR(
      ForEachHead(*windows, "windows", layers, heads, where,
                  [&](int64_t layer, int64_t head, const Json& value) -> Status {
                    if (value.is_null()) return {};
                    const std::optional<int64_t> window = WholeNumber(value);
                    if (!window || *window < 1 || *window > kMaxInt32) {
                      return Mismatch(Place("windows", layer, head, where), DescribeJson(value),
                                      StrCat("null or an integer from 1 to ", kMaxInt32));
                    }
                    cell(layer, head).window = static_cast<int32_t>(*window);
                    return {};
                  }));
  const Json* sinks = object.Find("sinks");
  if (sinks != nullptr && sinks->is_array()) {
    LOOKBACK_RETURN_IF_ERROR(
        ForEachHead(*sinks, "sinks", layers, heads, where,
                    [&](int64_t layer, int64_t head, const Json& value) -> Status {
                      const std::optional<int64_t> count = WholeNumber(value);
                      if (!count || *count < 0 || *count > kMaxInt32) {
                        return Mismatch(Place("sinks", layer, head, where), DescribeJson(value),
                                        StrCat("an integer from 0 to ", kMaxInt32));
                      }
                      cell(layer, head).sinks = static_cast<int32_t>(*count);
                      return {};
                    }));
  } else {
    LOOKBACK_ASSIGN_OR_RETURN(const int64_t count, object.Int("sinks", 0, kMaxInt32, 0));
    for (HeadWindow& head : table.table_) head.sinks = static_cast<int32_t>(count);
  }
  LOOKBACK_ASSIGN_OR_RETURN(table.train_context_, object.Int("train_context", 0, kMaxInt32, 0));
  LOOKBACK_ASSIGN_OR_RETURN(table.source_, object.String("source", ""));
  return table;
}

Json WindowTable::ToJson() const {
  Json windows = Json::array();
  Json sinks = Json::array();
  bool same_sinks = true;
  for (int64_t layer = 0; layer < layers_; ++layer) {
    Json window_row = Json::array();
    Json sink_row = Json::array();
    for (int64_t head = 0; head < heads_; ++head) {
      const HeadWindow cell = at(layer, head);
      window_row.push_back(cell.full() ? Json() : Json(cell.window));
      sink_row.push_back(cell.sinks);
      same_sinks = same_sinks && cell.sinks == table_.front().sinks;
    }
    windows.push_back(std::move(window_row));
    sinks.push_back(std::move(sink_row));
  }
  Json out = Json::object();
  out["windows"] = std::move(windows);
  out["sinks"] = same_sinks ? Json(table_.empty() ? 0 : table_.front().sinks) : std::move(sinks);
  if (train_context_ > 0) out["train_context"] = train_context_;
  if (!source_.empty()) out["source"] = source_;
  return out;
}

HeadWindow WindowTable::KvHead(int64_t layer, int64_t kv_head, int64_t group) const {
  HeadWindow kept = at(layer, kv_head * group);
  for (int64_t i = 1; i < group; ++i) {
    const HeadWindow head = at(layer, kv_head * group + i);
    kept.window = kept.full() || head.full() ? kFullWindow : std::max(kept.window, head.window);
    kept.sinks = std::max(kept.sinks, head.sinks);
  }
  return kept;
}

WindowTable WindowTable::WithSinks(int32_t sinks) const {
  LOOKBACK_CHECK(sinks >= 0);
  WindowTable table = *this;
  for (HeadWindow& head : table.table_) head.sinks = sinks;
  return table;
}

std::string WindowTable::Hash() const {
  std::string bytes;
  bytes.reserve(table_.size() * 8);
  for (const HeadWindow& head : table_) AppendLittleEndian(bytes, head.window);
  for (const HeadWindow& head : table_) AppendLittleEndian(bytes, head.sinks);
  return Sha256Hex(bytes);
}

double WindowTable::Acr(int64_t context) const {
  double sum = 0.0;
  for (int64_t layer = 0; layer < layers_; ++layer) sum += AcrOfLayer(layer, context);
  return sum / static_cast<double>(layers_);
}

double WindowTable::AcrOfLayer(int64_t layer, int64_t context) const {
  LOOKBACK_CHECK(context >= 1);
  double sum = 0.0;
  for (int64_t head = 0; head < heads_; ++head) {
    const HeadWindow cell = at(layer, head);
    sum += cell.full() ? 1.0
                       : static_cast<double>(std::min<int64_t>(cell.window, context)) /
                             static_cast<double>(context);
  }
  return sum / static_cast<double>(heads_);
}

}  // namespace lookback
