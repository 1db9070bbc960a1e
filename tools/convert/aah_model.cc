// The AAH release's own checkpoints, and its adapters on Hugging Face models (aah.md sections 1 and
// 5).
#include <algorithm>
#include <filesystem>

#include "tools/convert/source_model.h"
#include "tools/convert/torch_file.h"

namespace lookback::tools {

namespace {

namespace fs = std::filesystem;

constexpr float kLayerNormEps = 1e-5F;
constexpr std::string_view kControllerPrefix = "lookback.controller.";

constexpr int64_t kAdapterChoices = 4;

/// Networks that choose windows; the forward pass never reads them.
constexpr std::string_view kNativeControllers[] = {
    ".attn.controller.", ".attn.joint_sibling_scorer.", ".attn.pairwise_bias."};
/// What an adapter's tensors have in their names, once a layer.
constexpr std::string_view kAdapterController = ".self_attn.aah_state.controller.";

/// The run's YAML: what --config says, else the one beside the checkpoint.
Result<std::string> FindConfig(const std::string& checkpoint, const std::string& given) {
  if (!given.empty()) return given;
  const fs::path parent = fs::path(checkpoint).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".yaml" || extension == ".yml") found.push_back(entry.path().string());
  }
  if (found.size() == 1) return found.front();
  return Mismatch(StrCat("configuration beside ", checkpoint),
                  found.empty() ? "no .yaml file" : StrCat(found.size(), " .yaml files"),
                  "one, or --config FILE.yaml");
}

/// All tensors of `torch`, as a source that reads the same file.
Result<WeightSource> SourceOf(const TorchFile& torch) {
  WeightSource source;
  source.where = torch.file().path();
  LOOKBACK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(source.where));
  source.files.push_back(std::make_unique<InputFile>(std::move(file)));
  source.inputs.push_back(source.where);
  for (const auto& [name, tensor] : torch.tensors()) {
    source.tensors.try_emplace(
        name, SourceTensor{tensor.dtype, tensor.shape, source.files.back().get(), tensor.offset});
  }
  return source;
}

/// The output head must be the embedding itself, as the release ties them.
Status CheckTied(const WeightSource& weights) {
  const auto head = weights.tensors.find("lm_head.weight");
  const auto embedding = weights.tensors.find("wte.weight");
  if (head == weights.tensors.end() || head->second.offset == embedding->second.offset) return {};
  return Mismatch(StrCat("lm_head.weight in ", weights.where), "a tensor of its own",
                  "the storage of wte.weight");
}

Result<ModelConfig> ConfigOf(const AahRun& run, const WeightSource& weights) {
  LOOKBACK_ASSIGN_OR_RETURN(const SourceTensor embedding, weights.Find("wte.weight"));
  if (embedding.shape.size() != 2) {
    return Mismatch(StrCat("shape of wte.weight in ", weights.where), ShapeString(embedding.shape),
                    "[vocabulary, width]");
  }
  ModelConfig config;
  config.family = Family::kAahGpt;
  config.vocab_size = embedding.shape[0];
  config.hidden_size = run.width;
  config.layers = run.layers;
  config.heads = config.kv_heads = run.heads;
  config.head_dim = run.width / run.heads;
  config.ffn_size = run.ffn;
  config.train_context = run.seq_len;
  config.norm_eps = kLayerNormEps;
  config.mlp_bias = true;
  config.tied_embeddings = true;
  Status valid = config.Validate();
  if (!valid.ok()) return std::move(valid).WithPrefix(run.path);
  return config;
}

Status ReadSidecar(const std::string& checkpoint, const AahRun& run, SourceModel& source) {
  const std::string path = checkpoint + ".meta.json";
  if (!FileExists(path)) {
    source.warnings.push_back(
        StrCat("there is no ", path, ": nothing shows that ", run.path, " is this run's"));
    return {};
  }
  LOOKBACK_RETURN_IF_ERROR(ReadAahSidecar(path, run).status());
  source.inputs.push_back(path);
  return {};
}

/// Moves the tensors that `is_controller` picks from the weights to the controller's.
template <typename IsController>
void TakeController(WeightSource& weights, const IsController& is_controller,
                    std::vector<ControllerTensor>& controller) {
  for (auto tensor = weights.tensors.begin(); tensor != weights.tensors.end();) {
    if (!is_controller(tensor->first)) {
      ++tensor;
      continue;
    }
    controller.push_back({StrCat(kControllerPrefix, tensor->first), tensor->second});
    tensor = weights.tensors.erase(tensor);
  }
}

bool IsNativeController(std::string_view name) {
  return std::any_of(std::begin(kNativeControllers), std::end(kNativeControllers),
                     [&](std::string_view part) { return name.find(part) != name.npos; });
}

/// "layers.L.REST" from the adapter's "…layers.L.self_attn.aah_state.controller.REST"; empty if the
/// name is none of an adapter on a model of that many layers.
std::string AdapterName(std::string_view name, int64_t layers) {
  const size_t split = name.find(kAdapterController);
  if (split == name.npos) return {};
  const std::string_view rest = name.substr(split + kAdapterController.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string place = StrCat("layers.", layer);
    if (name.substr(0, split).ends_with(place)) return StrCat(place, ".", rest);
  }
  return {};
}

/// Every layer has the two Linears of the controller, of one width.
Status CheckAdapter(const WeightSource& adapter, int64_t layers) {
  static constexpr int64_t kFeatures = 8;
  int64_t hidden = 0;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string net = StrCat("layers.", layer, ".net.");
    LOOKBACK_ASSIGN_OR_RETURN(const SourceTensor first, adapter.Find(net + "0.weight"));
    if (layer == 0 && !first.shape.empty()) hidden = first.shape[0];
    const std::pair<const char*, std::vector<int64_t>> expected[] = {
        {"0.weight", {hidden, kFeatures}},
        {"0.bias", {hidden}},
        {"2.weight", {kAdapterChoices, hidden}},
        {"2.bias", {kAdapterChoices}}};
    for (const auto& [name, shape] : expected) {
      LOOKBACK_ASSIGN_OR_RETURN(const SourceTensor tensor, adapter.Find(net + name));
      if (tensor.shape == shape) continue;
      return Mismatch(StrCat("shape of ", net, name, " in ", adapter.where),
                      ShapeString(tensor.shape), ShapeString(shape));
    }
  }
  const auto expected = static_cast<size_t>(4 * layers);
  if (adapter.tensors.size() == expected) return {};
  return Mismatch(StrCat("tensors in ", adapter.where), adapter.tensors.size(),
                  StrCat(expected, ": two Linears in each of ", layers, " layers"));
}

/// What an adapter's file does not say: which windows its choices are, and how often it updates.
Status AddAdapterSettings(const std::string& path, const ConvertOptions& options, Json& metadata) {
  const std::string where = StrCat("metadata of ", path);
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(metadata, where));
  LOOKBACK_ASSIGN_OR_RETURN(controller::AdapterConfig config,
                            controller::ReadAdapterConfig(object));
  if (!options.window_choices.empty()) config.windows = options.window_choices;
  if (std::ssize(config.windows) != kAdapterChoices) {
    return Mismatch("--window-choices", StrCat(config.windows.size(), " windows"),
                    StrCat(kAdapterChoices, ", as the adapter's networks have outputs"));
  }
  metadata["kind"] = std::string(controller::kAdapterKind);
  metadata["window_choices"] = config.windows;
  metadata["control_interval"] = config.control_interval;
  return {};
}

}  // namespace

Result<SourceModel> ReadAahModel(const ConvertOptions& options) {
  SourceModel source;
  if (!options.window_choices.empty()) {
    return Mismatch("--window-choices", "a list of windows",
                    "none: an AAH run's configuration has its own");
  }
  LOOKBACK_ASSIGN_OR_RETURN(const std::string config_path,
                            FindConfig(options.source, options.aah_config));
  LOOKBACK_ASSIGN_OR_RETURN(const AahRun run, ReadAahRun(config_path));
  source.inputs.push_back(config_path);
  for (const std::string& key : run.unknown_keys) {
    source.warnings.push_back(StrCat(key, " in ", config_path, " is not known and has no effect"));
  }
  if (options.calibration.asked()) {
    LOOKBACK_RETURN_IF_ERROR(controller::CheckRunnable(run, "aah_v3_", config_path));
  }
  LOOKBACK_RETURN_IF_ERROR(ReadSidecar(options.source, run, source));
  LOOKBACK_ASSIGN_OR_RETURN(const TorchFile torch, TorchFile::Open(options.source));
  LOOKBACK_ASSIGN_OR_RETURN(source.weights, SourceOf(torch));
  LOOKBACK_ASSIGN_OR_RETURN(source.config, ConfigOf(run, source.weights));
  LOOKBACK_RETURN_IF_ERROR(CheckTied(source.weights));
  TakeController(source.weights, IsNativeController, source.controller);
  source.model_type = "aah-gpt";
  source.csv = WindowCsvModel::Of(run);
  source.controller_metadata = run.ToJson();
  if (const std::optional<WindowTable> fixed = FixedWindows(run)) {
    source.config.windows = *fixed;
    source.windows_source = fixed->source();
    if (!run.full_attention() && !run.apply_window_control) {
      source.warnings.push_back(StrCat(
          "window control is off in ", config_path, ": the release gives every head a window of ",
          "the sequence's length where that is a choice, else the smallest; the table is that of ",
          run.seq_len, " tokens, as in training (--windows N takes another)"));
    }
  } else {
    source.config.windows = WindowTable::Full(source.config.layers, source.config.heads);
    source.needs_windows = "they are the controller's output, which no checkpoint holds";
  }
  if (options.tokenizer_folder.empty()) {
    source.tokenizer.warning =
        "no --tokenizer FOLDER was given: the file will serve token ids only";
    return source;
  }
  HfModel model;
  model.config = source.config;
  LOOKBACK_ASSIGN_OR_RETURN(source.tokenizer,
                            ReadHfTokenizer(options.tokenizer_folder, model, source.generation));
  return source;
}

Status AddAahAdapter(const ConvertOptions& options, SourceModel& source) {
  const std::string& path = options.adapter;
  if (source.config.residual != ResidualMode::kAdditive || source.config.gpt_style()) {
    return Mismatch("base of --adapter", Quoted(source.model_type), "a qwen3 or llama model");
  }
  LOOKBACK_ASSIGN_OR_RETURN(const TorchFile torch, TorchFile::Open(path));
  LOOKBACK_ASSIGN_OR_RETURN(WeightSource adapter, SourceOf(torch));
  std::map<std::string, SourceTensor, std::less<>> renamed;
  for (const auto& [name, tensor] : adapter.tensors) {
    std::string short_name = AdapterName(name, source.config.layers);
    if (short_name.empty()) {
      return Mismatch(
          StrCat("tensor ", Quoted(name), " in ", path), "an unknown tensor",
          StrCat("…layers.L", kAdapterController, "net.*, L below ", source.config.layers));
    }
    if (!renamed.emplace(short_name, tensor).second) {
      return Mismatch(StrCat("tensor ", Quoted(name), " in ", path), "a second one of its layer",
                      "one");
    }
  }
  adapter.tensors = std::move(renamed);
  LOOKBACK_RETURN_IF_ERROR(CheckAdapter(adapter, source.config.layers));
  LOOKBACK_ASSIGN_OR_RETURN(source.controller_metadata, torch.Metadata("metadata"));
  LOOKBACK_RETURN_IF_ERROR(AddAdapterSettings(path, options, source.controller_metadata));
  TakeController(
      adapter, [](std::string_view) { return true; }, source.controller);
  for (auto& file : adapter.files) source.weights.files.push_back(std::move(file));
  source.inputs.push_back(path);
  source.needs_windows = "the adapter's controller chooses them while it runs";
  return {};
}

}  // namespace lookback::tools
