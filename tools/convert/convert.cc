#include "tools/convert/convert.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "engine/checkpoint.h"
#include "engine/golden.h"
#include "engine/sha256.h"
#include "engine/tensor_table.h"
#include "tools/convert/interrupt.h"
#include "tools/convert/source_model.h"
#include "tools/convert/weight_copy.h"

namespace lookback::tools {

namespace {

namespace fs = std::filesystem;

constexpr size_t kHashSliceBytes = size_t{4} << 20;

/// One tensor to write: what the model wants, where it lies, how it is stored.
struct PlannedTensor {
  TensorSpec spec;
  SourceTensor source;
  DType target;
};

struct Plan {
  SourceModel model;
  std::vector<PlannedTensor> tensors;
  Golden golden;
  std::vector<std::string> inputs;  ///< paths
  std::vector<std::string> warnings;
};

Status CheckInterrupt() {
  if (PendingInterrupt() == 0) return {};
  return {StatusCode::kCancelled, "interrupted: nothing was written"};
}

Status CheckFolder(std::string_view what, const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return {};
  if (!fs::exists(status)) return IoError("cannot open", path, ENOENT);
  return Mismatch(StrCat(what, " ", path), "a file", "a Hugging Face folder");
}

/// OUT may be absent or a regular file that is none of the inputs.
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

DType TargetType(const TensorSpec& spec, DType source, WeightType weights) {
  if (spec.role == TensorSpec::kVector || weights == WeightType::kF32) return DType::kF32;
  if (weights == WeightType::kBF16 || source == DType::kBF16) return DType::kBF16;
  return DType::kF32;
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
  const DType target = TargetType(spec, source.dtype, type);
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
    LOOKBACK_RETURN_IF_ERROR(AddAahAdapter(options.adapter, model));
  }
  return model;
}

Result<Plan> MakePlan(const ConvertOptions& options) {
  Plan plan;
  LOOKBACK_ASSIGN_OR_RETURN(plan.model, ReadSource(options));
  SourceModel& model = plan.model;
  const bool folder = fs::is_directory(options.source);
  LOOKBACK_ASSIGN_OR_RETURN(
      ChosenWindows windows,
      ChooseWindows(options.windows, folder ? options.source : std::string(), model));
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

/// Reads one input to its end. Calls `after_slice` with the bytes of each slice.
template <typename AfterSlice>
Result<Json> HashInput(const std::string& path, AfterSlice after_slice) {
  LOOKBACK_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  std::vector<std::byte> buffer(kHashSliceBytes);
  Sha256 hash;
  const int64_t bytes = file.bytes();
  for (int64_t begin = 0; begin < bytes; begin += std::ssize(buffer)) {
    const int64_t count = std::min(std::ssize(buffer), bytes - begin);
    const std::span<std::byte> slice = std::span(buffer).first(static_cast<size_t>(count));
    LOOKBACK_RETURN_IF_ERROR(file.Read(begin, slice));
    hash.Update({reinterpret_cast<const char*>(slice.data()), slice.size()});
    LOOKBACK_RETURN_IF_ERROR(after_slice(count));
  }
  Json entry = {{"bytes", bytes}, {"sha256", hash.Finish()}};
  entry["name"] = fs::path(path).filename().string();
  return entry;
}

/// The `source` metadata: what the file was made from, without the place it lay in.
Result<Json> DescribeSource(const Plan& plan, const ConvertOptions& options) {
  int64_t total = 0;
  for (const std::string& path : plan.inputs) {
    std::error_code ignored;
    const auto size = fs::file_size(path, ignored);
    if (!ignored) total += static_cast<int64_t>(size);
  }
  int64_t done = 0;
  Json inputs = Json::array();
  for (const std::string& path : plan.inputs) {
    LOOKBACK_ASSIGN_OR_RETURN(Json entry, HashInput(path, [&](int64_t bytes) {
                                done += bytes;
                                if (options.on_progress) {
                                  options.on_progress("hashing", done, std::max(done, total));
                                }
                                return CheckInterrupt();
                              }));
    inputs.push_back(std::move(entry));
  }
  Json source = {{"converter", "lookback " LOOKBACK_VERSION}};
  source["model_type"] = plan.model.model_type;
  source["inputs"] = std::move(inputs);
  return source;
}

void Declare(const Plan& plan, const Json& source, SafetensorsWriter& writer) {
  const ModelConfig& config = plan.model.config;
  const HfTokenizer& tokenizer = plan.model.tokenizer;
  writer.SetMetadata("format", "lookback");
  writer.SetMetadata("format_version", StrCat(kFormatVersion));
  writer.SetMetadata("config", DumpJson(config.ToJson()));
  writer.SetMetadata("windows", DumpJson(config.windows.ToJson()));
  writer.SetMetadata("tokenizer", DumpJson(tokenizer.info.ToJson()));
  writer.SetMetadata("generation", DumpJson(plan.model.generation.defaults.ToJson()));
  writer.SetMetadata("source", DumpJson(source));
  if (!plan.model.controller_metadata.is_null()) {
    writer.SetMetadata("controller", DumpJson(plan.model.controller_metadata));
  }
  for (const PlannedTensor& tensor : plan.tensors) {
    writer.Declare(tensor.spec.name, tensor.target, tensor.spec.shape);
  }
  if (!tokenizer.bytes.empty()) {
    writer.Declare("lookback.tokenizer", DType::kU8, {std::ssize(tokenizer.bytes)});
  }
  const Golden& golden = plan.golden;
  const int64_t positions = std::ssize(golden.positions);
  writer.Declare("lookback.golden.ids", DType::kI32, {std::ssize(golden.ids)});
  writer.Declare("lookback.golden.positions", DType::kI32, {positions});
  writer.Declare("lookback.golden.top_ids", DType::kI32, {positions, golden.top});
  writer.Declare("lookback.golden.top_logits", DType::kF32, {positions, golden.top});
}

/// Runs the model from the file as far as it is written, which proves too that the file loads.
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

}  // namespace

Result<WeightType> ParseWeightType(std::string_view name) {
  if (name == "keep") return WeightType::kKeep;
  if (name == "f32") return WeightType::kF32;
  if (name == "bf16") return WeightType::kBF16;
  const bool later = name == "q8" || name == "q4";
  return Mismatch("--weights", Quoted(name),
                  StrCat("keep, f32 or bf16",
                         later ? " (this version cannot write quantized weights yet)" : ""));
}

Result<ConvertReport> Convert(const ConvertOptions& options) {
  LOOKBACK_ASSIGN_OR_RETURN(Plan plan, MakePlan(options));
  LOOKBACK_ASSIGN_OR_RETURN(const Json source, DescribeSource(plan, options));
  SafetensorsWriter writer(options.out);
  Declare(plan, source, writer);
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
  const auto start = std::chrono::steady_clock::now();
  LOOKBACK_RETURN_IF_ERROR(AppendGolden(plan.golden, writer));
  const std::chrono::duration<double> golden = std::chrono::steady_clock::now() - start;
  LOOKBACK_RETURN_IF_ERROR(after_slice(0));
  LOOKBACK_RETURN_IF_ERROR(writer.Finish());
  return ConvertReport{writer.file_bytes(), std::ssize(plan.tensors), golden.count(),
                       std::move(plan.warnings)};
}

}  // namespace lookback::tools
