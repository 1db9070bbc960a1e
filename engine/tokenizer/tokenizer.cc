#include "engine/tokenizer/tokenizer.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "engine/json.h"
#include "engine/tokenizer/sentencepiece_model.h"

namespace lookback {
namespace {

namespace fs = std::filesystem;

Result<std::string> ReadModelFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return IoError("open", path, errno);
  const std::streamoff size = in.tellg();
  if (size < 0 || size > kMaxTokenizerModelBytes) {
    return Mismatch(path, StrCat(size, " bytes"),
                    StrCat("a tokenizer.model of at most ", kMaxTokenizerModelBytes));
  }
  std::string bytes(static_cast<size_t>(size), '\0');
  in.seekg(0);
  if (!in.read(bytes.data(), size)) return IoError("read", path, EIO);
  return bytes;
}

// A safetensors file begins with the length of its JSON header; a SentencePiece model does not.
bool LooksLikeSafetensors(const std::string& path) {
  if (path.ends_with(".safetensors")) return true;
  std::ifstream in(path, std::ios::binary);
  char head[9] = {};
  return in.read(head, sizeof head) && head[8] == '{' && head[7] == 0 && head[6] == 0;
}

Result<std::unique_ptr<Tokenizer>> OpenModelFile(const std::string& path,
                                                 const std::optional<Json>& config,
                                                 TokenizerInfo* info) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string bytes, ReadModelFile(path));
  auto read = ReadSentencePieceInfo(bytes, config ? &*config : nullptr);
  if (!read.ok()) return std::move(read).status().WithPrefix(path);
  auto tokenizer = MakeSentencePieceTokenizer(bytes, *read);
  if (!tokenizer.ok()) return std::move(tokenizer).status().WithPrefix(path);
  if (info != nullptr) *info = *std::move(read);
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> OpenFolder(const std::string& path, TokenizerInfo* info) {
  const std::string model = (fs::path(path) / "tokenizer.model").string();
  const std::string config_path = (fs::path(path) / "tokenizer_config.json").string();
  std::error_code ignored;
  if (!fs::exists(model, ignored)) {
    return Status(StatusCode::kNotFound, StrCat(path, ": got no tokenizer.model, expected one"));
  }
  std::optional<Json> config;
  if (fs::exists(config_path, ignored)) {
    LOOKBACK_ASSIGN_OR_RETURN(config, ReadJsonFile(config_path));
  }
  return OpenModelFile(model, config, info);
}

}  // namespace

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  DecodeState state;
  std::string out;
  for (const int32_t id : ids) DecodeNext(state, id, skip_special, out);
  DecodeFlush(state, out);
  return out;
}

#ifndef LOOKBACK_HAVE_SENTENCEPIECE
Result<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(std::string_view /*model_bytes*/,
                                                              const TokenizerInfo& /*info*/) {
  return Status(StatusCode::kFailedPrecondition,
                "the tokenizer is a SentencePiece model and this lookback was built without "
                "SentencePiece (LOOKBACK_SENTENCEPIECE=OFF)");
}
#endif

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const Checkpoint& checkpoint) {
  const std::string_view bytes = checkpoint.tokenizer_bytes();
  if (bytes.empty()) return std::unique_ptr<Tokenizer>();
  const TokenizerInfo& info = checkpoint.tokenizer();
  if (info.kind != "sentencepiece") {
    return Status(StatusCode::kFailedPrecondition, StrCat("tokenizer: got kind ", Quoted(info.kind),
                                                          ", expected \"sentencepiece\""));
  }
  LOOKBACK_ASSIGN_OR_RETURN(auto tokenizer, MakeSentencePieceTokenizer(bytes, info));
  if (tokenizer->vocab_size() > checkpoint.config().vocab_size) {
    return Mismatch("lookback.tokenizer", StrCat(tokenizer->vocab_size(), " pieces"),
                    StrCat("at most ", checkpoint.config().vocab_size, " (vocab_size)"));
  }
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path, TokenizerInfo* info) {
  std::error_code error;
  if (fs::is_directory(path, error)) return OpenFolder(path, info);
  if (!fs::exists(path, error)) return IoError("open", path, ENOENT);
  if (!LooksLikeSafetensors(path)) return OpenModelFile(path, std::nullopt, info);
  LOOKBACK_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(path));
  auto tokenizer = LoadTokenizer(*checkpoint);
  if (!tokenizer.ok()) return std::move(tokenizer).status().WithPrefix(path);
  if (*tokenizer == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  StrCat(path, ": got a file without tokenizer, expected one with"));
  }
  if (info != nullptr) *info = checkpoint->tokenizer();
  return tokenizer;
}

}  // namespace lookback
