// The heat map as a picture.
#include "tools/windows_image.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/support.h"
#include "tools/convert/convert.h"
#include "tools/windows_view.h"

namespace lookback::tools {
namespace {

using testing::TempDir;

WindowTable Table() {
  return WindowTable::FromJson({{"windows", {{16, nullptr, 4}, {64, 16, 128}}}, {"sinks", 2}}, 2, 3,
                               "test")
      .value();
}

TEST(WindowImage, ThePngIsTheOneThatZlibWouldMakeWithoutCompressing) {
  // From Python: the chunks' CRCs by zlib.crc32, the data by zlib.compress(rows, 0).
  const std::string_view want =
      "89504e470d0a1a0a0000000d49484452000000020000000108020000007b40e8dd0000001249444154780101"
      "0700f8ff00010203ff008003a001866dbd17090000000049454e44ae426082";
  std::string got;
  for (const char byte : EncodePng({1, 2, 3, 255, 0, 128}, 2, 1)) {
    const auto value = static_cast<unsigned char>(byte);
    got += "0123456789abcdef"[value >> 4U];
    got += "0123456789abcdef"[value & 15U];
  }
  EXPECT_EQ(got, want);
}

TEST(WindowImage, LongerWindowsAreBrighterAndFullIsAsBrightAsTheContext) {
  const std::string png = WindowPng(Table(), 128);
  // 12 pixels a cell; rows begin with their filter, after 8 + 25 + 8 + 2 + 5 bytes.
  const auto green = [&](size_t layer, size_t head) {
    const size_t row = 48 + layer * 12 * (1 + 3 * 36);
    return static_cast<unsigned char>(png[row + 1 + 3 * 12 * head + 1]);
  };
  EXPECT_EQ(green(0, 1), 231);
  EXPECT_EQ(green(1, 2), 231);
  EXPECT_LT(green(0, 2), green(0, 0));
  EXPECT_LT(green(0, 0), green(1, 0));
  EXPECT_LT(green(1, 0), green(1, 2));
  EXPECT_EQ(green(0, 0), green(1, 1));
}

TEST(WindowImage, TheSvgHasACellAHeadWithItsWindow) {
  const std::string svg = WindowSvg(Table(), 128);
  EXPECT_NE(svg.find("<title>layer 1, head 0: 64 and the first 2</title>"), std::string::npos);
  EXPECT_NE(svg.find("<title>layer 0, head 1: full and the first 2</title>"), std::string::npos);
  EXPECT_NE(svg.find("ACR at 128: "), std::string::npos);
  size_t cells = 0;
  for (size_t at = svg.find("<rect x="); at != svg.npos; at = svg.find("<rect x=", at + 1)) ++cells;
  EXPECT_EQ(cells, 6U + 5U) << "and a legend of the five windows";
}

TEST(WindowImage, FilesAreWrittenWholeOrNotAtAll) {
  const TempDir dir;
  ConvertOptions options;
  options.source = testing::DemoDir();
  options.out = dir / "demo.safetensors";
  ASSERT_TRUE(Convert(options).ok());
  ASSERT_TRUE(WriteImages(options.out, 0, dir / "w.svg", dir / "w.png").ok());
  EXPECT_EQ(testing::ReadFile(dir / "w.svg").substr(0, 5), "<svg ");
  EXPECT_EQ(testing::ReadFile(dir / "w.png").substr(1, 3), "PNG");
  EXPECT_FALSE(WriteImages(options.out, 0, dir / "none/w.svg", "").ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 3);
}

}  // namespace
}  // namespace lookback::tools
