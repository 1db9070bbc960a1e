// YAML from outside, as JSON values: the plain part of it that configs use.
#pragma once

#include <string_view>

#include "engine/json.h"
#include "engine/status.h"

namespace lookback::tools {

/// Longest document accepted, bytes. A run's config has two thousand.
inline constexpr int64_t kMaxYamlBytes = int64_t{256} << 10;

/// Parses one YAML document. Plain scalars become null, booleans (the words of YAML 1.1, as PyYAML
/// takes them: yes, off, …) and numbers; all others strings. Refused: more than kMaxYamlBytes,
/// nesting deeper than 16, anchors, aliases, tags, merge keys, keys that are no scalars or occur
/// twice, several documents, invalid UTF-8. `what` names the source in errors, which give a line.
Result<Json> ParseYaml(std::string_view text, std::string_view what);

}  // namespace lookback::tools
