#include "tools/convert/zip_archive.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/support.h"
#include "tests/tools/torch_bytes.h"

namespace lookback::tools {
namespace {

using testing::LittleEndian;
using testing::TempDir;
using testing::ZipBytes;
using testing::ZipEnd;
using testing::ZipPart;

// "aaaa…" 1000 times, raw deflate.
const std::string kDeflated("\x4B\x4C\x1C\x05\xA3\x60\x14\x0C\x77\x00\x00", 11);

Result<ZipArchive> Open(const TempDir& dir, const std::string& bytes) {
  testing::WriteFile(dir / "a.zip", bytes);
  Result<InputFile> file = InputFile::Open(dir / "a.zip");
  if (!file.ok()) return std::move(file).status();
  return ZipArchive::Open(*std::move(file));
}

void ExpectZipRefused(const std::string& bytes, const std::string& says) {
  const TempDir dir;
  const Result<ZipArchive> archive = Open(dir, bytes);
  ASSERT_FALSE(archive.ok()) << says;
  EXPECT_NE(archive.status().message().find(says), std::string::npos)
      << archive.status().message() << "\nshould say: " << says;
  EXPECT_NE(archive.status().message().find(dir / "a.zip"), std::string::npos);
}

ZipPart Part(const std::string& name, const std::string& data) {
  return {.name = name, .data = data};
}

TEST(ZipArchive, TellsWhereStoredBytesLie) {
  const TempDir dir;
  const auto archive = Open(dir, ZipBytes({Part("a/x", "12345"), Part("a/y", ""), Part("z", "6")}));
  ASSERT_TRUE(archive.ok()) << archive.status().message();
  ASSERT_EQ(archive->entries().size(), 3U);
  const ZipEntry* entry = archive->Find("a/x");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(archive->file().ReadString(entry->data_offset, entry->stored_bytes).value(), "12345");
  EXPECT_EQ(archive->ReadAll(*archive->Find("z"), 1).value(), "6");
  EXPECT_EQ(archive->ReadAll(*archive->Find("a/y"), 0).value(), "");
  EXPECT_EQ(archive->Find("a"), nullptr);
  EXPECT_FALSE(archive->ReadAll(*entry, 4).ok());
}

TEST(ZipArchive, UnpacksACompressedEntry) {
  const TempDir dir;
  const std::string text(1000, 'a');
  const auto archive = Open(dir, ZipBytes({{.name = "a",
                                            .data = kDeflated,
                                            .method = 8,
                                            .bytes = 1000,
                                            .crc = testing::Crc32(text)}}));
  ASSERT_TRUE(archive.ok()) << archive.status().message();
  EXPECT_EQ(archive->ReadAll(archive->entries()[0], 1000).value(), text);
}

TEST(ZipArchive, RefusesAnEntryWithAnotherCrcOrSize) {
  const TempDir dir;
  const auto wrong_crc = Open(dir, ZipBytes({{.name = "a", .data = "12345", .crc = 77}}));
  ASSERT_TRUE(wrong_crc.ok()) << wrong_crc.status().message();
  EXPECT_NE(wrong_crc->ReadAll(wrong_crc->entries()[0], 5).status().message().find("CRC"),
            std::string::npos);
  const auto wrong_size =
      Open(dir, ZipBytes({{.name = "a", .data = kDeflated, .method = 8, .bytes = 900}}));
  ASSERT_TRUE(wrong_size.ok()) << wrong_size.status().message();
  EXPECT_FALSE(wrong_size->ReadAll(wrong_size->entries()[0], 1000).ok());
}

TEST(ZipArchive, RefusesNamesThatLeadOut) {
  for (const std::string name : {"../a", "a/../../b", "a/..", "..", "/etc/passwd", "a\\b", "C:a"}) {
    ExpectZipRefused(ZipBytes({Part(name, "1")}), "expected a relative path without ..");
  }
  ExpectZipRefused(ZipBytes({Part(std::string("a\0b", 3), "1")}), "got \"a\\x00b\"");
  ExpectZipRefused(ZipBytes({Part("", "1")}), "got \"\"");
}

TEST(ZipArchive, RefusesNamesTwice) {
  ExpectZipRefused(ZipBytes({Part("a", "1"), Part("b", "2"), Part("a", "3")}), "got \"a\" twice");
}

TEST(ZipArchive, RefusesEncryptionAndOtherMethods) {
  ExpectZipRefused(ZipBytes({{.name = "a", .data = "1", .flags = 1}}), "got an encrypted entry");
  ExpectZipRefused(ZipBytes({{.name = "a", .data = "1", .method = 12}}),
                   "got compression method 12");
}

TEST(ZipArchive, RefusesBombs) {
  ExpectZipRefused(
      ZipBytes({{.name = "a", .data = kDeflated, .method = 8, .bytes = kMaxInflatedBytes + 1}}),
      "got 67108865 bytes, compressed, expected at most 67108864");
  // Two entries over the same bytes.
  ExpectZipRefused(ZipBytes({Part("a", "1"), {.name = "a2", .data = "1", .central_offset = 0}}),
                   "local header of \"a2\"");
  std::string inner = ZipBytes({Part("in", "12")});
  inner.resize(34);
  ExpectZipRefused(
      ZipBytes({Part("out", inner), {.name = "in", .data = "12", .central_offset = 33}}),
      "got bytes shared with \"out\"");
}

TEST(ZipArchive, RefusesSizesBeyondTheFile) {
  ExpectZipRefused(ZipBytes({{.name = "a", .data = "1", .bytes = 2}}), "got 2 bytes stored in 1");
  ExpectZipRefused(ZipBytes({{.name = "a", .data = "1", .central_offset = 31}}), "got byte 31");
  ExpectZipRefused(ZipBytes({{.name = "a", .data = "1", .central_offset = 0xFFFFFFF0}}),
                   "expected sizes within the 32 bytes before the directory");
  ExpectZipRefused(ZipBytes({{.name = "a", .data = "1", .central_offset = 0xFFFFFFFF}}),
                   "header at byte 4294967295");
  ExpectZipRefused(ZipBytes({{.name = "a",
                              .data = "1",
                              .central_offset = 0xFFFFFFFF,
                              .central_extra = LittleEndian(1, 2) + LittleEndian(8, 2) +
                                               LittleEndian(~uint64_t{0}, 8)}}),
                   "header at byte 18446744073709551615");
}

TEST(ZipArchive, RefusesHeadersThatDisagree) {
  ExpectZipRefused(ZipBytes({{.name = "a", .data = "1", .local_name = "b"}}),
                   "expected the same in both");
  ExpectZipRefused(ZipBytes({Part("a", "1")}, {.entries = 2}), "a header that is cut off");
  ExpectZipRefused(ZipBytes({Part("a", "1"), Part("b", "1")}, {.entries = 1}),
                   "after its 1 entries");
}

TEST(ZipArchive, RefusesPartsCommentsAndOtherFiles) {
  ExpectZipRefused(ZipBytes({Part("a", "1")}, {.disk = 1}), "got a part of an archive");
  ExpectZipRefused(ZipBytes({Part("a", "1")}, {.comment = "c"}), "got no ZIP end record");
  ExpectZipRefused("", "got no ZIP end record");
  ExpectZipRefused(std::string(100, 'x'), "got no ZIP end record");
  const std::string whole = ZipBytes({Part("a", "1")});
  for (size_t length = 0; length < whole.size(); ++length) {
    ExpectZipRefused(whole.substr(0, length), "got no ZIP end record");
  }
}

TEST(ZipArchive, RefusesAnEndRecordOfTooManyEntries) {
  const std::string end64 = "PK\x06\x06" + LittleEndian(44, 8) + LittleEndian(0, 12) +
                            LittleEndian(uint64_t{1} << 40, 8) +
                            LittleEndian(uint64_t{1} << 40, 8) + LittleEndian(0, 8) +
                            LittleEndian(0, 8);
  const std::string locator =
      "PK\x06\x07" + LittleEndian(0, 4) + LittleEndian(0, 8) + LittleEndian(1, 4);
  ExpectZipRefused(end64 + locator + "PK\x05\x06" + LittleEndian(0, 4) +
                       LittleEndian(0xFFFFFFFF, 4) + LittleEndian(~uint64_t{0}, 8) +
                       LittleEndian(0, 2),
                   "got 1099511627776, expected at most 100000");
}

}  // namespace
}  // namespace lookback::tools
