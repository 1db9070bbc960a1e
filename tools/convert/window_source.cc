#include "tools/convert/window_source.h"

#include <charconv>
#include <filesystem>
#include <limits>

#include "tools/convert/source_model.h"

namespace lookback::tools {

namespace {

/// A whole number, sign and all; nothing for other text. Too large for int64 counts as its maximum.
std::optional<int64_t> AsNumber(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.empty()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::numeric_limits<int64_t>::max();
  if (error != std::errc()) return std::nullopt;
  return value;
}

Result<ChosenWindows> ReadTable(const std::string& path, const ModelConfig& config) {
  LOOKBACK_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  LOOKBACK_ASSIGN_OR_RETURN(WindowTable table,
                            WindowTable::FromJson(json, config.layers, config.heads, path));
  const std::string name = std::filesystem::path(path).filename().string();
  table.set_source(table.source().empty() ? name : StrCat(name, ": ", table.source()));
  return ChosenWindows{std::move(table), path};
}

Result<ChosenWindows> ChooseTable(const WindowRequest& request, const std::string& folder,
                                  const SourceModel& model) {
  const ModelConfig& config = model.config;
  const std::string& asked = request.windows;
  if (asked == "full") {
    WindowTable table = WindowTable::Full(config.layers, config.heads);
    table.set_source("--windows full");
    return ChosenWindows{std::move(table), ""};
  }
  if (const std::optional<int64_t> tokens = AsNumber(asked)) {
    Result<WindowTable> table = WindowTable::Uniform(config.layers, config.heads, *tokens, 0,
                                                     StrCat("--windows ", *tokens));
    if (!table.ok()) return std::move(table).status().WithPrefix("--windows");
    return ChosenWindows{*std::move(table), ""};
  }
  if (asked.ends_with(".csv")) {
    LOOKBACK_ASSIGN_OR_RETURN(WindowTable table, ReadWindowCsv(asked, model.csv));
    return ChosenWindows{std::move(table), asked};
  }
  if (!asked.empty()) return ReadTable(asked, config);
  const std::string found = folder + "/windows.json";
  if (!folder.empty() && FileExists(found)) return ReadTable(found, config);
  if (!model.needs_windows.empty()) {
    return Mismatch("windows", StrCat("none (", model.needs_windows, ")"),
                    "--windows FILE.csv (the release's diagnostics), FILE.json, a number of tokens "
                    "for every head, or full; or --calibrate TEXT, to run the controller");
  }
  ChosenWindows chosen{config.windows, ""};
  chosen.table.set_source(model.windows_source.empty() ? "none in the source: every window full"
                                                       : model.windows_source);
  return chosen;
}

}  // namespace

Result<WindowTable> WithAskedSinks(const WindowRequest& request, WindowTable table) {
  if (!request.sinks) return table;
  if (*request.sinks < 0 || *request.sinks > std::numeric_limits<int32_t>::max()) {
    return Mismatch("--sinks", *request.sinks, "an integer from 0 to 2147483647");
  }
  WindowTable with_sinks = table.WithSinks(static_cast<int32_t>(*request.sinks));
  with_sinks.set_source(StrCat(table.source(), "; --sinks ", *request.sinks));
  return with_sinks;
}

Result<ChosenWindows> ChooseWindows(const WindowRequest& request, const std::string& folder,
                                    const SourceModel& model) {
  LOOKBACK_ASSIGN_OR_RETURN(ChosenWindows chosen, ChooseTable(request, folder, model));
  LOOKBACK_ASSIGN_OR_RETURN(chosen.table, WithAskedSinks(request, std::move(chosen.table)));
  return chosen;
}

}  // namespace lookback::tools
