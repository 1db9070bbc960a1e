#include "tools/convert/hf_source.h"

#include <algorithm>
#include <set>
#include <span>

#include "engine/json.h"
#include "engine/safetensors.h"

namespace lookback::tools {

namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxShards = 4096;

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

Status AddShard(const std::string& name, WeightSource& source) {
  const std::string path = StrCat(source.where, "/", name);
  LOOKBACK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  LOOKBACK_ASSIGN_OR_RETURN(const std::string first,
                            file.ReadString(0, std::min(file.bytes(), kSafetensorsLengthBytes)));
  LOOKBACK_ASSIGN_OR_RETURN(
      const int64_t length,
      SafetensorsHeaderBytes(std::as_bytes(std::span(first)), file.bytes(), path));
  LOOKBACK_ASSIGN_OR_RETURN(const std::string json,
                            file.ReadString(kSafetensorsLengthBytes, length));
  LOOKBACK_ASSIGN_OR_RETURN(const SafetensorsHeader header,
                            ParseSafetensorsHeader(json, file.bytes(), path));
  source.files.push_back(std::make_unique<InputFile>(std::move(file)));
  source.inputs.push_back(path);
  for (const auto& [tensor, entry] : header.entries) {
    const auto [place, is_new] = source.tensors.try_emplace(
        tensor, SourceTensor{entry.dtype, entry.shape, source.files.back().get(), entry.begin});
    if (!is_new) {
      return Mismatch(StrCat("tensor ", Quoted(tensor), " in ", source.where),
                      StrCat("one in ", place->second.file->path(), " and one in ", path), "one");
    }
  }
  return {};
}

Status AddIndex(WeightSource& source) {
  const std::string path = StrCat(source.where, "/", kIndexFile);
  LOOKBACK_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  LOOKBACK_ASSIGN_OR_RETURN(const JsonObject index, JsonObject::From(json, path));
  const Json* map = index.Find("weight_map");
  if (map == nullptr || !map->is_object() || map->empty()) {
    return Mismatch(StrCat("weight_map in ", path), map == nullptr ? "nothing" : DescribeJson(*map),
                    "an object of tensor names and file names");
  }
  std::set<std::string> shards;
  for (const auto& [tensor, value] : map->items()) {
    const auto* shard = value.get_ptr<const std::string*>();
    if (shard == nullptr || !IsPlainFileName(*shard)) {
      return Mismatch(StrCat("weight_map ", Quoted(tensor), " in ", path), DescribeJson(value),
                      "the name of a file in the same folder");
    }
    shards.insert(*shard);
    if (shards.size() > kMaxShards) {
      return Mismatch(StrCat("weight_map in ", path), StrCat("more than ", kMaxShards, " files"),
                      StrCat("at most ", kMaxShards));
    }
  }
  source.inputs.push_back(path);
  for (const std::string& shard : shards) LOOKBACK_RETURN_IF_ERROR(AddShard(shard, source));
  for (const auto& [tensor, value] : map->items()) {
    const std::string file = StrCat(source.where, "/", *value.get_ptr<const std::string*>());
    const auto found = source.tensors.find(tensor);
    if (found == source.tensors.end() || found->second.file->path() != file) {
      return Mismatch(StrCat("weight_map ", Quoted(tensor), " in ", path), StrCat("none in ", file),
                      "that tensor in that file");
    }
  }
  return {};
}

}  // namespace

Result<WeightSource> OpenHfWeights(const std::string& folder) {
  WeightSource source;
  source.where = folder;
  if (FileExists(StrCat(folder, "/", kSingleFile))) {
    LOOKBACK_RETURN_IF_ERROR(AddShard(std::string(kSingleFile), source));
    return source;
  }
  if (FileExists(StrCat(folder, "/", kIndexFile))) {
    LOOKBACK_RETURN_IF_ERROR(AddIndex(source));
    return source;
  }
  const std::string expected = StrCat(kSingleFile, " or ", kIndexFile);
  for (const std::string_view other : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!FileExists(StrCat(folder, "/", other))) continue;
    return Mismatch(StrCat("weights in ", folder), other,
                    StrCat(expected, " (save the model as safetensors)"));
  }
  return Status(StatusCode::kNotFound,
                StrCat("weights in ", folder, ": got none, expected ", expected));
}

}  // namespace lookback::tools
