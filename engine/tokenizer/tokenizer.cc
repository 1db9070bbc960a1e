#include "engine/tokenizer/tokenizer.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "engine/json.h"
#include "engine/tokenizer/bpe_tokenizer.h"
#include "engine/tokenizer/sentencepiece_model.h"
#include "engine/tokenizer/tokenizer_files.h"

namespace lookback {
namespace {

namespace fs = std::filesystem;

// A safetensors file begins with the length of its JSON header; a SentencePiece model does not.
bool LooksLikeSafetensors(const std::string& path) {
  if (path.ends_with(".safetensors")) return true;
  std::ifstream in(path, std::ios::binary);
  char head[9] = {};
  return in.read(head, sizeof head) && head[8] == '{' && head[7] == 0 && head[6] == 0;
}

Result<std::unique_ptr<Tokenizer>> OpenSentencePiece(const std::string& bytes, const Json* config,
                                                     TokenizerInfo& info) {
  LOOKBACK_ASSIGN_OR_RETURN(info, ReadSentencePieceInfo(bytes, config));
  return MakeSentencePieceTokenizer(bytes, info);
}

Result<std::unique_ptr<Tokenizer>> OpenBpe(TokenizerJson json, const Json* config,
                                           TokenizerInfo& info) {
  LOOKBACK_ASSIGN_OR_RETURN(info, ReadBpeInfo(json, config));
  return BuildBpeTokenizer(std::move(json), info);
}

Result<std::unique_ptr<Tokenizer>> OpenFolder(const std::string& path, TokenizerInfo& info) {
  LOOKBACK_ASSIGN_OR_RETURN(TokenizerFiles files, FindTokenizerFiles(path));
  if (files.kind.empty()) {
    return Status(StatusCode::kNotFound,
                  StrCat(path,
                         ": got no tokenizer.json, tokenizer.model or vocab.json with "
                         "merges.txt, expected one"));
  }
  const std::string config_path = (fs::path(path) / "tokenizer_config.json").string();
  std::optional<Json> config;
  if (FileExists(config_path)) {
    LOOKBACK_ASSIGN_OR_RETURN(config, ReadJsonFile(config_path));
  }
  const Json* settings = config ? &*config : nullptr;
  auto tokenizer = files.json ? OpenBpe(*std::move(files.json), settings, info)
                              : OpenSentencePiece(files.bytes, settings, info);
  if (!tokenizer.ok()) return std::move(tokenizer).status().WithPrefix(files.path);
  return tokenizer;
}

// A tokenizer.json is a JSON object; a SentencePiece model does not begin with a brace.
Result<std::unique_ptr<Tokenizer>> OpenFile(const std::string& path, TokenizerInfo& info) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(path, kMaxTokenizerModelBytes));
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool json = path.ends_with(".json") || (first != std::string::npos && bytes[first] == '{');
  Result<std::unique_ptr<Tokenizer>> tokenizer = std::unique_ptr<Tokenizer>();
  if (json) {
    TokenizerJsonResult read = ParseTokenizerJson(bytes);
    if (!read.parsed.ok()) return std::move(read.parsed).status().WithPrefix(path);
    tokenizer = OpenBpe(*std::move(read.parsed), nullptr, info);
  } else {
    tokenizer = OpenSentencePiece(bytes, nullptr, info);
  }
  if (!tokenizer.ok()) return std::move(tokenizer).status().WithPrefix(path);
  return tokenizer;
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
  LOOKBACK_ASSIGN_OR_RETURN(auto tokenizer, info.kind == "bpe"
                                                ? MakeBpeTokenizer(bytes, info)
                                                : MakeSentencePieceTokenizer(bytes, info));
  if (tokenizer->vocab_size() > checkpoint.config().vocab_size) {
    return Mismatch("lookback.tokenizer", StrCat(tokenizer->vocab_size(), " pieces"),
                    StrCat("at most ", checkpoint.config().vocab_size, " (vocab_size)"));
  }
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path, TokenizerInfo* info) {
  TokenizerInfo read;
  TokenizerInfo& filled = info != nullptr ? *info : read;
  std::error_code error;
  if (fs::is_directory(path, error)) return OpenFolder(path, filled);
  if (!fs::exists(path, error)) return IoError("open", path, ENOENT);
  if (!LooksLikeSafetensors(path)) return OpenFile(path, filled);
  LOOKBACK_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(path));
  auto tokenizer = LoadTokenizer(*checkpoint);
  if (!tokenizer.ok()) return std::move(tokenizer).status().WithPrefix(path);
  if (*tokenizer == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  StrCat(path, ": got a file without tokenizer, expected one with"));
  }
  filled = checkpoint->tokenizer();
  return tokenizer;
}

}  // namespace lookback
