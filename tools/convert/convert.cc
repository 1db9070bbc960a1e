#include "tools/convert/convert.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "engine/checkpoint.h"
#include "engine/golden.h"
#include "engine/quantize.h"
#include "engine/tensor_table.h"
#include "tools/convert/calibrate.h"
#include "tools/convert/input_hash.h"
#include "tools/convert/interrupt.h"
#include "tools/convert/output_file.h"
#include "tools/convert/source_model.h"
#include "tools/convert/weight_copy.h"

namespace lookback::tools {

namespace {

namespace fs = std::filesystem;

/// One tensor to write: what the model wants, where it lies, how it is stored.
struct PlannedTensor {
  TensorSpec spec;
  SourceTensor source;
  kernels::Element target;
};

struct Plan {
  SourceModel model;
  std::vector<PlannedTensor> tensors;
  Golden golden;
  std::vector<std::string> inputs;  ///< paths
  std::vector<std::string> warnings;
  /// Where the windows are yet to be found, and only their place is kept.
  std::optional<controller::Config> controller;
  std::unique_ptr<CalibrationIds> calibration_ids;
};

Status CheckFolder(std::string_view what, const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return {};
  if (!fs::exists(status)) return IoError("cannot open", path, ENOENT);
  return Mismatch(StrCat(what, " ", path), "a file", "a Hugging Face folder");
}

kernels::Element TargetType(const TensorSpec& spec, DType source, WeightType weights) {
  using kernels::Element;
  switch (weights) {
    case WeightType::kKeep:
      return StoredType(spec, source == DType::kBF16 ? Element::kBF16 : Element::kF32);
    case WeightType::kF32:
      return StoredType(spec, Element::kF32);
    case WeightType::kBF16:
      return StoredType(spec, Element::kBF16);
    case WeightType::kQ8:
      return StoredType(spec, Element::kQ8);
    case WeightType::kQ4:
      return StoredType(spec, Element::kQ4);
  }
  return Element::kF32;
}

/// How `source` becomes the tensor `spec`, if its dtype and shape allow.
Result<PlannedTensor> PlanTensor(const TensorSpec& spec, SourceTensor source, WeightType type) {
  const auto what = [&](std::string_view property) {
    return StrCat(property, " of tensor ", Quoted(spec.name), " in ", source.file->path());
  };
  if (source.dtype != DType::kF32 && source.dtype != DType::kBF16 && source.dtype != DType::kF16) {
    return Mismatch(what("dtype"), DTypeName(source.dtype), "F32, F16 or BF16");
  }
  // A gate's number is 0-d in one class of the release and [1] in the other.
  const bool number = source.shape.empty() && spec.shape == std::vector<int64_t>{1};
  if (source.shape != spec.shape && !number) {
    return Mismatch(what("shape"), ShapeString(source.shape),
                    StrCat(ShapeString(spec.shape), " from the configuration"));
  }
  const kernels::Element target = TargetType(spec, source.dtype, type);
  return PlannedTensor{spec, std::move(source), target};
}

Result<std::vector<PlannedTensor>> PlanTensors(const ModelConfig& config,
                                               const WeightSource& weights, WeightType type) {
  // A config of a few bytes can ask for far more tensors than the folder has.
  if (config.layers > static_cast<int64_t>(weights.tensors.size())) {
    return Mismatch(config.gpt_style() ? "model.n_layer" : "num_hidden_layers in config.json",
                    config.layers,
                    StrCat("no more than the ", weights.tensors.size(), " tensors there are"));
  }
  std::vector<PlannedTensor> plan;
  std::vector<std::string_view> wanted;
  for (const TensorSpec& spec : ModelTensors(config)) {
    LOOKBACK_ASSIGN_OR_RETURN(SourceTensor source, weights.Find(spec.name));
    LOOKBACK_ASSIGN_OR_RETURN(PlannedTensor planned, PlanTensor(spec, std::move(source), type));
    plan.push_back(std::move(planned));
  }
  for (const PlannedTensor& tensor : plan) wanted.push_back(tensor.spec.name);
  std::sort(wanted.begin(), wanted.end());
  for (const auto& [name, tensor] : weights.tensors) {
    if (std::binary_search(wanted.begin(), wanted.end(), std::string_view(name)) ||
        IsIgnoredTensor(config, name)) {
      continue;
    }
    return Mismatch(StrCat("tensor ", Quoted(name), " in ", tensor.file->path()),
                    "an unknown tensor",
                    StrCat("only those of a ", FamilyName(config.family), " model, mode ",
                           ResidualModeName(config.residual), ", with these switches"));
  }
  return plan;
}

Result<SourceModel> ReadSource(const ConvertOptions& options) {
  if (!options.tokenizer_folder.empty()) {
    LOOKBACK_RETURN_IF_ERROR(CheckFolder("--tokenizer", options.tokenizer_folder));
  }
  if (options.source.ends_with(".pt") || options.source.ends_with(".pth")) {
    if (options.adapter.empty()) return ReadAahModel(options);
    return Mismatch("source of --adapter", Quoted(options.source), "a Hugging Face folder");
  }
  LOOKBACK_RETURN_IF_ERROR(CheckFolder("source", options.source));
  if (!options.aah_config.empty()) {
    return Mismatch("--config", Quoted(options.aah_config),
                    "none with a Hugging Face folder: it is for .pt files");
  }
  LOOKBACK_ASSIGN_OR_RETURN(SourceModel model, ReadHfModel(options));
  if (!options.adapter.empty()) {
    LOOKBACK_RETURN_IF_ERROR(AddAahAdapter(options, model));
  }
  return model;
}

/// A table that takes as much room in the file's header as any that a calibration can make.
WindowTable LargestTable(const ModelConfig& config) {
  constexpr size_t kSourceBytes = 4096;
  Result<WindowTable> table =
      WindowTable::Uniform(config.layers, config.heads, std::numeric_limits<int32_t>::max(),
                           std::numeric_limits<int32_t>::max(), std::string(kSourceBytes, '.'));
  LOOKBACK_CHECK(table.ok());
  table->set_train_context(std::numeric_limits<int32_t>::max());
  return *std::move(table);
}

/// Where the windows come from the controller: its settings, and the ids that it is to run over. A
/// run with full attention has no controller to ask.
Status PlanCalibration(const ConvertOptions& options, Plan& plan) {
  const SourceModel& model = plan.model;
  if (!options.calibration.asked()) return {};
  if (!options.windows.windows.empty()) {
    return Mismatch("--windows", Quoted(options.windows.windows),
                    "none with --calibrate: the controller chooses the windows");
  }
  if (model.controller_metadata.is_null()) {
    return Mismatch("--calibrate", StrCat("a plain ", model.model_type, " model"),
                    "a model with an AAH controller: a .pt of the release, or --adapter");
  }
  if (model.csv.full_attention) {
    plan.warnings.push_back("the run has full attention: there was nothing to calibrate");
    return {};
  }
  LOOKBACK_ASSIGN_OR_RETURN(
      plan.controller,
      controller::ParseConfig(model.controller_metadata, StrCat("controller of ", options.source)));
  const CalibrationText text = {model.tokenizer.tokenizer.get(), "the file will carry none",
                                model.config.train_context};
  LOOKBACK_ASSIGN_OR_RETURN(plan.calibration_ids,
                            OpenCalibrationIds(text, *plan.controller, options.calibration));
  return {};
}

Result<Plan> MakePlan(const ConvertOptions& options) {
  Plan plan;
  LOOKBACK_ASSIGN_OR_RETURN(plan.model, ReadSource(options));
  SourceModel& model = plan.model;
  const bool folder = fs::is_directory(options.source);
  LOOKBACK_RETURN_IF_ERROR(PlanCalibration(options, plan));
  ChosenWindows windows;
  if (plan.controller) {
    windows = {LargestTable(model.config), options.calibration.path()};
  } else {
    LOOKBACK_ASSIGN_OR_RETURN(
        windows, ChooseWindows(options.windows, folder ? options.source : std::string(), model));
  }
  model.config.windows = std::move(windows.table);
  LOOKBACK_ASSIGN_OR_RETURN(plan.tensors,
                            PlanTensors(model.config, model.weights, options.weights));
  for (ControllerTensor& tensor : model.controller) {
    const TensorSpec spec{tensor.name, tensor.source.shape, TensorSpec::kVector};
    LOOKBACK_ASSIGN_OR_RETURN(PlannedTensor planned,
                              PlanTensor(spec, std::move(tensor.source), options.weights));
    plan.tensors.push_back(std::move(planned));
  }
  plan.golden = EmptyGolden(model.config);
  if (!model.tokenizer.warning.empty()) plan.warnings.push_back(model.tokenizer.warning);
  plan.warnings.insert(plan.warnings.end(), model.warnings.begin(), model.warnings.end());
  plan.inputs = model.inputs;
  for (const auto* paths :
       {&model.weights.inputs, &model.generation.inputs, &model.tokenizer.inputs}) {
    plan.inputs.insert(plan.inputs.end(), paths->begin(), paths->end());
  }
  if (!windows.input_path.empty()) plan.inputs.push_back(windows.input_path);
  LOOKBACK_RETURN_IF_ERROR(CheckTarget(options.out, plan.inputs));
  return plan;
}

/// One of `inputs` in the `source` metadata, without the place it lay in.
Json InputEntry(const std::string& path, int64_t bytes, std::string sha256) {
  return {{"name", fs::path(path).filename().string()},
          {"bytes", bytes},
          {"sha256", std::move(sha256)}};
}

/// The entries of all inputs, hashed by a thread of its own while the weights are copied.
class InputHashes {
 public:
  explicit InputHashes(const std::vector<std::string>& paths)
      : hashes_(std::async(std::launch::async, [this, paths] { return HashAll(paths); })) {}
  ~InputHashes() { stop_ = true; }  // the future waits
  InputHashes(const InputHashes&) = delete;
  InputHashes& operator=(const InputHashes&) = delete;

  Result<Json> Wait() { return hashes_.get(); }

 private:
  Result<Json> HashAll(const std::vector<std::string>& paths) const {
    Json inputs = Json::array();
    for (const std::string& path : paths) {
      LOOKBACK_ASSIGN_OR_RETURN(Json entry, Hash(path));
      inputs.push_back(std::move(entry));
    }
    return inputs;
  }

  Result<Json> Hash(const std::string& path) const {
    int64_t bytes = 0;
    LOOKBACK_ASSIGN_OR_RETURN(std::string hash, HashFile(path, [&](int64_t slice) -> Status {
                                bytes += slice;
                                if (stop_) return {StatusCode::kCancelled, "stopped"};
                                return CheckInterrupt();
                              }));
    return InputEntry(path, bytes, std::move(hash));
  }

  std::atomic<bool> stop_ = false;
  std::future<Result<Json>> hashes_;  // last: its thread uses the others
};

/// The `source` metadata: what the file was made from.
std::string DescribeSource(const Plan& plan, Json inputs) {
  Json source = {{"converter", "lookback " LOOKBACK_VERSION}};
  source["model_type"] = plan.model.model_type;
  source["inputs"] = std::move(inputs);
  return DumpJson(source);
}

/// As long as the description with the hashes will be.
std::string SourcePlaceholder(const Plan& plan) {
  Json inputs = Json::array();
  for (const std::string& path : plan.inputs) {
    std::error_code ignored;
    const auto bytes = static_cast<int64_t>(fs::file_size(path, ignored));
    inputs.push_back(InputEntry(path, bytes, std::string(64, '0')));
  }
  return DescribeSource(plan, std::move(inputs));
}

void Declare(const Plan& plan, const std::string& source, SafetensorsWriter& writer) {
  const ModelConfig& config = plan.model.config;
  const HfTokenizer& tokenizer = plan.model.tokenizer;
  writer.SetMetadata("format", "lookback");
  writer.SetMetadata("format_version", StrCat(kFormatVersion));
  writer.SetMetadata("config", DumpJson(config.ToJson()));
  writer.SetMetadata("windows", DumpJson(config.windows.ToJson()));
  writer.SetMetadata("tokenizer", DumpJson(tokenizer.info.ToJson()));
  writer.SetMetadata("generation", DumpJson(plan.model.generation.defaults.ToJson()));
  writer.SetMetadata("source", source);
  if (!plan.model.controller_metadata.is_null()) {
    writer.SetMetadata("controller", DumpJson(plan.model.controller_metadata));
  }
  for (const PlannedTensor& tensor : plan.tensors) {
    DeclareWeights(tensor.spec.name, tensor.spec.shape, tensor.target, writer);
  }
  if (!tokenizer.bytes.empty()) {
    writer.Declare("lookback.tokenizer", DType::kU8, {std::ssize(tokenizer.bytes)});
  }
  DeclareGolden(plan.golden, writer);
}

/// Runs the controller from the file as far as it is written, and puts the table in its place.
Result<Calibration> CalibrateWritten(const ConvertOptions& options, const Plan& plan,
                                     SafetensorsWriter& writer) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string written, writer.Preview());
  LOOKBACK_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(written));
  const AfterForward after = [&](int64_t index, int64_t forwards, const Calibrator& /*done*/) {
    if (options.on_calibration) options.on_calibration(index + 1, forwards);
    return CheckInterrupt();
  };
  Result<Calibration> calibration =
      Calibrate(*checkpoint, *plan.controller, options.calibration, *plan.calibration_ids, after);
  if (!calibration.ok()) {
    // The path in it is that of a file that nobody will find.
    Status status = std::move(calibration).status();
    std::string message = status.message();
    const size_t at = message.find(written);
    if (at != message.npos) message.replace(at, written.size(), options.source);
    return Status(status.code(), std::move(message));
  }
  LOOKBACK_ASSIGN_OR_RETURN(calibration->table,
                            WithAskedSinks(options.windows, std::move(calibration->table)));
  LOOKBACK_RETURN_IF_ERROR(
      writer.ReplaceMetadata("windows", DumpJson(calibration->table.ToJson())));
  return calibration;
}

}  // namespace

Result<WeightType> ParseWeightType(std::string_view name) {
  if (name == "keep") return WeightType::kKeep;
  if (name == "f32") return WeightType::kF32;
  if (name == "bf16") return WeightType::kBF16;
  if (name == "q8") return WeightType::kQ8;
  if (name == "q4") return WeightType::kQ4;
  return Mismatch("--weights", Quoted(name), "keep, f32, bf16, q8 or q4");
}

Result<ConvertReport> Convert(const ConvertOptions& options) {
  LOOKBACK_ASSIGN_OR_RETURN(Plan plan, MakePlan(options));
  InputHashes hashes(plan.inputs);
  const std::string placeholder = SourcePlaceholder(plan);
  SafetensorsWriter writer(options.out);
  Declare(plan, placeholder, writer);
  LOOKBACK_RETURN_IF_ERROR(writer.Begin());
  const auto after_slice = [&](int64_t /*bytes*/) {
    if (options.on_progress) {
      options.on_progress("writing", writer.written_bytes(), writer.file_bytes());
    }
    return CheckInterrupt();
  };
  for (const PlannedTensor& tensor : plan.tensors) {
    LOOKBACK_RETURN_IF_ERROR(
        CopyWeights(tensor.spec.name, tensor.source, tensor.target, writer, after_slice));
  }
  LOOKBACK_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(plan.model.tokenizer.bytes))));
  LOOKBACK_RETURN_IF_ERROR(after_slice(0));
  std::optional<Calibration> calibration;
  if (plan.controller) {
    LOOKBACK_ASSIGN_OR_RETURN(calibration, CalibrateWritten(options, plan, writer));
  }
  const auto start = std::chrono::steady_clock::now();
  LOOKBACK_RETURN_IF_ERROR(AppendGolden(plan.golden, writer));
  const std::chrono::duration<double> golden = std::chrono::steady_clock::now() - start;
  LOOKBACK_RETURN_IF_ERROR(after_slice(0));
  LOOKBACK_ASSIGN_OR_RETURN(Json inputs, hashes.Wait());
  std::string source = DescribeSource(plan, std::move(inputs));
  if (source.size() != placeholder.size()) {
    return Mismatch("the inputs", "other sizes than at the start",
                    "files that do not change while they are converted");
  }
  LOOKBACK_RETURN_IF_ERROR(writer.ReplaceMetadata("source", std::move(source)));
  LOOKBACK_RETURN_IF_ERROR(writer.Finish());
  return ConvertReport{writer.file_bytes(), std::ssize(plan.tensors), golden.count(),
                       std::move(calibration), std::move(plan.warnings)};
}

}  // namespace lookback::tools
