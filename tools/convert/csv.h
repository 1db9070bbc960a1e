// CSV text from outside, as rows of fields.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/status.h"

namespace lookback::tools {

/// Limits of one file.
inline constexpr int64_t kMaxCsvBytes = int64_t{64} << 20;
inline constexpr int64_t kMaxCsvColumns = 256;
inline constexpr int64_t kMaxCsvFieldBytes = 65536;

struct CsvRow {
  int64_t line = 0;  ///< its first line in the file, from 1
  std::vector<std::string> fields;
};

/// Reads row after row, so that a file of any length costs one row.
class CsvReader {
 public:
  /// `text` must outlive the reader; `where` names it in errors. A byte order mark is skipped.
  CsvReader(std::string_view text, std::string where);

  /// Fills `row` with the next row that is not blank; false at the end. Fields may be quoted, with
  /// "" for a quote; rows end in LF or CRLF. InvalidArgument, with the line, for a quote inside a
  /// plain field, text behind a closing quote, a quote that never closes, and the limits.
  Result<bool> Next(CsvRow& row);

 private:
  Status Field(std::string& out);
  Status Error(std::string_view got, std::string_view expected) const;

  std::string_view text_;
  std::string where_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace lookback::tools
