// The directory of a ZIP file, read by ourselves: libzip does not tell where an entry's bytes lie.
#pragma once

#include <vector>

#include "engine/status.h"
#include "tools/convert/input_file.h"
#include "tools/convert/zip_archive.h"

namespace lookback::tools {

/// Entries in the order of the central directory, each checked against its local header. The
/// errors are those of ZipArchive; names twice are left to it.
Result<std::vector<ZipEntry>> ReadZipDirectory(const InputFile& file);

}  // namespace lookback::tools
