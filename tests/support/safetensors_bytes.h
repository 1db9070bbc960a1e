// Hand-made safetensors files, valid or not, for the tests of readers.
#pragma once

#include <cstdint>
#include <string>

#include "engine/json.h"
#include "tests/support/support.h"

namespace lookback::testing {

/// Length, header, data: whatever they say.
inline std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) {
    out += static_cast<char>(static_cast<unsigned char>(uint64_t{header.size()} >> shift));
  }
  return out + header + data;
}

/// A safetensors file taken apart, to be changed and put together again.
struct SafetensorsParts {
  Json header;
  std::string data;

  static SafetensorsParts Read(const std::string& path) {
    const std::string bytes = ReadFile(path);
    uint64_t length = 0;
    for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
    return {Json::parse(bytes.substr(8, length)), bytes.substr(8 + length)};
  }
  /// Padded as our writer pads, so that the data stay aligned.
  void Write(const std::string& path) const {
    std::string text = header.dump();
    text.append((64 - (8 + text.size()) % 64) % 64, ' ');
    WriteFile(path, SafetensorsBytes(text, data));
  }
};

}  // namespace lookback::testing
