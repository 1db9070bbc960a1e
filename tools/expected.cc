#include "tools/expected.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

namespace lookback::tools {
namespace {

/// Reads tensors of one file; every error names tensor and file.
class Reader {
 public:
  Reader(const SafetensorsFile& file, int64_t vocab_size) : file_(file), vocab_(vocab_size) {}

  /// Values of an I32 or I64 tensor of any shape, each in [0, end).
  Result<std::vector<int64_t>> Ints(const std::string& name, int64_t end) const {
    LOOKBACK_ASSIGN_OR_RETURN(const TensorView view, file_.Tensor(name));
    const std::string what = StrCat(name, " in ", file_.path());
    if (view.dtype != DType::kI32 && view.dtype != DType::kI64) {
      return Mismatch(StrCat("dtype of ", what), DTypeName(view.dtype), "I32 or I64");
    }
    std::vector<int64_t> values(static_cast<size_t>(view.elements()));
    const auto width = static_cast<size_t>(DTypeBytes(view.dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      int32_t narrow = 0;
      if (width == sizeof narrow) {
        std::memcpy(&narrow, view.data.data() + i * width, width);
        values[i] = narrow;
      } else {
        std::memcpy(&values[i], view.data.data() + i * width, width);
      }
      if (values[i] >= 0 && values[i] < end) continue;
      return Mismatch(StrCat(name, "[", i, "] in ", file_.path()), values[i],
                      StrCat("0 to ", end - 1));
    }
    if (values.empty()) return Mismatch(StrCat("shape of ", what), "no elements", "some");
    return values;
  }

  Result<std::vector<int32_t>> Ids(const std::string& name) const {
    LOOKBACK_ASSIGN_OR_RETURN(const std::vector<int64_t> values, Ints(name, vocab_));
    return std::vector<int32_t>(values.begin(), values.end());
  }

  /// Logits `name` of the ids in `ids_name`, the positions in `positions_name` ("" = none) and the
  /// token ids in `columns_name` ("" = all of the vocabulary).
  Status AddLogits(const std::string& ids_name, const std::string& name,
                   const std::string& positions_name, const std::string& columns_name,
                   Expected& out) const {
    if (!file_.Has(ids_name) || !file_.Has(name)) return {};
    LOOKBACK_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, Ids(ids_name));
    LOOKBACK_ASSIGN_OR_RETURN(const TensorView ids_view, file_.Tensor(ids_name));
    LOOKBACK_ASSIGN_OR_RETURN(const TensorView view, file_.Tensor(name));
    std::vector<float> logits(static_cast<size_t>(view.elements()));
    LOOKBACK_RETURN_IF_ERROR(
        CopyAsF32(view, logits).WithPrefix(StrCat(name, " in ", file_.path())));
    std::vector<int32_t> columns;
    if (!columns_name.empty()) {
      LOOKBACK_ASSIGN_OR_RETURN(columns, Ids(columns_name));
    }
    const auto width = columns.empty() ? static_cast<size_t>(vocab_) : columns.size();
    const size_t rows = logits.size() / width;
    const size_t length = ids_view.shape.empty() ? 1 : static_cast<size_t>(ids_view.shape.back());
    const size_t batch = ids.size() / length;
    LOOKBACK_ASSIGN_OR_RETURN(
        const std::vector<int64_t> positions,
        Positions(positions_name, static_cast<int64_t>(length), rows / batch));
    const bool rows_fit = !view.shape.empty() && view.shape.back() == static_cast<int64_t>(width);
    if (!rows_fit || rows != batch * positions.size()) {
      return Mismatch(StrCat("shape of ", name, " in ", file_.path()), ShapeString(view.shape),
                      StrCat(batch, " sequences, each with ", positions.size(), " positions of ",
                             width, " logits"));
    }
    for (size_t b = 0; b < batch; ++b) {
      ExpectedLogits expected{batch == 1 ? name : StrCat(name, "[", b, "]"), {}, positions, {}, {}};
      expected.ids.assign(ids.begin() + Offset(b * length), ids.begin() + Offset((b + 1) * length));
      const size_t count = positions.size() * width;
      expected.logits.assign(logits.begin() + Offset(b * count),
                             logits.begin() + Offset((b + 1) * count));
      expected.columns = columns;
      out.logits.push_back(std::move(expected));
    }
    return {};
  }

  Status AddGreedy(const std::string& prompt_name, const std::string& name, Expected& out) const {
    if (!file_.Has(prompt_name) || !file_.Has(name)) return {};
    LOOKBACK_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, Ids(prompt_name));
    LOOKBACK_ASSIGN_OR_RETURN(std::vector<int32_t> ids, Ids(name));
    out.greedy.push_back({name, std::move(prompt), std::move(ids)});
    return {};
  }

 private:
  static std::ptrdiff_t Offset(size_t index) { return static_cast<std::ptrdiff_t>(index); }

  /// The named positions; without them all, or the last one if there is just one row.
  Result<std::vector<int64_t>> Positions(const std::string& name, int64_t length,
                                         size_t rows) const {
    if (!name.empty() && file_.Has(name)) {
      LOOKBACK_ASSIGN_OR_RETURN(std::vector<int64_t> positions, Ints(name, length));
      if (std::adjacent_find(positions.begin(), positions.end(), std::greater_equal<>()) ==
          positions.end()) {
        return positions;
      }
      return Mismatch(StrCat(name, " in ", file_.path()), "another order", "ascending positions");
    }
    if (rows == 1) return std::vector<int64_t>{length - 1};
    std::vector<int64_t> all(static_cast<size_t>(length));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  const SafetensorsFile& file_;
  int64_t vocab_;
};

/// The part of `name` between `before` and `after`, if it is of that form.
std::string Middle(std::string_view name, std::string_view before, std::string_view after) {
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after)) {
    return {};
  }
  name.remove_prefix(before.size());
  name.remove_suffix(after.size());
  return std::string(name);
}

}  // namespace

Result<Expected> ReadExpected(const std::string& path, int64_t vocab_size) {
  LOOKBACK_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
  const Reader reader(*file, vocab_size);
  Expected out;
  LOOKBACK_RETURN_IF_ERROR(reader.AddLogits("input_ids", "logits", "logit_positions", "", out));
  LOOKBACK_RETURN_IF_ERROR(
      reader.AddLogits("prompt", "static_logits", "static_positions", "", out));
  LOOKBACK_RETURN_IF_ERROR(reader.AddGreedy("greedy_prompt", "greedy", out));
  for (const auto& [tensor, entry] : file->entries()) {
    if (const std::string name = Middle(tensor, "", ".input_ids"); !name.empty()) {
      LOOKBACK_RETURN_IF_ERROR(reader.AddLogits(tensor, name + ".logits", "", "", out));
      LOOKBACK_RETURN_IF_ERROR(
          reader.AddLogits(tensor, name + ".top_logits", "", name + ".top_ids", out));
      LOOKBACK_RETURN_IF_ERROR(reader.AddGreedy(tensor, name + ".greedy_ids", out));
    }
    if (const std::string name = Middle(tensor, "prompt_", "_ids"); !name.empty()) {
      LOOKBACK_RETURN_IF_ERROR(reader.AddGreedy(tensor, StrCat("greedy_", name, "_ids"), out));
    }
  }
  if (!out.logits.empty() || !out.greedy.empty()) return out;
  return Mismatch(StrCat("tensors in ", path), "none that can be checked",
                  "input_ids with logits, or another pair that `lookback verify --help` names");
}

}  // namespace lookback::tools
