// Reads pickles of PyTorch checkpoints without executing anything.
#pragma once

#include <string>
#include <string_view>

#include "engine/status.h"
#include "tools/convert/pickle_tree.h"

namespace lookback::tools {

/// Longest pickle accepted, bytes.
inline constexpr int64_t kMaxPickleBytes = int64_t{64} << 20;
/// Most opcodes, and most values that they make.
inline constexpr int64_t kMaxPickleOpcodes = 10'000'000;
inline constexpr int64_t kMaxPickleValues = 1'000'000;

/// The values of a pickle, protocol 2 to 5. It knows containers, numbers, strings, the memo, and
/// of callables only what a state_dict needs: collections.OrderedDict, torch._utils._rebuild_
/// tensor_v2 and _rebuild_parameter, torch.Size, torch's typed storages and dtypes, each of which
/// makes a plain value here. Every other opcode or global is refused by its name, with the byte it
/// begins at; so are cycles, keys that are neither string nor integer, keys twice, and the limits
/// above. `where` names the source in errors.
Result<PickleTree> Unpickle(std::string_view bytes, const std::string& where);

}  // namespace lookback::tools
