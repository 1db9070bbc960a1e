#include "tools/windows_image.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <set>

namespace lookback::tools {

namespace {

constexpr int64_t kCell = 16;           // of the SVG, user units
constexpr int64_t kMaxCellPixels = 12;  // of the PNG
constexpr int64_t kMaxPixels = 4096;    // of one side of the PNG
constexpr int64_t kLegend = 8;

struct Colour {
  uint8_t red, green, blue;
};
// Dark to bright, so that it is read in grey as well: a token or so … all of the context.
constexpr std::array<Colour, 5> kRamp = {
    {{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}}};

/// 0 (a token or so) to 1 (all of the context), by the logarithm of the window.
double Share(HeadWindow head, int64_t context) {
  if (head.full() || head.window >= context) return 1.0;
  return std::log2(static_cast<double>(head.window) + 1.0) /
         std::log2(static_cast<double>(context) + 1.0);
}

Colour ColourOf(double share) {
  const double at = std::clamp(share, 0.0, 1.0) * static_cast<double>(kRamp.size() - 1);
  const auto low = std::min(static_cast<size_t>(at), kRamp.size() - 2);
  const double part = at - static_cast<double>(low);
  const auto mix = [&](uint8_t Colour::*channel) {
    const double from = kRamp[low].*channel, to = kRamp[low + 1].*channel;
    return static_cast<uint8_t>(std::lround(from + (to - from) * part));
  };
  return {mix(&Colour::red), mix(&Colour::green), mix(&Colour::blue)};
}

std::string Hex(Colour colour) {
  char text[16];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", colour.red, colour.green, colour.blue);
  return text;
}

std::string Fixed3(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

std::string Rectangle(int64_t x, int64_t y, Colour colour, const std::string& title) {
  return StrCat("<rect x=\"", x, "\" y=\"", y, "\" width=\"", kCell, "\" height=\"", kCell,
                "\" fill=\"", Hex(colour), "\"><title>", title, "</title></rect>\n");
}

std::string Text(int64_t x, int64_t y, std::string_view anchor, const std::string& text) {
  return StrCat("<text x=\"", x, "\" y=\"", y, "\" text-anchor=\"", anchor, "\">", text,
                "</text>\n");
}

std::string WindowName(HeadWindow head) {
  return head.full() ? std::string("full") : StrCat(head.window);
}

/// The distinct windows of the table, shortest first; at most kLegend of them.
std::vector<HeadWindow> LegendWindows(const WindowTable& table) {
  std::set<int64_t> seen;
  for (int64_t layer = 0; layer < table.layers(); ++layer) {
    for (int64_t head = 0; head < table.heads(); ++head) {
      const HeadWindow window = table.at(layer, head);
      seen.insert(window.full() ? INT64_MAX : window.window);
    }
  }
  std::vector<HeadWindow> windows;
  for (const int64_t tokens : seen) {
    if (std::ssize(windows) == kLegend) break;
    windows.push_back({tokens == INT64_MAX ? kFullWindow : static_cast<int32_t>(tokens), 0});
  }
  return windows;
}

// --- PNG: no compression, so that nothing but two checksums is needed.

void AppendBigEndian(uint32_t value, std::string& out) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}

uint32_t Crc32(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

uint32_t Adler32(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<uint8_t>(byte)) % 65521U;
    b = (b + a) % 65521U;
  }
  return b << 16 | a;
}

void AppendChunk(std::string_view type, std::string_view data, std::string& out) {
  AppendBigEndian(static_cast<uint32_t>(data.size()), out);
  std::string body(type);
  body += data;
  out += body;
  AppendBigEndian(Crc32(body), out);
}

/// A zlib stream of stored blocks.
std::string Stored(std::string_view data) {
  constexpr size_t kBlock = 65535;
  std::string out = {'\x78', '\x01'};
  for (size_t begin = 0; begin < data.size(); begin += kBlock) {
    const size_t size = std::min(kBlock, data.size() - begin);
    out.push_back(begin + size == data.size() ? 1 : 0);
    for (const size_t word : {size, ~size}) {
      out.push_back(static_cast<char>(word & 0xFF));
      out.push_back(static_cast<char>(word >> 8 & 0xFF));
    }
    out += data.substr(begin, size);
  }
  AppendBigEndian(Adler32(data), out);
  return out;
}

}  // namespace

std::string WindowSvg(const WindowTable& table, int64_t context) {
  constexpr int64_t kLeft = 40, kTop = 24, kRight = 56, kBottom = 44;
  const int64_t width = kLeft + table.heads() * kCell + kRight;
  const int64_t height = kTop + table.layers() * kCell + kBottom;
  // The legend may be wider than a narrow table.
  const int64_t full_width = std::max<int64_t>(width, kLeft + kLegend * 5 * kCell);
  std::string out = StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", full_width, "\" height=\"", height,
      "\" viewBox=\"0 0 ", full_width, " ", height,
      "\" font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n");
  out += Text(kLeft, 14, "start",
              StrCat("window of each query head, tokens; ACR at ", context, ": ",
                     Fixed3(table.Acr(context))));
  for (int64_t layer = 0; layer < table.layers(); ++layer) {
    const int64_t y = kTop + layer * kCell;
    out += Text(kLeft - 6, y + 12, "end", StrCat(layer));
    for (int64_t head = 0; head < table.heads(); ++head) {
      const HeadWindow window = table.at(layer, head);
      std::string title = StrCat("layer ", layer, ", head ", head, ": ", WindowName(window));
      if (window.sinks > 0) title += StrCat(" and the first ", window.sinks);
      out += Rectangle(kLeft + head * kCell, y, ColourOf(Share(window, context)), title);
    }
    out += Text(kLeft + table.heads() * kCell + 6, y + 12, "start",
                Fixed3(table.AcrOfLayer(layer, context)));
  }
  int64_t x = kLeft;
  const int64_t y = height - kBottom + 14;
  for (const HeadWindow window : LegendWindows(table)) {
    out += Rectangle(x, y, ColourOf(Share(window, context)), WindowName(window));
    out += Text(x + kCell + 4, y + 12, "start", WindowName(window));
    x += 5 * kCell;
  }
  return out + "</svg>\n";
}

std::string EncodePng(const std::vector<uint8_t>& rgb, int64_t width, int64_t height) {
  LOOKBACK_CHECK(std::ssize(rgb) == 3 * width * height);
  std::string rows;
  for (int64_t row = 0; row < height; ++row) {
    rows.push_back(0);  // no filter
    rows.append(reinterpret_cast<const char*>(rgb.data()) + row * 3 * width,
                static_cast<size_t>(3 * width));
  }
  std::string header;
  AppendBigEndian(static_cast<uint32_t>(width), header);
  AppendBigEndian(static_cast<uint32_t>(height), header);
  header += {8, 2, 0, 0, 0};  // 8 bits a channel, RGB
  std::string out = "\x89PNG\r\n\x1a\n";
  AppendChunk("IHDR", header, out);
  AppendChunk("IDAT", Stored(rows), out);
  AppendChunk("IEND", {}, out);
  return out;
}

std::string WindowPng(const WindowTable& table, int64_t context) {
  const int64_t side = std::max<int64_t>({1, table.layers(), table.heads()});
  const int64_t cell = std::clamp<int64_t>(kMaxPixels / side, 1, kMaxCellPixels);
  const int64_t width = std::max<int64_t>(1, table.heads() * cell);
  const int64_t height = std::max<int64_t>(1, table.layers() * cell);
  std::vector<uint8_t> rgb(static_cast<size_t>(3 * width * height), 255);
  for (int64_t y = 0; y < table.layers() * cell; ++y) {
    for (int64_t x = 0; x < table.heads() * cell; ++x) {
      const Colour colour = ColourOf(Share(table.at(y / cell, x / cell), context));
      uint8_t* pixel = rgb.data() + 3 * (y * width + x);
      pixel[0] = colour.red;
      pixel[1] = colour.green;
      pixel[2] = colour.blue;
    }
  }
  return EncodePng(rgb, width, height);
}

Status WriteWholeFile(const std::string& path, const std::string& bytes) {
  std::string temporary = StrCat(path, ".partial-XXXXXX");
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return IoError("cannot create a file beside", path, errno);
  size_t written = 0;
  int error = 0;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(fd, static_cast<mode_t>(0666) & ~mask) != 0) error = errno;
  while (error == 0 && written < bytes.size()) {
    const ssize_t count = ::write(fd, bytes.data() + written, bytes.size() - written);
    if (count >= 0) {
      written += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(temporary.c_str());
  return IoError("cannot write", path, error);
}

}  // namespace lookback::tools
