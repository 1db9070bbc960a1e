#include "tools/convert/hf_source.h"

#include <filesystem>
#include <set>

#include "engine/json.h"

namespace lookback::tools {

namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxShards = 4096;

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

Result<HfSource> HfSource::Open(const std::string& folder) {
  HfSource source;
  source.folder_ = folder;
  if (Exists(StrCat(folder, "/", kSingleFile))) {
    LOOKBACK_RETURN_IF_ERROR(source.OpenShard(std::string(kSingleFile)));
    return source;
  }
  if (Exists(StrCat(folder, "/", kIndexFile))) {
    LOOKBACK_RETURN_IF_ERROR(source.OpenIndex());
    return source;
  }
  const std::string expected = StrCat(kSingleFile, " or ", kIndexFile);
  for (const std::string_view other : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!Exists(StrCat(folder, "/", other))) continue;
    return Mismatch(StrCat("weights in ", folder), other,
                    StrCat(expected, " (this version cannot read PyTorch files yet)"));
  }
  return Status(StatusCode::kNotFound,
                StrCat("weights in ", folder, ": got none, expected ", expected));
}

Status HfSource::OpenShard(const std::string& name) {
  LOOKBACK_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file,
                            SafetensorsFile::Open(StrCat(folder_, "/", name)));
  for (const auto& [tensor, entry] : file->entries()) {
    const auto [place, is_new] = tensors_.emplace(tensor, file.get());
    if (!is_new) {
      return Mismatch(StrCat("tensor ", Quoted(tensor), " in ", folder_),
                      StrCat("one in ", place->second->path(), " and one in ", file->path()),
                      "one");
    }
  }
  files_.push_back(std::move(file));
  file_names_.push_back(name);
  return {};
}

Status HfSource::OpenIndex() {
  const std::string path = StrCat(folder_, "/", kIndexFile);
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
  file_names_.emplace_back(kIndexFile);
  for (const std::string& shard : shards) LOOKBACK_RETURN_IF_ERROR(OpenShard(shard));
  for (const auto& [tensor, value] : map->items()) {
    const std::string file = StrCat(folder_, "/", *value.get_ptr<const std::string*>());
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() || found->second->path() != file) {
      return Mismatch(StrCat("weight_map ", Quoted(tensor), " in ", path), StrCat("none in ", file),
                      "that tensor in that file");
    }
  }
  return {};
}

Result<HfSource::Located> HfSource::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return Status(StatusCode::kNotFound,
                  StrCat("tensor ", Quoted(name), " in ", folder_, ": got none, expected one"));
  }
  LOOKBACK_ASSIGN_OR_RETURN(TensorView view, found->second->Tensor(name));
  return Located{found->second, std::move(view)};
}

}  // namespace lookback::tools
