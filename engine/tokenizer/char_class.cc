#include "engine/tokenizer/char_class.h"

namespace lookback::char_tables {

#include "engine/tokenizer/char_tables.inc"

}  // namespace lookback::char_tables
