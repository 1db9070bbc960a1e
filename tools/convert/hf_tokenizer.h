// Tokenizer and generation settings of a Hugging Face folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint.h"
#include "engine/status.h"
#include "engine/tokenizer/tokenizer.h"
#include "tools/convert/hf_config.h"

namespace lookback::tools {

/// What generation_config.json says; all of it unset where there is no such file.
struct HfGeneration {
  GenerationDefaults defaults;
  std::optional<int32_t> bos_id;
  std::vector<int32_t> eos_ids;
  std::vector<std::string> inputs;  ///< paths of the files that were read
};

Result<HfGeneration> ReadHfGeneration(const std::string& folder, int64_t vocab_size);

struct HfTokenizer {
  TokenizerInfo info;  ///< kind "" where there is no tokenizer that we can carry
  std::string bytes;   ///< of tokenizer.json or tokenizer.model
  /// Null where there is none, or none of a kind that this build can load.
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::string> inputs;  ///< paths of the files that were read
  std::string warning;              ///< "" or what the user should know
};

/// The tokenizer of `folder` (tokenizer_files.h says which file), loaded: one that is damaged, that
/// we do not reproduce, or that has ids beyond the model's vocabulary is refused with its file's
/// name. Ids: those that the tokenizer itself adds, the special tokens that tokenizer_config.json
/// names, then generation_config.json, then config.json; every end id of theirs becomes a stop id.
Result<HfTokenizer> ReadHfTokenizer(const std::string& folder, const HfModel& model,
                                    const HfGeneration& generation);

}  // namespace lookback::tools
