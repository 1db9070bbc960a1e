#include "tools/convert/output_file.h"

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <span>

#include "engine/engine.h"

namespace lookback::tools {

namespace fs = std::filesystem;

Status CheckTarget(const std::string& out, const std::vector<std::string>& inputs) {
  std::error_code error;
  const fs::file_status status = fs::status(out, error);
  if (!fs::exists(status)) {
    if (!fs::path(out).filename().empty()) return {};
    return Mismatch(StrCat("output ", out), "a folder's name", "a file's name");
  }
  if (fs::is_directory(status))
    return Mismatch(StrCat("output ", out), "a folder", "a file's name");
  if (!fs::is_regular_file(status)) {
    return Mismatch(StrCat("output ", out), "no regular file", "a file's name");
  }
  for (const std::string& input : inputs) {
    if (!fs::equivalent(out, input, error)) continue;
    return Mismatch(StrCat("output ", out), StrCat("the input ", input), "another file");
  }
  return {};
}

void DeclareGolden(const Golden& golden, SafetensorsWriter& writer) {
  const int64_t positions = std::ssize(golden.positions);
  writer.Declare("lookback.golden.ids", DType::kI32, {std::ssize(golden.ids)});
  writer.Declare("lookback.golden.positions", DType::kI32, {positions});
  writer.Declare("lookback.golden.top_ids", DType::kI32, {positions, golden.top});
  writer.Declare("lookback.golden.top_logits", DType::kF32, {positions, golden.top});
}

Status AppendGolden(Golden& golden, SafetensorsWriter& writer) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string written, writer.Preview());
  LOOKBACK_ASSIGN_OR_RETURN(const auto model, LoadedModel::Open(written));
  LOOKBACK_RETURN_IF_ERROR(ComputeGolden(model, golden));
  for (const float logit : golden.top_logits) {
    if (std::isfinite(logit)) continue;
    return Mismatch("logits of the converted model", logit, "finite numbers");
  }
  for (const auto bytes :
       {std::as_bytes(std::span(golden.ids)), std::as_bytes(std::span(golden.positions)),
        std::as_bytes(std::span(golden.top_ids)), std::as_bytes(std::span(golden.top_logits))}) {
    LOOKBACK_RETURN_IF_ERROR(writer.Append(bytes));
  }
  return {};
}

}  // namespace lookback::tools
