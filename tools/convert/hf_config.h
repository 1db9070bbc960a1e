// Reads the config.json of a Hugging Face folder (mhar.md sections 1 and 3). What the engine would
// not reproduce exactly is refused by its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/json.h"
#include "engine/status.h"

namespace lookback::tools {

/// What config.json says.
struct HfModel {
  ModelConfig config;  ///< with windows: full, or those that sliding_window implies
  std::string model_type;
  bool sliding = false;  ///< sliding_window binds at some layer
  std::optional<int32_t> bos_id;
  std::vector<int32_t> eos_ids;
};

/// `where` names the file in errors, which name key, got and expected. Unknown keys are ignored.
Result<HfModel> ReadHfConfig(const Json& json, const std::string& where);

/// An absent id, one id or, for `many`, a list of them; each from 0 to vocab_size − 1.
Result<std::vector<int32_t>> ReadIds(const JsonObject& object, std::string_view key,
                                     int64_t vocab_size, bool many);

}  // namespace lookback::tools
