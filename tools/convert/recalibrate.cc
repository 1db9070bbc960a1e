#include "tools/convert/recalibrate.h"

#include <algorithm>
#include <utility>

#include "tools/convert/interrupt.h"
#include "tools/convert/output_file.h"

namespace lookback::tools {

namespace {

constexpr size_t kSliceBytes = size_t{4} << 20;

/// The settings that the file carries, with other choices where they are asked for.
Result<controller::Config> ConfigOf(const Checkpoint& checkpoint,
                                    const std::vector<int64_t>& window_choices) {
  LOOKBACK_ASSIGN_OR_RETURN(controller::Config config, controller::ReadConfig(checkpoint.file()));
  if (window_choices.empty()) return config;
  auto* adapter = std::get_if<controller::AdapterConfig>(&config);
  if (adapter == nullptr) {
    return Mismatch("--window-choices", "a list of windows",
                    "none: an AAH run's configuration has its own");
  }
  adapter->windows = window_choices;
  return config;
}

/// `fresh` with the sinks of `old`.
Result<WindowTable> WithSinksOf(const WindowTable& fresh, const WindowTable& old) {
  Json json = fresh.ToJson();
  json["sinks"] = old.ToJson()["sinks"];
  return WindowTable::FromJson(json, fresh.layers(), fresh.heads(), "calibrated windows");
}

/// Tensors of `file` that the copy keeps, in the file's order.
std::vector<std::string> KeptTensors(const SafetensorsFile& file) {
  std::vector<std::pair<int64_t, std::string>> kept;
  for (const auto& [name, entry] : file.entries()) {
    if (name.starts_with("lookback.pad.") || name.starts_with("lookback.golden.")) continue;
    kept.emplace_back(entry.begin, name);
  }
  std::sort(kept.begin(), kept.end());
  std::vector<std::string> names;
  for (auto& [begin, name] : kept) names.push_back(std::move(name));
  return names;
}

/// The metadata `controller` with the choices that were taken.
Result<std::string> ControllerMetadata(const SafetensorsFile& file,
                                       const controller::Config& config) {
  const std::string& text = file.metadata().find("controller")->second;
  const auto* adapter = std::get_if<controller::AdapterConfig>(&config);
  if (adapter == nullptr) return text;
  LOOKBACK_ASSIGN_OR_RETURN(Json json, ParseJson(text, "metadata controller"));
  json["kind"] = std::string(controller::kAdapterKind);
  json["window_choices"] = adapter->windows;
  json["control_interval"] = adapter->control_interval;
  return DumpJson(json);
}

Status Write(const RecalibrateOptions& options, const Checkpoint& checkpoint,
             const controller::Config& config, const WindowTable& table) {
  const SafetensorsFile& file = checkpoint.file();
  Golden golden = EmptyGolden(checkpoint.config());
  SafetensorsWriter writer(options.out);
  for (const auto& [key, value] : file.metadata()) writer.SetMetadata(key, value);
  writer.SetMetadata("windows", DumpJson(table.ToJson()));
  LOOKBACK_ASSIGN_OR_RETURN(std::string settings, ControllerMetadata(file, config));
  writer.SetMetadata("controller", std::move(settings));
  const std::vector<std::string> names = KeptTensors(file);
  for (const std::string& name : names) {
    const SafetensorsEntry& entry = file.entries().find(name)->second;
    writer.Declare(name, entry.dtype, entry.shape);
  }
  DeclareGolden(golden, writer);
  LOOKBACK_RETURN_IF_ERROR(writer.Begin());
  for (const std::string& name : names) {
    LOOKBACK_ASSIGN_OR_RETURN(const TensorView view, file.Tensor(name));
    for (size_t begin = 0; begin < view.data.size(); begin += kSliceBytes) {
      const size_t count = std::min(kSliceBytes, view.data.size() - begin);
      LOOKBACK_RETURN_IF_ERROR(writer.Append(view.data.subspan(begin, count)));
      if (options.on_progress) {
        options.on_progress("writing", writer.written_bytes(), writer.file_bytes());
      }
      LOOKBACK_RETURN_IF_ERROR(CheckInterrupt());
    }
  }
  LOOKBACK_RETURN_IF_ERROR(AppendGolden(golden, writer));
  LOOKBACK_RETURN_IF_ERROR(CheckInterrupt());
  return writer.Finish();
}

}  // namespace

Result<Calibration> Recalibrate(const RecalibrateOptions& options) {
  if (!options.out.empty()) {
    std::vector<std::string> inputs = {options.file};
    if (options.calibration.asked()) inputs.push_back(options.calibration.path());
    LOOKBACK_RETURN_IF_ERROR(CheckTarget(options.out, inputs));
  }
  LOOKBACK_ASSIGN_OR_RETURN(const auto model, LoadedModel::Open(options.file));
  const Checkpoint& checkpoint = *model->checkpoint;
  LOOKBACK_ASSIGN_OR_RETURN(const controller::Config config,
                            ConfigOf(checkpoint, options.window_choices));
  const AfterForward after = [&](int64_t index, int64_t forwards,
                                 const Calibrator& calibrator) -> Status {
    if (options.after_forward) {
      LOOKBACK_RETURN_IF_ERROR(options.after_forward(index, forwards, calibrator));
    }
    return CheckInterrupt();
  };
  LOOKBACK_ASSIGN_OR_RETURN(
      const std::unique_ptr<CalibrationIds> ids,
      OpenCalibrationIds(CalibrationText::Of(*model), config, options.calibration));
  LOOKBACK_ASSIGN_OR_RETURN(Calibration calibration,
                            Calibrate(checkpoint, config, options.calibration, *ids, after));
  LOOKBACK_ASSIGN_OR_RETURN(calibration.table,
                            WithSinksOf(calibration.table, checkpoint.config().windows));
  if (!options.out.empty()) {
    LOOKBACK_RETURN_IF_ERROR(Write(options, checkpoint, config, calibration.table));
  }
  return calibration;
}

}  // namespace lookback::tools
