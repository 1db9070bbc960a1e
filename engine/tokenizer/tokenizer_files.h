// Which of a folder's files is its tokenizer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/json.h"
#include "engine/status.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace lookback {

/// The tokenizer of a Hugging Face folder, read but not loaded.
struct TokenizerFiles {
  std::string kind;   ///< "bpe", "sentencepiece"; "" where the folder has none
  std::string path;   ///< of the file that decides, for errors
  std::string bytes;  ///< what a lookback file carries: a tokenizer.json or tokenizer.model
  std::optional<TokenizerJson> json;  ///< of kind "bpe": `bytes` parsed
  std::vector<std::string> inputs;    ///< paths of the files that were read
};

/// Takes tokenizer.json, else tokenizer.model, else vocab.json with merges.txt. A tokenizer.json of
/// a kind that we do not reproduce gives way to a tokenizer.model beside it; a damaged one is
/// refused. Errors name the file.
Result<TokenizerFiles> FindTokenizerFiles(const std::string& folder);

/// The text of bos_token and its like: a string, or an object with `content`; "" for null. Errors
/// name `where`.
Result<std::string> SpecialTokenText(const Json* value, std::string_view where);

/// One row of `added_tokens_decoder`, {"id": {"content": …, …}}.
struct DecoderToken {
  int32_t id;  ///< >= 0
  std::string content;
  const Json* json;  ///< the row's value, an object that belongs to the config
};
/// The rows of a tokenizer_config.json; none where it has no such key.
Result<std::vector<DecoderToken>> ReadDecoderTokens(const JsonObject& config);

/// What a folder of GPT-2's time says of its tokenizer; null where there is no such file.
struct Gpt2Files {
  Json vocab;               ///< vocab.json
  std::string_view merges;  ///< merges.txt
  Json tokenizer_config;
  Json special_tokens_map;
  Json added_tokens;
};

/// The tokenizer.json that says the same. InvalidArgument for a tokenizer_class other than those of
/// GPT-2 and Qwen2: others read the same files in another way.
Result<Json> TokenizerJsonOfGpt2Files(const Gpt2Files& files);

}  // namespace lookback
