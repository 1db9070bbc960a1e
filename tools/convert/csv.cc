#include "tools/convert/csv.h"

#include <utility>

namespace lookback::tools {

CsvReader::CsvReader(std::string_view text, std::string where)
    : text_(text), where_(std::move(where)) {
  if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
}

Status CsvReader::Error(std::string_view got, std::string_view expected) const {
  return Mismatch(StrCat("line ", line_, " of ", where_), got, expected);
}

/// Reads up to the comma, the end of the row or of the text, none of which it takes.
Status CsvReader::Field(std::string& out) {
  const bool quoted = at_ < text_.size() && text_[at_] == '"';
  bool closed = false;
  if (quoted) ++at_;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (quoted && !closed) {
      if (c == '"' && at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        ++at_;  // a quote that stands for itself
      } else if (c == '"') {
        closed = true;
        ++at_;
        continue;
      }
    } else {
      if (c == ',' || c == '\n') break;
      if (c == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') break;
      if (closed) return Error("text behind a closing quote", "a comma or the end of the line");
      if (c == '"') return Error("a quote inside a plain field", "the whole field in quotes");
    }
    if (static_cast<int64_t>(out.size()) == kMaxCsvFieldBytes) {
      return Error("a longer field than the limit",
                   StrCat("at most ", kMaxCsvFieldBytes, " bytes"));
    }
    if (c == '\n') ++line_;
    out += c;
    ++at_;
  }
  if (quoted && !closed) return Error("an end inside quotes", "a closing quote");
  return {};
}

Result<bool> CsvReader::Next(CsvRow& row) {
  if (static_cast<int64_t>(text_.size()) > kMaxCsvBytes) {
    return Mismatch(StrCat("size of ", where_), StrCat(text_.size(), " bytes"),
                    StrCat("at most ", kMaxCsvBytes));
  }
  while (at_ < text_.size()) {
    row.line = line_;
    row.fields.clear();
    bool more = true;
    while (more) {
      if (static_cast<int64_t>(row.fields.size()) == kMaxCsvColumns) {
        return Error("more columns than the limit", StrCat("at most ", kMaxCsvColumns));
      }
      row.fields.emplace_back();
      LOOKBACK_RETURN_IF_ERROR(Field(row.fields.back()));
      more = at_ < text_.size() && text_[at_] == ',';
      if (more) ++at_;
    }
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
      ++line_;
    }
    if (row.fields.size() > 1 || !row.fields[0].empty()) return true;
  }
  return false;
}

}  // namespace lookback::tools
