#include "tools/inspect.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>

#include "engine/checkpoint.h"
#include "engine/tensor_table.h"
#include "engine/weights.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "tools/windows_view.h"

namespace lookback::tools {

namespace {

constexpr int64_t kMaxContext = int64_t{1} << 31;

struct DTypeTotal {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

struct Inventory {
  int64_t parameters = 0;
  int64_t weight_tensors = 0;
  std::map<std::string, DTypeTotal> by_dtype;  ///< every tensor of the file, padding included
};

/// Counts the weights and checks that they are those of the config.
Result<Inventory> TakeInventory(const Checkpoint& checkpoint) {
  const SafetensorsFile& file = checkpoint.file();
  Inventory out;
  for (const auto& [name, entry] : file.entries()) {
    DTypeTotal& total = out.by_dtype[std::string(DTypeName(entry.dtype))];
    ++total.tensors;
    total.bytes += entry.end - entry.begin;
  }
  if (checkpoint.config().layers > static_cast<int64_t>(file.entries().size())) {
    return Mismatch(StrCat("layers in config of ", file.path()), checkpoint.config().layers,
                    StrCat("no more than the ", file.entries().size(), " tensors there are"));
  }
  LOOKBACK_RETURN_IF_ERROR(Weights::Load(checkpoint).status());
  for (const TensorSpec& spec : ModelTensors(checkpoint.config())) {
    ++out.weight_tensors;
    out.parameters += TensorView{DType::kF32, spec.shape, {}}.elements();
  }
  return out;
}

Json AtContext(const ModelConfig& config, int64_t context) {
  Json out = {{"context", context}, {"acr", config.windows.Acr(context)}};
  for (const auto& [name, bytes] : {std::pair{"bf16", 2}, std::pair{"f32", 4}}) {
    const KvBytes kv = SequenceKvBytes(config, context, bytes);
    out["kv_bytes"][name] = {{"windowed", kv.windowed}, {"full", kv.full}};
  }
  return out;
}

Json ToJson(const Checkpoint& checkpoint, const Inventory& inventory, int64_t context) {
  const ModelConfig& config = checkpoint.config();
  Json out = Json::object();
  out["file"] = checkpoint.file().path();
  out["file_bytes"] = checkpoint.file().file_bytes();
  out["hash"] = checkpoint.hash();
  out["format_version"] = kFormatVersion;
  out["config"] = config.ToJson();
  out["parameters"] = inventory.parameters;
  out["weight_tensors"] = inventory.weight_tensors;
  Json dtypes = Json::object();
  for (const auto& [name, total] : inventory.by_dtype) {
    dtypes[name] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  out["bytes_per_dtype"] = std::move(dtypes);
  out["tokenizer"] = checkpoint.tokenizer().ToJson();
  out["tokenizer"]["bytes"] = checkpoint.tokenizer_bytes().size();
  out["generation"] = checkpoint.generation().ToJson();
  out["windows"] = WindowJson(config.windows, TrainContext(config));
  out["at_train_context"] = AtContext(config, TrainContext(config));
  if (context > 0) out["at_context"] = AtContext(config, context);
  out["source"] = checkpoint.source();
  return out;
}

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string ContextText(const ModelConfig& config, int64_t context, std::string_view label) {
  std::string out =
      StrCat("at ", context, " tokens", label, ": ACR ", Fixed(config.windows.Acr(context), 3));
  for (const auto& [name, bytes] : {std::pair{"bf16", 2}, std::pair{"f32", 4}}) {
    const KvBytes kv = SequenceKvBytes(config, context, bytes);
    const double share = static_cast<double>(kv.windowed) / static_cast<double>(kv.full);
    out += StrCat("; KV ", name, " ", HumanBytes(kv.windowed), " of ", HumanBytes(kv.full), " (",
                  Fixed(100.0 * share, 1), "%)");
  }
  return out + " a sequence\n";
}

/// The provenance, one input a line. It is a stranger's JSON: what has another form is shown as it
/// is.
std::string SourceText(const Json& source) {
  const auto text = [](const Json& object, const char* key) -> std::string {
    const auto found = object.find(key);
    const auto* value = found == object.end() ? nullptr : found->get_ptr<const std::string*>();
    return value == nullptr ? "" : *value;
  };
  if (!source.is_object() || !source.contains("inputs") || !source["inputs"].is_array()) {
    return StrCat("source      ", DumpJson(source), "\n");
  }
  std::string out = StrCat("source      ", Quoted(text(source, "model_type")), " by ",
                           Quoted(text(source, "converter")), "\n");
  for (const Json& input : source["inputs"]) {
    if (!input.is_object()) continue;
    const int64_t bytes = input.contains("bytes") ? JsonInt(input["bytes"]).value_or(0) : 0;
    std::string name = Quoted(text(input, "name"));
    name = name.substr(1, name.size() - 2);
    out += StrCat("            ", name, ", ", HumanBytes(bytes), ", sha256 ",
                  Quoted(text(input, "sha256")).substr(1, 16), "…\n");
  }
  return out;
}

std::string ConfigText(const ModelConfig& config) {
  std::string out = StrCat("model       ", FamilyName(config.family), ", residual ",
                           ResidualModeName(config.residual));
  if (config.routing_sites() > 0) {
    out += StrCat(" (", config.routing_heads, " routing heads, ", config.routing_sites(), " sites",
                  config.has_blocks() ? StrCat(", ", config.routing_blocks, " blocks") : "",
                  config.gate != Gate::kNone ? StrCat(", gate ", GateName(config.gate)) : "",
                  config.null_source ? ", null source" : "", ")");
  }
  if (config.residual == ResidualMode::kHyperConnection) {
    out += StrCat(" (", config.hyper_streams, " streams)");
  }
  out += StrCat("\nsizes       ", config.layers, " layers, hidden ", config.hidden_size, ", ",
                config.heads, " query / ", config.kv_heads, " KV heads of ", config.head_dim,
                ", FFN ", config.ffn_size, ", vocabulary ", config.vocab_size,
                config.tied_embeddings ? " (tied)" : "", "\n");
  const Json json = config.ToJson();
  const std::string eps = DumpJson(json["norm_eps"]);
  out += config.gpt_style()
             ? StrCat("norm        LayerNorm, eps ", eps, "; learned positions, no RoPE\n")
             : StrCat("norm, RoPE  eps ", eps, ", ", DumpJson(json["rope"]), "\n");
  out += StrCat("switches    qk_norm ", config.qk_norm, ", attention_bias ", config.attention_bias,
                ", mlp_bias ", config.mlp_bias, "\n");
  return out + StrCat("context     ", config.train_context, " tokens\n");
}

std::string ToText(const Checkpoint& checkpoint, const Inventory& inventory, int64_t context,
                   bool colour) {
  const ModelConfig& config = checkpoint.config();
  const TokenizerInfo& tokenizer = checkpoint.tokenizer();
  std::string out = StrCat("file        ", Quoted(checkpoint.file().path()), ", ",
                           HumanBytes(checkpoint.file().file_bytes()), "\nhash        ",
                           checkpoint.hash(), "\n", ConfigText(config), "parameters  ",
                           inventory.parameters, " in ", inventory.weight_tensors, " tensors\n");
  for (const auto& [name, total] : inventory.by_dtype) {
    out += StrCat("            ", name, ": ", total.tensors, " tensors, ", HumanBytes(total.bytes),
                  "\n");
  }
  Json info = tokenizer.ToJson();
  info.erase("chat_template");
  out += StrCat("tokenizer   ", DumpJson(info),
                tokenizer.chat_template.empty() ? "" : " with a chat template", "\n");
  out += StrCat("generation  ", DumpJson(checkpoint.generation().ToJson()), "\n");
  out += SourceText(checkpoint.source());
  out += StrCat("windows     from ", Quoted(config.windows.source()), ", hash ",
                config.windows.Hash(), "\n");
  const int64_t train = TrainContext(config);
  out +=
      WindowText(config.windows) + HeatMap(config.windows, context > 0 ? context : train, colour);
  out += ContextText(config, train, " (training context)");
  if (context > 0) out += ContextText(config, context, "");
  return out;
}

}  // namespace

Result<std::string> InspectReport(const std::string& path, bool json, int64_t context,
                                  bool colour) {
  if (context < 0 || context > kMaxContext) {
    return Mismatch("--context", context, StrCat("an integer from 1 to ", kMaxContext));
  }
  LOOKBACK_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(path));
  LOOKBACK_ASSIGN_OR_RETURN(const Inventory inventory, TakeInventory(*checkpoint));
  if (json) return DumpJson(ToJson(*checkpoint, inventory, context), 1) + "\n";
  return ToText(*checkpoint, inventory, context, colour);
}

void AddInspect(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string path;
    bool json = false;
    int64_t context = 0;
  };
  CLI::App* command = app.add_subcommand("inspect", "Print what a lookback file holds");
  const auto flags = std::make_shared<Flags>();
  command->add_option("FILE", flags->path, "A lookback file")->required();
  command->add_flag("--json", flags->json, "Print one JSON document");
  command->add_option("--context", flags->context, "Also give ACR and KV bytes at this many tokens")
      ->check(CLI::Range(int64_t{1}, kMaxContext));
  command->footer(
      "Examples:\n"
      "  lookback inspect demo.safetensors\n"
      "  lookback inspect demo.safetensors --json --context 4096");
  command->callback([flags, &exit_code] {
    const Result<std::string> report =
        InspectReport(flags->path, flags->json, flags->context, IsColourTerminal(STDOUT_FILENO));
    if (report.ok()) std::fputs(report->c_str(), stdout);
    exit_code = Report(report.status());
  });
}

}  // namespace lookback::tools
