#include "tools/convert/convert.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "engine/checkpoint.h"
#include "engine/sha256.h"
#include "engine/tensor_table.h"
#include "tools/convert/hf_config.h"
#include "tools/convert/hf_source.h"
#include "tools/convert/hf_tokenizer.h"
#include "tools/convert/interrupt.h"
#include "tools/convert/weight_copy.h"

namespace lookback::tools {

namespace {

namespace fs = std::filesystem;

constexpr size_t kHashSliceBytes = size_t{4} << 20;

/// One tensor to write: what the model wants, where it lies, how it is stored.
struct PlannedTensor {
  TensorSpec spec;
  HfSource::Located source;
  DType target;
};

struct Plan {
  HfModel model;
  HfSource weights;
  std::vector<PlannedTensor> tensors;
  HfGeneration generation;
  HfTokenizer tokenizer;
  std::vector<std::string> inputs;  ///< paths
  std::vector<std::string> warnings;
};

Status CheckInterrupt() {
  if (PendingInterrupt() == 0) return {};
  return {StatusCode::kCancelled, "interrupted: nothing was written"};
}

Status CheckSourceFolder(const std::string& source) {
  std::error_code error;
  const fs::file_status status = fs::status(source, error);
  if (fs::is_directory(status)) return {};
  if (!fs::exists(status)) return IoError("cannot open", source, ENOENT);
  const bool pickled = source.ends_with(".pt") || source.ends_with(".pth");
  return Mismatch(StrCat("source ", source), "a file",
                  pickled ? "a Hugging Face folder (this version cannot read .pt files yet)"
                          : "a Hugging Face folder");
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

Result<std::vector<PlannedTensor>> PlanTensors(const ModelConfig& config, const HfSource& weights,
                                               WeightType type) {
  // A config of a few bytes can ask for far more tensors than the folder has.
  if (config.layers > static_cast<int64_t>(weights.tensors().size())) {
    return Mismatch("num_hidden_layers in config.json", config.layers,
                    StrCat("no more than the ", weights.tensors().size(), " tensors there are"));
  }
  std::vector<PlannedTensor> plan;
  std::vector<std::string_view> wanted;
  for (TensorSpec& spec : ModelTensors(config)) {
    LOOKBACK_ASSIGN_OR_RETURN(HfSource::Located source, weights.Find(spec.name));
    const DType dtype = source.view.dtype;
    if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
      return Mismatch(StrCat("dtype of tensor ", Quoted(spec.name), " in ", source.file->path()),
                      DTypeName(dtype), "F32, F16 or BF16");
    }
    if (source.view.shape != spec.shape) {
      return Mismatch(StrCat("shape of tensor ", Quoted(spec.name), " in ", source.file->path()),
                      ShapeString(source.view.shape),
                      StrCat(ShapeString(spec.shape), " from config.json"));
    }
    const DType target = TargetType(spec, dtype, type);
    plan.push_back({std::move(spec), std::move(source), target});
  }
  for (const PlannedTensor& tensor : plan) wanted.push_back(tensor.spec.name);
  std::sort(wanted.begin(), wanted.end());
  for (const auto& [name, file] : weights.tensors()) {
    if (std::binary_search(wanted.begin(), wanted.end(), std::string_view(name)) ||
        IsIgnoredTensor(config, name)) {
      continue;
    }
    return Mismatch(StrCat("tensor ", Quoted(name), " in ", file->path()), "an unknown tensor",
                    StrCat("only those of a ", FamilyName(config.family), " model, mode ",
                           ResidualModeName(config.residual), ", with these switches"));
  }
  return plan;
}

/// True where a value anywhere under a key that contains `mixed_partition` says yes.
bool SaysMixedPartition(const Json& json, bool under_key) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      const bool named = key.find("mixed_partition") != std::string::npos;
      if (SaysMixedPartition(value, under_key || named)) return true;
    }
    return false;
  }
  if (json.is_array()) {
    return std::any_of(json.begin(), json.end(),
                       [&](const Json& element) { return SaysMixedPartition(element, under_key); });
  }
  if (!under_key || json.is_null()) return false;
  if (json.is_boolean()) return *json.get_ptr<const bool*>();
  if (json.is_string()) return !json.get_ptr<const std::string*>()->empty();
  return JsonNumber(json).value_or(0.0) != 0.0;
}

Status WarnOfMixedPartition(const std::string& folder, std::vector<std::string>& warnings) {
  const std::string path = folder + "/training_manifest.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  LOOKBACK_ASSIGN_OR_RETURN(const Json manifest, ReadJsonFile(path));
  if (SaysMixedPartition(manifest, false)) {
    warnings.push_back(StrCat(path,
                              " names mixed_partition: a network trained that way has no "
                              "other trace and is not what this file will compute"));
  }
  return {};
}

Result<Plan> MakePlan(const ConvertOptions& options) {
  LOOKBACK_RETURN_IF_ERROR(CheckSourceFolder(options.source));
  Plan plan;
  const std::string config_path = options.source + "/config.json";
  LOOKBACK_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(config_path));
  LOOKBACK_ASSIGN_OR_RETURN(plan.model, ReadHfConfig(config, config_path));
  plan.inputs.push_back(config_path);
  LOOKBACK_ASSIGN_OR_RETURN(plan.generation,
                            ReadHfGeneration(options.source, plan.model.config.vocab_size));
  LOOKBACK_ASSIGN_OR_RETURN(ChosenWindows windows,
                            ChooseWindows(options.windows, options.source, plan.model));
  plan.model.config.windows = std::move(windows.table);
  const std::string& tokenizer_folder =
      options.tokenizer_folder.empty() ? options.source : options.tokenizer_folder;
  if (!options.tokenizer_folder.empty()) {
    LOOKBACK_RETURN_IF_ERROR(CheckSourceFolder(options.tokenizer_folder));
  }
  LOOKBACK_ASSIGN_OR_RETURN(plan.tokenizer,
                            ReadHfTokenizer(tokenizer_folder, plan.model, plan.generation));
  if (!plan.tokenizer.warning.empty()) plan.warnings.push_back(plan.tokenizer.warning);
  LOOKBACK_RETURN_IF_ERROR(WarnOfMixedPartition(options.source, plan.warnings));
  LOOKBACK_ASSIGN_OR_RETURN(plan.weights, HfSource::Open(options.source));
  LOOKBACK_ASSIGN_OR_RETURN(plan.tensors,
                            PlanTensors(plan.model.config, plan.weights, options.weights));

  for (const std::string& name : plan.weights.file_names()) {
    plan.inputs.push_back(options.source + "/" + name);
  }
  const auto append = [&](const std::vector<std::string>& paths) {
    plan.inputs.insert(plan.inputs.end(), paths.begin(), paths.end());
  };
  append(plan.generation.inputs);
  append(plan.tokenizer.inputs);
  if (!windows.input_path.empty()) plan.inputs.push_back(windows.input_path);
  LOOKBACK_RETURN_IF_ERROR(CheckTarget(options.out, plan.inputs));
  return plan;
}

/// Reads one input to its end. Calls `after_slice` with the bytes of each slice.
template <typename AfterSlice>
Result<Json> HashInput(const std::string& path, AfterSlice after_slice) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return IoError("cannot open", path, errno);
  std::string buffer(kHashSliceBytes, '\0');
  Sha256 hash;
  int64_t bytes = 0;
  Status status;
  while (status.ok()) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) status = IoError("cannot read", path, errno);
    if (count <= 0) break;
    hash.Update(std::string_view(buffer).substr(0, static_cast<size_t>(count)));
    bytes += count;
    status = after_slice(count);
  }
  ::close(fd);
  if (!status.ok()) return status;
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
  writer.SetMetadata("format", "lookback");
  writer.SetMetadata("format_version", StrCat(kFormatVersion));
  writer.SetMetadata("config", DumpJson(config.ToJson()));
  writer.SetMetadata("windows", DumpJson(config.windows.ToJson()));
  writer.SetMetadata("tokenizer", DumpJson(plan.tokenizer.info.ToJson()));
  writer.SetMetadata("generation", DumpJson(plan.generation.defaults.ToJson()));
  writer.SetMetadata("source", DumpJson(source));
  for (const PlannedTensor& tensor : plan.tensors) {
    writer.Declare(tensor.spec.name, tensor.target, tensor.spec.shape);
  }
  if (!plan.tokenizer.bytes.empty()) {
    writer.Declare("lookback.tokenizer", DType::kU8,
                   {static_cast<int64_t>(plan.tokenizer.bytes.size())});
  }
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
  LOOKBACK_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(plan.tokenizer.bytes))));
  LOOKBACK_RETURN_IF_ERROR(after_slice(0));
  LOOKBACK_RETURN_IF_ERROR(writer.Finish());
  return ConvertReport{writer.file_bytes(), static_cast<int64_t>(plan.tensors.size()),
                       std::move(plan.warnings)};
}

}  // namespace lookback::tools
