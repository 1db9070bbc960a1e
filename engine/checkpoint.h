// A converted lookback file, mapped and checked (format.md, "The converted file").
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/safetensors.h"
#include "engine/status.h"

namespace lookback {

inline constexpr int kFormatVersion = 1;
/// Every tensor of a lookback file starts at a multiple of this, bytes.
inline constexpr int64_t kTensorAlignment = 64;

/// What the file says of its tokenizer (metadata `tokenizer`).
struct TokenizerInfo {
  std::string kind;  ///< "sentencepiece", "bpe", "" where the file carries none
  bool add_bos = false;
  bool add_eos = false;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::vector<int32_t> stop_ids;  ///< ids that end a generation, eos among them
  std::string chat_template;      ///< "" if there is none

  Json ToJson() const;
  static Result<TokenizerInfo> FromJson(const Json& json);
};

/// Sampling defaults of the model (metadata `generation`); unset = the server's default.
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> typical_p;
  std::optional<double> repetition_penalty;

  Json ToJson() const;
  /// Unknown keys are ignored: generation_config.json has the same names. `where` names it in
  /// errors.
  static Result<GenerationDefaults> FromJson(const Json& json,
                                             const std::string& where = "metadata generation");
};

/// A lookback file. Outlives every view taken from it.
class Checkpoint {
 public:
  /// Maps and checks: format name and version, alignment, config, window table, tokenizer and
  /// generation metadata. Weight shapes are checked by Weights::Load.
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& path);

  const SafetensorsFile& file() const { return *file_; }
  const ModelConfig& config() const { return config_; }  ///< windows included
  const TokenizerInfo& tokenizer() const { return tokenizer_; }
  const GenerationDefaults& generation() const { return generation_; }
  /// Inputs' names, sizes, SHA-256 and the converter's version (metadata `source`).
  const Json& source() const { return source_; }
  /// Bytes of the tensor `lookback.tokenizer`; empty where there is none.
  std::string_view tokenizer_bytes() const;
  /// Identity of the file for clients: SHA-256 of its header.
  const std::string& hash() const { return hash_; }

 private:
  Checkpoint() = default;
  Status Read();

  std::unique_ptr<SafetensorsFile> file_;
  ModelConfig config_;
  TokenizerInfo tokenizer_;
  GenerationDefaults generation_;
  Json source_;
  std::string hash_;
};

}  // namespace lookback
