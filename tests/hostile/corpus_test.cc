// Every file of files/ (made by make_corpus.py) through the reader that its folder names: it ends
// in the error of expected.tsv, and nothing else happens.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "engine/json.h"
#include "engine/safetensors.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/windows.h"
#include "tests/support/support.h"
#include "tools/convert/aah_config.h"
#include "tools/convert/convert.h"
#include "tools/convert/torch_file.h"
#include "tools/convert/unpickler.h"
#include "tools/convert/window_csv.h"

namespace lookback::tools {
namespace {

namespace fs = std::filesystem;

const std::string kFolder = std::string(LOOKBACK_SOURCE_DIR) + "/tests/hostile/";
/// The file that the pickles would make if anything of them were executed.
constexpr const char* kTrace = "lookback-hostile-file-was-executed";

struct HostileFile {
  std::string path;  ///< READER/NAME below files/
  std::string says;

  std::string reader() const { return path.substr(0, path.find('/')); }
  std::string full_path() const { return kFolder + "files/" + path; }
};

std::ostream& operator<<(std::ostream& out, const HostileFile& file) { return out << file.path; }

std::vector<HostileFile> Corpus() {
  std::vector<HostileFile> corpus;
  std::ifstream list(kFolder + "expected.tsv");
  for (std::string line; std::getline(list, line);) {
    const size_t tab = line.find('\t');
    corpus.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  return corpus;
}

Status ConvertFolder(const std::string& path) {
  const testing::TempDir dir;
  ConvertOptions options;
  options.source = path;
  options.out = dir / "out";
  const Status status = Convert(options).status();
  EXPECT_TRUE(status.ok() || fs::is_empty(dir.path())) << "something was written";
  return status;
}

Status ReadWindows(const std::string& path) {
  LOOKBACK_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  return WindowTable::FromJson(json, 2, 2, path).status();
}

Status Read(const std::string& reader, const std::string& path) {
  if (reader == "safetensors") return SafetensorsFile::Open(path).status();
  if (reader == "pickle") return Unpickle(testing::ReadFile(path), path).status();
  if (reader == "torch") return TorchFile::Open(path).status();
  if (reader == "yaml") return ReadAahRun(path).status();
  if (reader == "csv") return ReadWindowCsv(path, {.layers = 2, .heads = 2}).status();
  if (reader == "windows") return ReadWindows(path);
  if (reader == "bpe") return OpenTokenizer(path).status();
  if (reader == "convert") return ConvertFolder(path);
  ADD_FAILURE() << "no reader " << reader;
  return {};
}

/// Most memory that this process has held, MiB.
int64_t PeakMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

class HostileCorpus : public ::testing::TestWithParam<HostileFile> {};

TEST_P(HostileCorpus, IsRefusedByName) {
  const HostileFile& file = GetParam();
  const int64_t before = PeakMemory();
  const Status status = Read(file.reader(), file.full_path());
  ASSERT_FALSE(status.ok());
  const std::string& message = status.message();
  EXPECT_NE(message.find(file.says), std::string::npos) << message << "\nshould say: " << file.says;
  const bool named = message.find(file.full_path()) != std::string::npos ||
                     message.find("config.json") != std::string::npos;
  EXPECT_TRUE(named) << message << "\nnames no file";
  // One line that can be printed, of a length for people.
  EXPECT_TRUE(std::none_of(message.begin(), message.end(), [](unsigned char c) {
    return std::iscntrl(c) != 0;
  })) << message;
  EXPECT_LT(message.size(), 1500U);
  EXPECT_FALSE(fs::exists(kTrace));
  // The files are small: so is what they may cost.
  EXPECT_LE(PeakMemory() - before, 256) << "MiB more than before";
}

INSTANTIATE_TEST_SUITE_P(Files, HostileCorpus, ::testing::ValuesIn(Corpus()), [](const auto& info) {
  std::string name = info.param.path;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
});

TEST(HostileCorpusControl, HasManyFilesEachOfThemListed) {
  const std::vector<HostileFile> corpus = Corpus();
  EXPECT_GE(corpus.size(), 150U);
  size_t entries = 0;
  for (const auto& reader : fs::directory_iterator(kFolder + "files")) {
    if (reader.path().filename() == "good") continue;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(reader.path())) ++entries;
  }
  EXPECT_EQ(entries, corpus.size());
}

/// What the broken files are variations of: were it broken itself, they would prove nothing.
TEST(HostileCorpusControl, TakesTheGoodFiles) {
  EXPECT_TRUE(TorchFile::Open(kFolder + "files/good/m.pt").ok());
  const Status status = ConvertFolder(kFolder + "files/good/folder");
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace lookback::tools
