#include "tools/convert/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>

#include "tests/support/support.h"

namespace lookback::tools {
namespace {

using testing::TempDir;

TEST(InputFile, ReadsAnyRangeWithinTheFile) {
  const TempDir dir;
  testing::WriteFile(dir / "f", "0123456789");
  const Result<InputFile> file = InputFile::Open(dir / "f");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->bytes(), 10);
  EXPECT_EQ(file->ReadString(3, 4).value(), "3456");
  EXPECT_EQ(file->ReadString(10, 0).value(), "");
}

TEST(InputFile, RefusesRangesBeyondTheFile) {
  const TempDir dir;
  testing::WriteFile(dir / "f", "0123456789");
  const Result<InputFile> file = InputFile::Open(dir / "f");
  ASSERT_TRUE(file.ok());
  std::byte bytes[4];
  for (const int64_t offset : {int64_t{7}, int64_t{-1}, INT64_MAX}) {
    const Status status = file->Read(offset, bytes);
    EXPECT_NE(status.message().find("expected a range within its 10 bytes"), std::string::npos)
        << offset << ": " << status.message();
  }
  EXPECT_FALSE(file->ReadString(0, INT64_MAX).ok());
}

TEST(InputFile, SaysThatAFileBecameShorter) {
  const TempDir dir;
  testing::WriteFile(dir / "f", "0123456789");
  const Result<InputFile> file = InputFile::Open(dir / "f");
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(dir / "f", 5);
  const Result<std::string> text = file->ReadString(2, 6);
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.status().message().find("only 5 bytes: it became shorter"), std::string::npos)
      << text.status().message();
  EXPECT_NE(text.status().message().find(dir / "f"), std::string::npos);
}

TEST(InputFile, RefusesWhatIsNoRegularFile) {
  const TempDir dir;
  EXPECT_EQ(InputFile::Open(dir / "none").status().code(), StatusCode::kNotFound);
  EXPECT_NE(InputFile::Open(dir.path()).status().message().find("got no regular file"),
            std::string::npos);
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_FALSE(InputFile::Open(dir / "fifo").ok());
}

}  // namespace
}  // namespace lookback::tools
