// Tokenizer and generation settings of a Hugging Face folder.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint.h"
#include "engine/status.h"
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
  TokenizerInfo info;               ///< kind "" where there is no tokenizer that we can carry
  std::string bytes;                ///< of tokenizer.model
  std::vector<std::string> inputs;  ///< paths of the files that were read
  std::string warning;              ///< "" or what the user should know
};

/// tokenizer.model with tokenizer_config.json from `folder`. Ids: the special tokens that
/// tokenizer_config.json spells out, then generation_config.json, then config.json; every end id
/// of theirs becomes a stop id.
Result<HfTokenizer> ReadHfTokenizer(const std::string& folder, const HfModel& model,
                                    const HfGeneration& generation);

}  // namespace lookback::tools
