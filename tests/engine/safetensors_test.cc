#include "engine/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include "tests/support/safetensors_bytes.h"
#include "tests/support/support.h"

namespace lookback {
namespace {

using testing::SafetensorsBytes;
using testing::TempDir;
using testing::WriteFile;

Status OpenBytes(const TempDir& dir, const std::string& bytes) {
  WriteFile(dir / "x.safetensors", bytes);
  return SafetensorsFile::Open(dir / "x.safetensors").status();
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

struct BadHeader {
  std::string header;
  size_t data_bytes;
  std::string says;
};

TEST(SafetensorsFile, RefusesLyingHeadersByTensorAndPlace) {
  const std::string ok = Entry("a", "F32", "[2]", "[0,8]");
  const BadHeader cases[] = {
      {"[]", 0, "expected a JSON object"},
      {" {}", 0, "expected a JSON object"},
      {"{\"a\":1}", 0, "got 1, expected an object"},
      {"{\"a\":[]}", 0, "got an array, expected an object"},
      {"{\"a\":{}}", 0, "got no dtype"},
      {R"({"a":{"dtype":"F32"}})", 0, "got no shape"},
      {R"({"a":{"dtype":"F32","shape":[]}})", 0, "got no data_offsets"},
      {"{" + ok, 8, "syntax error"},
      {"{" + ok + "} x", 8, "syntax error"},
      {"{" + ok + ",}", 8, "syntax error"},
      {"{" + Entry("a", "F8_E4M3", "[2]", "[0,2]") + "}", 2, "got \"F8_E4M3\""},
      {"{" + Entry("a", "F32", "[3]", "[0,8]") + "}", 8, "got 8 bytes, expected 12 for F32[3]"},
      {"{" + Entry("a", "F32", "[2]", "[8,0]") + "}", 8, "got [8,0]"},
      {"{" + Entry("a", "F32", "[2]", "[0,9]") + "}", 8, "got [0,9]"},
      {"{" + Entry("a", "F32", "[2]", "[0]") + "}", 8, "got 1 numbers, expected 2"},
      {"{" + Entry("a", "F32", "[2]", "[0,4,8]") + "}", 8, "got 3 numbers, expected 2"},
      {"{" + Entry("a", "F32", "[-2]", "[0,8]") + "}", 8, "got -2"},
      {"{" + Entry("a", "F32", "[2.0]", "[0,8]") + "}", 8, "got \"2.0\""},
      {"{" + Entry("a", "F32", "[\"2\"]", "[0,8]") + "}", 8, "got \"2\""},
      {"{" + Entry("a", "F32", "[null]", "[0,8]") + "}", 8, "got null"},
      {"{" + Entry("a", "F32", "[true]", "[0,8]") + "}", 8, "got a boolean"},
      {"{" + Entry("a", "F32", "[[2]]", "[0,8]") + "}", 8, "got an array"},
      {"{" + Entry("a", "F32", "{}", "[0,8]") + "}", 8, "got an object"},
      {"{" + Entry("a", "F32", "[18446744073709551615]", "[0,8]") + "}", 8,
       "got 18446744073709551615"},
      {"{" + Entry("a", "F32", "[4611686018427387904]", "[0,8]") + "}", 8, "fewer than 2^63"},
      {"{" + Entry("a", "F32", "[4294967296,4294967296]", "[0,8]") + "}", 8, "fewer than 2^63"},
      {"{" + Entry("a", "U8", "[4294967296,4294967296,0]", "[0,0]") + "}", 0, "fewer than 2^63"},
      {"{" + Entry("a", "U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", 1,
       "more than 16 numbers"},
      {"{" + ok + "," + ok + "}", 8, "tensor \"a\" twice"},
      {"{" + ok + "," + Entry("b", "F32", "[2]", "[4,12]") + "}", 12, "got an overlap at byte"},
      {"{" + ok + "," + Entry("b", "F32", "[2]", "[0,8]") + "}", 8, "got an overlap at byte"},
      {"{" + ok + "," + Entry("b", "F32", "[1]", "[12,16]") + "}", 16, "got a hole at byte"},
      {"{" + Entry("a", "F32", "[2]", "[4,12]") + "}", 12, "got a hole at byte"},
      {"{" + ok + "}", 9, "size of "},
      {"{}", 1, "size of "},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1, "\"dtype\""},
      {R"({"a":{"dtype":"U8","shape":[],"shape":[],"data_offsets":[0,1]}})", 1, "\"shape\""},
      {R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"more":1}})", 1, "\"more\""},
      {R"({"a":{"dtype":1,"shape":[],"data_offsets":[0,1]}})", 1, "\"dtype\""},
      {R"({"__metadata__":{"k":1}})", 0, "metadata \"k\""},
      {R"({"__metadata__":{"k":{}}})", 0, "metadata \"k\""},
      {R"({"__metadata__":{"k":[]}})", 0, "metadata \"k\""},
      {R"({"__metadata__":[]})", 0, "expected an object"},
      {R"({"__metadata__":"x"})", 0, "expected an object"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, "key \"k\" twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "\"__metadata__\" twice"},
      {"{\"\xFF\":{}}", 0, "syntax error"},
      {"{\"a\":" + std::string(100000, '{'), 0, "syntax error"},
      {"{\"a\":" + std::string(100000, '['), 0, "an array"},
  };
  const TempDir dir;
  for (const BadHeader& c : cases) {
    const Status status =
        OpenBytes(dir, SafetensorsBytes(c.header, std::string(c.data_bytes, '\0')));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.header.substr(0, 200);
    EXPECT_NE(status.message().find(c.says), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("x.safetensors"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(SafetensorsFile, RefusesAHeaderLengthBeyondTheFileOrTheCap) {
  const TempDir dir;
  EXPECT_FALSE(OpenBytes(dir, "").ok());
  EXPECT_FALSE(OpenBytes(dir, "1234567").ok());
  EXPECT_FALSE(OpenBytes(dir, std::string(8, '\0')).ok());
  EXPECT_FALSE(OpenBytes(dir, std::string(8, '\xFF') + "{}").ok());
  EXPECT_FALSE(OpenBytes(dir, std::string("\3\0\0\0\0\0\0\0{}", 10)).ok());
  // A sparse file that is long enough for what its header claims: the cap must hold by itself.
  const std::string path = dir / "x.safetensors";
  WriteFile(path, std::string("\1\xE1\xF5\5\0\0\0\0{}", 10));
  std::filesystem::resize_file(path, 200'000'000);
  const Status status = SafetensorsFile::Open(path).status();
  EXPECT_NE(status.message().find("got 100000001, expected at most 100000000"), std::string::npos)
      << status.message();
}

TEST(SafetensorsFile, RefusesEveryTruncationOfAValidFile) {
  const TempDir dir;
  const std::string header = R"({"__metadata__":{"k":"v"},)" + Entry("a", "F32", "[2]", "[0,8]") +
                             "," + Entry("b", "U8", "[3]", "[8,11]") + "}";
  const std::string whole = SafetensorsBytes(header, "12345678abc");
  ASSERT_TRUE(OpenBytes(dir, whole).ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(OpenBytes(dir, whole.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(OpenBytes(dir, whole + "x").ok());
}

TEST(SafetensorsFile, SurvivesAnyByteChangedInTheHeader) {
  const TempDir dir;
  const std::string whole = SafetensorsBytes(
      "{" + Entry("a", "F32", "[2]", "[0,8]") + "," + Entry("b", "U8", "[3]", "[8,11]") + "}",
      "12345678abc");
  std::mt19937 random(7);
  for (size_t place = 0; place + 11 < whole.size(); ++place) {
    for (int i = 0; i < 3; ++i) {
      std::string changed = whole;
      changed[place] = static_cast<char>(random() & 0xFF);
      WriteFile(dir / "x.safetensors", changed);
      const auto file = SafetensorsFile::Open(dir / "x.safetensors");
      if (!file.ok()) continue;
      for (const auto& [name, entry] : (*file)->entries()) {
        const auto view = (*file)->Tensor(name);
        ASSERT_TRUE(view.ok());
        EXPECT_EQ(view->bytes(), view->elements() * DTypeBytes(view->dtype));
      }
    }
  }
}

TEST(SafetensorsFile, ReadsMisalignedForeignFiles) {
  const TempDir dir;
  const std::string header = "{" + Entry("empty", "F32", "[0,5]", "[0,0]") + "," +
                             Entry("scalar", "U8", "[]", "[0,1]") + "," +
                             Entry("odd", "F32", "[1]", "[1,5]") + "}  ";
  WriteFile(dir / "x", SafetensorsBytes(header, std::string("\7\0\0\x80\x3F", 5)));
  const auto file = SafetensorsFile::Open(dir / "x");
  ASSERT_TRUE(file.ok()) << file.status().message();
  float value = 0;
  ASSERT_TRUE(CopyAsF32(*(*file)->Tensor("odd"), {&value, 1}).ok());
  EXPECT_EQ(value, 1.0F);
  EXPECT_EQ((*file)->Tensor("empty")->elements(), 0);
  EXPECT_EQ((*file)->Tensor("scalar")->elements(), 1);
  EXPECT_EQ((*file)->header(), header);
}

TEST(SafetensorsFile, NamesTheTensorThatIsMissingOrDiffers) {
  const TempDir dir;
  WriteFile(dir / "x", SafetensorsBytes("{" + Entry("a", "F32", "[2]", "[0,8]") + "}", "12345678"));
  const auto file = SafetensorsFile::Open(dir / "x");
  ASSERT_TRUE(file.ok());
  const int64_t two[] = {2};
  const int64_t pair[] = {1, 2};
  EXPECT_EQ((*file)->Tensor("b").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE((*file)->Tensor("a", DType::kF32, two).ok());
  EXPECT_NE((*file)->Tensor("a", DType::kBF16, two).status().message().find("got F32"),
            std::string::npos);
  EXPECT_NE(
      (*file)->Tensor("a", DType::kF32, pair).status().message().find("got [2], expected [1,2]"),
      std::string::npos);
}

TEST(SafetensorsFile, RefusesFoldersPipesAndMissingFiles) {
  const TempDir dir;
  EXPECT_EQ(SafetensorsFile::Open(dir / "none").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(SafetensorsFile::Open(dir.path()).ok());
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(SafetensorsFile::Open(dir / "pipe").ok());
}

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

int64_t FilesIn(const TempDir& dir) {
  return std::distance(std::filesystem::directory_iterator(dir.path()), {});
}

TEST(SafetensorsWriter, AlignsEveryTensorAndReadsBack) {
  const TempDir dir;
  SafetensorsWriter writer(dir / "out");
  writer.SetMetadata("k", "v \xC3\xA9");
  const std::string data[] = {"abc", "", "12345678", std::string(64, 'x'), "z"};
  for (size_t i = 0; i < 5; ++i) {
    writer.Declare(StrCat("t", i), DType::kU8, {static_cast<int64_t>(data[i].size())});
  }
  ASSERT_TRUE(writer.Begin().ok());
  for (const std::string& bytes : data) {
    for (const char byte : bytes) ASSERT_TRUE(writer.Append(Bytes(std::string(1, byte))).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
  ASSERT_TRUE(writer.Finish().ok());
  const auto file = SafetensorsFile::Open(dir / "out");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->file_bytes(), writer.file_bytes());
  EXPECT_EQ((*file)->metadata().at("k"), "v \xC3\xA9");
  for (size_t i = 0; i < 5; ++i) {
    const auto& entry = (*file)->entries().at(StrCat("t", i));
    EXPECT_EQ(entry.begin % 64, 0) << i;
    const auto view = (*file)->Tensor(StrCat("t", i));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(view->data.data()), view->data.size()),
              data[i]);
  }
  EXPECT_EQ(FilesIn(dir), 1);
  struct stat info {};
  ASSERT_EQ(stat((dir / "out").c_str(), &info), 0);
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(info.st_mode & 0777, 0666 & ~mask);
}

TEST(SafetensorsWriter, ReplacesTheTargetOnlyWhenComplete) {
  const TempDir dir;
  WriteFile(dir / "out", "old");
  {
    SafetensorsWriter writer(dir / "out");
    writer.Declare("a", DType::kF32, {4});
    ASSERT_TRUE(writer.Begin().ok());
    ASSERT_TRUE(writer.Append(Bytes("1234")).ok());
    EXPECT_EQ(FilesIn(dir), 2);
  }
  EXPECT_EQ(FilesIn(dir), 1);
  EXPECT_EQ(testing::ReadFile(dir / "out"), "old");
}

TEST(SafetensorsWriter, ReplacesMetadataInTheRoomThatItHas) {
  const testing::TempDir dir;
  const std::string path = dir / "file";
  SafetensorsWriter writer(path);
  writer.SetMetadata("kept", "as it is");
  writer.SetMetadata("table", std::string(1000, '.'));
  writer.Declare("bytes", DType::kU8, {3});
  ASSERT_TRUE(writer.Begin().ok());
  const Status too_long = writer.ReplaceMetadata("table", std::string(1200, '.'));
  ASSERT_FALSE(too_long.ok());
  EXPECT_NE(too_long.message().find("header for "), std::string::npos) << too_long.message();
  ASSERT_TRUE(writer.ReplaceMetadata("table", "short").ok());
  const std::byte bytes[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE(writer.Append(bytes).ok());
  ASSERT_TRUE(writer.ReplaceMetadata("table", "final").ok());
  ASSERT_TRUE(writer.Finish().ok());
  const auto file = SafetensorsFile::Open(path).value();
  EXPECT_EQ(file->file_bytes(), writer.file_bytes());
  EXPECT_EQ(file->metadata().find("table")->second, "final");
  EXPECT_EQ(file->metadata().find("kept")->second, "as it is");
  EXPECT_EQ(file->Tensor("bytes")->data[2], std::byte{3});
}

TEST(SafetensorsWriter, SaysWhyItCannotWrite) {
  const TempDir dir;
  SafetensorsWriter missing(dir / "none/out");
  missing.Declare("a", DType::kU8, {1});
  EXPECT_EQ(missing.Begin().code(), StatusCode::kNotFound);
  std::filesystem::create_directory(dir / "folder");
  SafetensorsWriter folder(dir / "folder");
  ASSERT_TRUE(folder.Begin().ok());
  EXPECT_EQ(folder.Finish().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace lookback
