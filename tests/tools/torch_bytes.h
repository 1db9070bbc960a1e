// Hand-made ZIP files and pickles, valid or not, for the tests of their readers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lookback::testing {

inline std::string LittleEndian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) {
    out += static_cast<char>(i < 8 ? static_cast<uint8_t>(value >> 8 * i) : 0);
  }
  return out;
}

inline uint32_t Crc32(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

/// One entry, and what its headers say where that is not the truth.
struct ZipPart {
  std::string name;
  std::string data;             ///< as it lies in the file
  uint16_t method = 0;          ///< 8 = deflate; `data` is compressed already
  int64_t bytes = -1;           ///< unpacked size; −1 = that of data
  uint16_t flags = 0;           ///< in both headers
  std::string local_name = {};  ///< "" = name
  int64_t central_offset = -1;  ///< −1 = the truth
  std::string central_extra = {};
  uint32_t crc = 0;  ///< 0 = of data
};

struct ZipEnd {
  int64_t entries = -1;  ///< −1 = the truth
  uint16_t disk = 0;
  std::string comment = {};
};

inline std::string ZipBytes(const std::vector<ZipPart>& parts, const ZipEnd& end = {}) {
  std::string out;
  std::string directory;
  for (const ZipPart& part : parts) {
    const auto offset = part.central_offset >= 0 ? static_cast<uint64_t>(part.central_offset)
                                                 : uint64_t{out.size()};
    const uint64_t bytes = part.bytes >= 0 ? static_cast<uint64_t>(part.bytes) : part.data.size();
    const std::string local_name = part.local_name.empty() ? part.name : part.local_name;
    const std::string sizes = LittleEndian(part.crc != 0 ? part.crc : Crc32(part.data), 4) +
                              LittleEndian(part.data.size(), 4) + LittleEndian(bytes, 4);
    const std::string common = LittleEndian(20, 2) + LittleEndian(part.flags, 2) +
                               LittleEndian(part.method, 2) + LittleEndian(0x21'0000, 4) + sizes;
    out += "PK\x03\x04" + common + LittleEndian(local_name.size(), 2) + LittleEndian(0, 2) +
           local_name + part.data;
    directory += "PK\x01\x02" + LittleEndian(20, 2) + common + LittleEndian(part.name.size(), 2) +
                 LittleEndian(part.central_extra.size(), 2) + LittleEndian(0, 10) +
                 LittleEndian(offset, 4) + part.name + part.central_extra;
  }
  const auto entries = end.entries >= 0 ? static_cast<uint64_t>(end.entries) : parts.size();
  const uint64_t offset = out.size();
  return out + directory + "PK\x05\x06" + LittleEndian(end.disk, 2) + LittleEndian(0, 2) +
         LittleEndian(entries, 2) + LittleEndian(entries, 2) + LittleEndian(directory.size(), 4) +
         LittleEndian(offset, 4) + LittleEndian(end.comment.size(), 2) + end.comment;
}

/// Pieces of a pickle of protocol 2.
namespace pickle {
using std::string_literals::operator""s;

inline std::string Text(const std::string& text) {
  return "X" + LittleEndian(text.size(), 4) + text;
}
inline std::string Int(int64_t value) {
  return "J" + LittleEndian(static_cast<uint64_t>(value), 4);
}
inline std::string Tuple(const std::vector<int64_t>& values) {
  std::string out = "(";
  for (const int64_t value : values) out += Int(value);
  return out + "t";
}
/// A tensor as torch.save writes it.
struct Tensor {
  std::string key = "0";
  std::string type = "FloatStorage";
  int64_t storage_elements = 6;
  int64_t offset = 0;
  std::vector<int64_t> shape = {2, 3};
  std::vector<int64_t> strides = {3, 1};

  std::string Bytes() const {
    return "ctorch._utils\n_rebuild_tensor_v2\n((" + Text("storage") + "ctorch\n" + type + "\n" +
           Text(key) + Text("cpu") + Int(storage_elements) + "tQ" + Int(offset) + Tuple(shape) +
           Tuple(strides) + "\x89" + "ccollections\nOrderedDict\n)RtR";
  }
};
inline std::string Document(const std::string& body) { return "\x80\x02" + body + "."; }
/// A dict of these alternating keys and values, each of them a pickled piece.
inline std::string Dict(const std::vector<std::string>& keys_and_values) {
  std::string out = "}(";
  for (const std::string& piece : keys_and_values) out += piece;
  return out + "u";
}
}  // namespace pickle

}  // namespace lookback::testing
