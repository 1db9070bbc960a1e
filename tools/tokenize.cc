// lookback tokenize | detokenize: text to ids and back, a line at a time.
#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/json.h"
#include "engine/tokenizer/tokenizer.h"
#include "tools/commands.h"

namespace lookback::tools {
namespace {

struct TokenizeFlags {
  std::string tokenizer;
  bool jsonl = false;
  bool special = false;       // tokenize: add BOS and EOS as the file says
  bool skip_special = false;  // detokenize: leave special tokens out
  std::string text;
  std::string ids;
};

// One line of JSON in plain ASCII: whatever reads it needs to know no encoding.
void PrintLine(const Json& json) {
  std::cout << json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) << '\n';
}

Result<Json> Tokenize(const Tokenizer& tokenizer, std::string_view text, bool special) {
  LOOKBACK_ASSIGN_OR_RETURN(auto ids, tokenizer.Encode(text, special));
  return Json{{"ids", std::move(ids)}};
}

Result<Json> Detokenize(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                        bool skip_special) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < tokenizer.vocab_size()) continue;
    return Mismatch(StrCat("ids[", i, "]"), ids[i], StrCat("0 to ", tokenizer.vocab_size() - 1));
  }
  return Json{{"text", tokenizer.Decode(ids, skip_special)}};
}

Result<std::vector<int32_t>> IdsOf(const Json& value) {
  if (!value.is_array()) return Mismatch("ids", DescribeJson(value), "an array of token ids");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < value.size(); ++i) {
    // nlohmann compares a large unsigned number as a negative one: read it by its own type.
    const bool fits = value[i].is_number_unsigned()
                          ? value[i].get<uint64_t>() <= INT32_MAX
                          : value[i].is_number_integer() && value[i].get<int64_t>() >= INT32_MIN;
    if (!fits) return Mismatch(StrCat("ids[", i, "]"), DescribeJson(value[i]), "a token id");
    ids.push_back(value[i].get<int32_t>());
  }
  return ids;
}

Result<Json> ConvertLine(const Tokenizer& tokenizer, std::string_view line,
                         const TokenizeFlags& flags, bool to_ids) {
  LOOKBACK_ASSIGN_OR_RETURN(const Json json, ParseJson(line, "JSON"));
  const char* key = to_ids ? "text" : "ids";
  const auto value = json.is_object() ? json.find(key) : json.end();
  if (value == json.end()) {
    return Mismatch("JSON", DescribeJson(json), StrCat("an object with \"", key, "\""));
  }
  if (!to_ids) {
    LOOKBACK_ASSIGN_OR_RETURN(const auto ids, IdsOf(*value));
    return Detokenize(tokenizer, ids, flags.skip_special);
  }
  if (!value->is_string()) return Mismatch("text", DescribeJson(*value), "a string");
  return Tokenize(tokenizer, value->get_ref<const std::string&>(), flags.special);
}

Status ConvertLines(const Tokenizer& tokenizer, const TokenizeFlags& flags, bool to_ids) {
  int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    auto converted = ConvertLine(tokenizer, line, flags, to_ids);
    if (!converted.ok()) {
      std::cout.flush();
      return std::move(converted).status().WithPrefix(StrCat("line ", number));
    }
    PrintLine(*converted);
  }
  return {};
}

Result<std::vector<int32_t>> ParseIdList(std::string_view list) {
  std::vector<int32_t> ids;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(item.size() + 1, list.size()));
    int32_t id = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), id);
    if (error != std::errc() || end != item.data() + item.size()) {
      return Mismatch("--ids", Quoted(item), "token ids separated by commas");
    }
    ids.push_back(id);
  }
  return ids;
}

// Plain form, for people: ids separated by commas, or the text as it is.
Status RunPlain(const Tokenizer& tokenizer, const TokenizeFlags& flags, bool to_ids) {
  if (to_ids) {
    LOOKBACK_ASSIGN_OR_RETURN(const auto ids, tokenizer.Encode(flags.text, flags.special));
    for (size_t i = 0; i < ids.size(); ++i) std::cout << (i == 0 ? "" : ",") << ids[i];
    std::cout << '\n';
    return {};
  }
  LOOKBACK_ASSIGN_OR_RETURN(const auto ids, ParseIdList(flags.ids));
  LOOKBACK_ASSIGN_OR_RETURN(const Json json, Detokenize(tokenizer, ids, flags.skip_special));
  std::cout << json["text"].get_ref<const std::string&>() << '\n';
  return {};
}

Status Run(const CLI::App& command, const TokenizeFlags& flags, bool to_ids) {
  const char* plain = to_ids ? "--text" : "--ids";
  if (flags.jsonl == (command.count(plain) > 0)) {
    return InvalidArgument(command.get_name(), ": got ", flags.jsonl ? "both" : "neither",
                           " --jsonl ", flags.jsonl ? "and " : "nor ", plain, ", expected one");
  }
  LOOKBACK_ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(flags.tokenizer));
  LOOKBACK_RETURN_IF_ERROR(flags.jsonl ? ConvertLines(*tokenizer, flags, to_ids)
                                       : RunPlain(*tokenizer, flags, to_ids));
  if (!std::cout.flush()) return {StatusCode::kIo, "cannot write to standard output"};
  return {};
}

void AddOne(CLI::App& app, int& exit_code, bool to_ids) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command =
      app.add_subcommand(to_ids ? "tokenize" : "detokenize",
                         to_ids ? "Turn text into token ids" : "Turn token ids into text");
  command
      ->add_option(
          "TOKENIZER", flags->tokenizer,
          "tokenizer.json, tokenizer.model, a lookback file, or a folder that holds a tokenizer")
      ->required();
  command->add_flag("--jsonl", flags->jsonl,
                    to_ids ? "Read {\"text\": …} lines, write {\"ids\": […]} lines"
                           : "Read {\"ids\": […]} lines, write {\"text\": …} lines");
  if (to_ids) {
    command->add_option("--text", flags->text, "Tokenize this text, print ids with commas");
    command->add_flag("--special", flags->special, "Add BOS and EOS as the tokenizer says");
  } else {
    command->add_option("--ids", flags->ids, "Ids with commas; print their text");
    command->add_flag("--skip-special", flags->skip_special, "Leave special tokens out");
  }
  command->callback(
      [command, flags, &exit_code, to_ids] { exit_code = Report(Run(*command, *flags, to_ids)); });
}

}  // namespace

void AddTokenize(CLI::App& app, int& exit_code) {
  AddOne(app, exit_code, /*to_ids=*/true);
  AddOne(app, exit_code, /*to_ids=*/false);
}

}  // namespace lookback::tools
