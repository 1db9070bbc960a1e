#include "engine/checkpoint.h"

#include <algorithm>

#include "engine/sha256.h"

namespace lookback {

namespace {

constexpr std::string_view kTokenizerTensor = "lookback.tokenizer";
constexpr std::string_view kPadPrefix = "lookback.pad.";
constexpr size_t kMaxStopIds = 1024;

/// A field of GenerationDefaults that is a number: key and range.
struct NumberDefault {
  std::string_view key;
  std::optional<double> GenerationDefaults::*field;
  double low;
  double high;
};

constexpr NumberDefault kNumberDefaults[] = {
    {"temperature", &GenerationDefaults::temperature, 0.0, 1000.0},
    {"top_p", &GenerationDefaults::top_p, 0.0, 1.0},
    {"min_p", &GenerationDefaults::min_p, 0.0, 1.0},
    {"typical_p", &GenerationDefaults::typical_p, 0.0, 1.0},
    {"repetition_penalty", &GenerationDefaults::repetition_penalty, 0.0, 1000.0},
};

Result<std::optional<int32_t>> ReadId(const JsonObject& object, std::string_view key) {
  if (object.Find(key) == nullptr) return std::optional<int32_t>();
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t id, object.Int(key, 0, kMaxInt32));
  return std::optional<int32_t>(static_cast<int32_t>(id));
}

Status CheckId(std::string_view what, int32_t id, int64_t vocab_size, const std::string& path) {
  if (id >= 0 && id < vocab_size) return {};
  return Mismatch(StrCat(what, " in the tokenizer metadata of ", path), id,
                  StrCat("an id from 0 to ", vocab_size - 1));
}

/// The JSON text under a metadata key; null if the key is absent.
Result<Json> MetadataJson(const SafetensorsFile& file, std::string_view key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return Json();
  return ParseJson(found->second, StrCat("metadata ", key, " of ", file.path()));
}

Status CheckFormat(const SafetensorsFile& file) {
  const auto value = [&](std::string_view key) -> std::string {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? "nothing" : Quoted(found->second);
  };
  if (value("format") != "\"lookback\"") {
    return Mismatch(StrCat("metadata format of ", file.path()), value("format"),
                    "\"lookback\" (a file made by `lookback convert`)");
  }
  if (value("format_version") != StrCat("\"", kFormatVersion, "\"")) {
    return Mismatch(StrCat("metadata format_version of ", file.path()), value("format_version"),
                    StrCat("\"", kFormatVersion, "\", the one this version of lookback reads"));
  }
  for (const auto& [name, entry] : file.entries()) {
    if (entry.begin % kTensorAlignment != 0 && !name.starts_with(kPadPrefix)) {
      return Mismatch(StrCat("tensor ", Quoted(name), " in ", file.path()),
                      StrCat("bytes from ", entry.begin),
                      StrCat("a start at a multiple of ", kTensorAlignment));
    }
  }
  return {};
}

}  // namespace

Json TokenizerInfo::ToJson() const {
  Json out = {{"kind", kind}, {"add_bos", add_bos}, {"add_eos", add_eos}, {"stop_ids", stop_ids}};
  if (bos_id) out["bos_id"] = *bos_id;
  if (eos_id) out["eos_id"] = *eos_id;
  if (!chat_template.empty()) out["chat_template"] = chat_template;
  return out;
}

Result<TokenizerInfo> TokenizerInfo::FromJson(const Json& json) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(json, "metadata tokenizer"));
  TokenizerInfo info;
  LOOKBACK_ASSIGN_OR_RETURN(info.kind, object.String("kind", ""));
  LOOKBACK_ASSIGN_OR_RETURN(info.add_bos, object.Bool("add_bos", false));
  LOOKBACK_ASSIGN_OR_RETURN(info.add_eos, object.Bool("add_eos", false));
  LOOKBACK_ASSIGN_OR_RETURN(info.bos_id, ReadId(object, "bos_id"));
  LOOKBACK_ASSIGN_OR_RETURN(info.eos_id, ReadId(object, "eos_id"));
  LOOKBACK_ASSIGN_OR_RETURN(info.chat_template, object.String("chat_template", ""));
  if (!info.kind.empty() && info.kind != "sentencepiece" && info.kind != "bpe") {
    return Mismatch("kind in metadata tokenizer", Quoted(info.kind),
                    "\"sentencepiece\" or \"bpe\"");
  }
  if (info.add_bos && !info.bos_id) {
    return Mismatch("bos_id in metadata tokenizer", "nothing", "an id, as add_bos is true");
  }
  if (info.add_eos && !info.eos_id) {
    return Mismatch("eos_id in metadata tokenizer", "nothing", "an id, as add_eos is true");
  }
  const Json* stops = object.Find("stop_ids");
  if (stops == nullptr) return info;
  if (!stops->is_array() || stops->size() > kMaxStopIds) {
    return Mismatch("stop_ids in metadata tokenizer", DescribeJson(*stops),
                    StrCat("an array of at most ", kMaxStopIds, " ids"));
  }
  for (const Json& element : *stops) {
    const std::optional<int64_t> id = JsonInt(element);
    if (!id || *id < 0 || *id > kMaxInt32) {
      return Mismatch("stop_ids in metadata tokenizer", DescribeJson(element), "an id");
    }
    info.stop_ids.push_back(static_cast<int32_t>(*id));
  }
  return info;
}

Json GenerationDefaults::ToJson() const {
  Json out = Json::object();
  for (const NumberDefault& row : kNumberDefaults) {
    if (this->*row.field) out[std::string(row.key)] = *(this->*row.field);
  }
  if (top_k) out["top_k"] = *top_k;
  return out;
}

Result<GenerationDefaults> GenerationDefaults::FromJson(const Json& json,
                                                        const std::string& where) {
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::From(json, where));
  GenerationDefaults defaults;
  for (const NumberDefault& row : kNumberDefaults) {
    if (object.Find(row.key) == nullptr) continue;
    LOOKBACK_ASSIGN_OR_RETURN(const double value, object.Number(row.key, row.low, row.high));
    defaults.*row.field = value;
  }
  if (defaults.repetition_penalty && !(*defaults.repetition_penalty > 0.0)) {
    return Mismatch(StrCat("repetition_penalty in ", where), *defaults.repetition_penalty,
                    "a number > 0");
  }
  if (object.Find("top_k") != nullptr) {
    LOOKBACK_ASSIGN_OR_RETURN(defaults.top_k, object.Int("top_k", 0, kMaxInt32));
  }
  return defaults;
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  LOOKBACK_ASSIGN_OR_RETURN(checkpoint->file_, SafetensorsFile::Open(path));
  LOOKBACK_RETURN_IF_ERROR(checkpoint->Read());
  return checkpoint;
}

Status Checkpoint::Read() {
  LOOKBACK_RETURN_IF_ERROR(CheckFormat(*file_));
  const std::string& path = file_->path();
  LOOKBACK_ASSIGN_OR_RETURN(const Json config, MetadataJson(*file_, "config"));
  Result<ModelConfig> model = ModelConfig::FromJson(config);
  if (!model.ok()) return std::move(model).status().WithPrefix(path);
  config_ = *std::move(model);

  LOOKBACK_ASSIGN_OR_RETURN(const Json windows, MetadataJson(*file_, "windows"));
  LOOKBACK_ASSIGN_OR_RETURN(config_.windows,
                            WindowTable::FromJson(windows, config_.layers, config_.heads,
                                                  StrCat("metadata windows of ", path)));

  LOOKBACK_ASSIGN_OR_RETURN(const Json tokenizer, MetadataJson(*file_, "tokenizer"));
  if (!tokenizer.is_null()) {
    Result<TokenizerInfo> info = TokenizerInfo::FromJson(tokenizer);
    if (!info.ok()) return std::move(info).status().WithPrefix(path);
    tokenizer_ = *std::move(info);
  }
  const int64_t vocab = config_.vocab_size;
  if (tokenizer_.bos_id) {
    LOOKBACK_RETURN_IF_ERROR(CheckId("bos_id", *tokenizer_.bos_id, vocab, path));
  }
  if (tokenizer_.eos_id) {
    LOOKBACK_RETURN_IF_ERROR(CheckId("eos_id", *tokenizer_.eos_id, vocab, path));
  }
  for (const int32_t id : tokenizer_.stop_ids) {
    LOOKBACK_RETURN_IF_ERROR(CheckId("stop_ids", id, vocab, path));
  }
  if (!tokenizer_.kind.empty()) {
    LOOKBACK_ASSIGN_OR_RETURN(const TensorView bytes, file_->Tensor(kTokenizerTensor));
    if (bytes.dtype != DType::kU8 || bytes.shape.size() != 1 || bytes.data.empty()) {
      return Mismatch(StrCat("tensor ", kTokenizerTensor, " in ", path),
                      StrCat(DTypeName(bytes.dtype), ShapeString(bytes.shape)),
                      "U8 of rank 1, not empty");
    }
  }

  LOOKBACK_ASSIGN_OR_RETURN(const Json generation, MetadataJson(*file_, "generation"));
  if (!generation.is_null()) {
    LOOKBACK_ASSIGN_OR_RETURN(
        generation_,
        GenerationDefaults::FromJson(generation, StrCat("metadata generation of ", path)));
  }
  LOOKBACK_ASSIGN_OR_RETURN(source_, MetadataJson(*file_, "source"));
  hash_ = Sha256Hex(file_->header());
  return {};
}

std::string_view Checkpoint::tokenizer_bytes() const {
  if (tokenizer_.kind.empty()) return {};
  const Result<TensorView> view = file_->Tensor(kTokenizerTensor);
  if (!view.ok()) return {};
  return {reinterpret_cast<const char*>(view->data.data()), view->data.size()};
}

}  // namespace lookback
