#include "engine/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "engine/checkpoint.h"
#include "engine/json.h"

namespace lookback {

namespace {

constexpr size_t kMaxRank = 16;

struct RawEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<int64_t>> shape;
  std::optional<std::vector<int64_t>> offsets;
};

/// Reads {"__metadata__": {k: "v"}, "NAME": {"dtype": "F32", "shape": [..], "data_offsets": [b,
/// e]}} event by event: a header of 100 MB costs what its tensors cost, whatever else it nests.
class HeaderParser : public nlohmann::json_sax<Json> {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  std::vector<RawEntry> entries;
  std::map<std::string, std::string, std::less<>> metadata;
  Status status;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool /*value*/) override { return Unexpected("a boolean"); }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return Unexpected(Quoted(text));
  }
  bool binary(binary_t& /*value*/) override { return Unexpected("binary"); }
  bool number_integer(number_integer_t value) override { return Unexpected(StrCat(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr) return Unexpected(StrCat(value));
    if (value > static_cast<uint64_t>(INT64_MAX)) return Unexpected(StrCat(value));
    if (list_->size() == kMaxRank) return Unexpected(StrCat("more than ", kMaxRank, " numbers"));
    list_->push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) {
      if (metadata.emplace(key_, std::move(value)).second) return true;
      return Fail(Mismatch(StrCat("metadata in ", path_), StrCat("key ", Quoted(key_), " twice"),
                           "every key once"));
    }
    if (depth_ == 2 && key_ == "dtype" && !entries.back().dtype.has_value()) {
      entries.back().dtype = std::move(value);
      return true;
    }
    return Unexpected(Quoted(value));
  }

  bool start_object(size_t /*elements*/) override {
    if (depth_ == 0 || (depth_ == 1 && list_ == nullptr)) {
      if (depth_ == 1 && !in_metadata_) entries.push_back({std::move(key_), {}, {}, {}});
      ++depth_;
      return true;
    }
    return Unexpected("an object");
  }
  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) {
      const RawEntry& entry = entries.back();
      if (!entry.dtype || !entry.shape || !entry.offsets) {
        return Fail(Mismatch(StrCat("tensor ", Quoted(entry.name), " in ", path_),
                             StrCat("no ", !entry.dtype   ? "dtype"
                                           : !entry.shape ? "shape"
                                                          : "data_offsets"),
                             "dtype, shape and data_offsets"));
      }
    }
    --depth_;
    return true;
  }
  bool start_array(size_t /*elements*/) override {
    if (depth_ != 2 || in_metadata_ || list_ != nullptr) return Unexpected("an array");
    RawEntry& entry = entries.back();
    std::optional<std::vector<int64_t>>* list = key_ == "shape"          ? &entry.shape
                                                : key_ == "data_offsets" ? &entry.offsets
                                                                         : nullptr;
    if (list == nullptr || list->has_value()) return Unexpected("an array");
    list_ = &list->emplace();
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    if (depth_ == 1) {
      in_metadata_ = key_ == "__metadata__";
      if (in_metadata_ && std::exchange(saw_metadata_, true)) {
        return Fail(
            Mismatch(StrCat("header of ", path_), "key \"__metadata__\" twice", "every key once"));
      }
    }
    return true;
  }
  bool parse_error(size_t position, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return Fail(Mismatch(
        StrCat("header of ", path_),
        StrCat("a JSON syntax error at byte ", position, " near ", QuotedNear(text_, position)),
        "one JSON object in UTF-8"));
  }

 private:
  bool Fail(Status error) {
    status = std::move(error);
    return false;
  }
  bool Unexpected(const std::string& got) {
    if (depth_ == 0) return Fail(Mismatch(StrCat("header of ", path_), got, "a JSON object"));
    if (depth_ == 1) {
      return Fail(Mismatch(StrCat(Quoted(key_), " in the header of ", path_), got, "an object"));
    }
    if (in_metadata_) {
      return Fail(Mismatch(StrCat("metadata ", Quoted(key_), " in ", path_), got, "a string"));
    }
    return Fail(Mismatch(
        StrCat("key ", Quoted(key_), " of tensor ", Quoted(entries.back().name), " in ", path_),
        got,
        "dtype (a string), shape and data_offsets (at most 16 non-negative integers), each once"));
  }

  std::string_view text_;
  const std::string& path_;
  int depth_ = 0;
  bool in_metadata_ = false;
  bool saw_metadata_ = false;
  std::string key_;
  std::vector<int64_t>* list_ = nullptr;
};

/// Checks what one entry says of itself against a file with `data_bytes` bytes behind the header.
Result<SafetensorsEntry> CheckEntry(RawEntry& raw, int64_t data_begin, int64_t data_bytes,
                                    const std::string& path) {
  const auto what = [&](std::string_view field) {
    return StrCat(field, " of tensor ", Quoted(raw.name), " in ", path);
  };
  const std::optional<DType> dtype = ParseDType(*raw.dtype);
  if (!dtype) {
    return Mismatch(what("dtype"), Quoted(*raw.dtype),
                    "one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL");
  }
  const std::optional<int64_t> elements = CheckedElements(*raw.shape);
  if (!elements || *elements > INT64_MAX / DTypeBytes(*dtype)) {
    return Mismatch(what("shape"), ShapeString(*raw.shape), "fewer than 2^63 bytes");
  }
  if (raw.offsets->size() != 2) {
    return Mismatch(what("data_offsets"), StrCat(raw.offsets->size(), " numbers"), "2");
  }
  const int64_t begin = (*raw.offsets)[0];
  const int64_t end = (*raw.offsets)[1];
  if (begin > end || end > data_bytes) {
    return Mismatch(what("data_offsets"), ShapeString(*raw.offsets),
                    StrCat("begin <= end <= ", data_bytes, ", the bytes behind the header"));
  }
  if (end - begin != *elements * DTypeBytes(*dtype)) {
    return Mismatch(what("data_offsets"), StrCat(end - begin, " bytes"),
                    StrCat(*elements * DTypeBytes(*dtype), " for ", DTypeName(*dtype),
                           ShapeString(*raw.shape)));
  }
  return SafetensorsEntry{*dtype, *std::move(raw.shape), data_begin + begin, data_begin + end};
}

/// The tensors fill the bytes behind the header, in some order, without overlap or hole.
Status CheckLayout(const SafetensorsHeader& header, int64_t data_begin, int64_t file_bytes,
                   const std::string& path) {
  std::vector<std::pair<const std::string*, const SafetensorsEntry*>> order;
  order.reserve(header.entries.size());
  for (const auto& [name, entry] : header.entries) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  int64_t end = data_begin;
  for (const auto& [name, entry] : order) {
    if (entry->begin != end) {
      return Mismatch(StrCat("tensor ", Quoted(*name), " in ", path),
                      StrCat(entry->begin < end ? "an overlap" : "a hole", " at byte ",
                             std::min(entry->begin, end)),
                      StrCat("it to begin at byte ", end));
    }
    end = entry->end;
  }
  if (end == file_bytes) return {};
  return Mismatch(StrCat("size of ", path), StrCat(file_bytes, " bytes"),
                  StrCat(end, " from its header"));
}

}  // namespace

Result<int64_t> SafetensorsHeaderBytes(std::span<const std::byte> first, int64_t file_bytes,
                                       const std::string& path) {
  if (std::ssize(first) < kSafetensorsLengthBytes) {
    return Mismatch(StrCat("size of ", path), StrCat(file_bytes, " bytes"),
                    "a safetensors file, at least 8 bytes");
  }
  uint64_t length = 0;
  for (size_t i = kSafetensorsLengthBytes; i-- > 0;) {
    length = length << 8 | static_cast<uint64_t>(first[i]);
  }
  const int64_t limit = std::min(kMaxSafetensorsHeaderBytes, file_bytes - kSafetensorsLengthBytes);
  if (length <= static_cast<uint64_t>(limit)) return static_cast<int64_t>(length);
  return Mismatch(StrCat("header length in ", path), length,
                  StrCat("at most ", limit, " (the file has ", file_bytes, " bytes)"));
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t file_bytes,
                                                 const std::string& path) {
  if (json.empty() || json.front() != '{') {
    return Mismatch(StrCat("header of ", path), Quoted(json.substr(0, 16)), "a JSON object");
  }
  HeaderParser parser(json, path);
  const bool parsed = Json::sax_parse(json.begin(), json.end(), &parser);
  if (!parser.status.ok()) return parser.status;
  if (!parsed) return Mismatch(StrCat("header of ", path), "no JSON", "one JSON object");
  SafetensorsHeader header;
  header.metadata = std::move(parser.metadata);
  const int64_t data_begin = kSafetensorsLengthBytes + std::ssize(json);
  for (RawEntry& raw : parser.entries) {
    LOOKBACK_ASSIGN_OR_RETURN(SafetensorsEntry entry,
                              CheckEntry(raw, data_begin, file_bytes - data_begin, path));
    const auto [place, is_new] = header.entries.emplace(std::move(raw.name), std::move(entry));
    if (!is_new) {
      return Mismatch(StrCat("header of ", path), StrCat("tensor ", Quoted(place->first), " twice"),
                      "every tensor once");
    }
  }
  LOOKBACK_RETURN_IF_ERROR(CheckLayout(header, data_begin, file_bytes, path));
  return header;
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile());
  file->path_ = path;
  // O_NONBLOCK: opening a FIFO must not hang before fstat can refuse it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return IoError("cannot open", path, errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return IoError("cannot read", path, error);
  }
  if (!S_ISREG(info.st_mode) || info.st_size == 0) {
    ::close(fd);
    if (!S_ISREG(info.st_mode)) return Mismatch(path, "no regular file", "a safetensors file");
    return SafetensorsHeaderBytes({}, 0, path).status();
  }
  const auto bytes = static_cast<size_t>(info.st_size);
  void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (mapped == MAP_FAILED) return IoError("cannot map", path, error);
  file->mapped_ = {static_cast<const std::byte*>(mapped), bytes};
  LOOKBACK_ASSIGN_OR_RETURN(
      const int64_t length,
      SafetensorsHeaderBytes(file->mapped_.first(std::min(bytes, size_t{kSafetensorsLengthBytes})),
                             file->file_bytes(), path));
  file->json_ = {reinterpret_cast<const char*>(file->mapped_.data()) + kSafetensorsLengthBytes,
                 static_cast<size_t>(length)};
  LOOKBACK_ASSIGN_OR_RETURN(file->header_,
                            ParseSafetensorsHeader(file->json_, file->file_bytes(), path));
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (!mapped_.empty()) {
    ::munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
  }
}

Result<TensorView> SafetensorsFile::Tensor(std::string_view name) const {
  const auto found = entries().find(name);
  if (found == entries().end()) {
    return Status(StatusCode::kNotFound,
                  StrCat("tensor ", Quoted(name), " in ", path_, ": got none, expected one"));
  }
  const SafetensorsEntry& entry = found->second;
  return TensorView{entry.dtype, entry.shape,
                    mapped_.subspan(static_cast<size_t>(entry.begin),
                                    static_cast<size_t>(entry.end - entry.begin))};
}

Result<TensorView> SafetensorsFile::Tensor(std::string_view name, DType dtype,
                                           std::span<const int64_t> shape) const {
  LOOKBACK_ASSIGN_OR_RETURN(TensorView view, Tensor(name));
  if (view.dtype != dtype) {
    return Mismatch(StrCat("dtype of tensor ", Quoted(name), " in ", path_), DTypeName(view.dtype),
                    DTypeName(dtype));
  }
  if (!std::equal(view.shape.begin(), view.shape.end(), shape.begin(), shape.end())) {
    return Mismatch(StrCat("shape of tensor ", Quoted(name), " in ", path_),
                    ShapeString(view.shape), ShapeString(shape));
  }
  return view;
}

}  // namespace lookback
