// Byte-level BPE tokenizers: GPT-2, Qwen, Llama 3 and their like.
#pragma once

#include <memory>

#include "engine/checkpoint.h"
#include "engine/json.h"
#include "engine/status.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_json.h"

namespace lookback {

/// A tokenizer from a tokenizer.json that was read. `info` as for MakeBpeTokenizer.
Result<std::unique_ptr<Tokenizer>> BuildBpeTokenizer(TokenizerJson json, const TokenizerInfo& info);

/// What a tokenizer.json adds around a text, and the BOS and EOS that `tokenizer_config` (null if
/// there is none) names. Where the post-processor puts a BOS or an EOS, it says which.
Result<TokenizerInfo> ReadBpeInfo(const TokenizerJson& json, const Json* tokenizer_config);

}  // namespace lookback
