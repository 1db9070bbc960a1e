// SHA-256 over OpenSSL.
#pragma once

#include <string>
#include <string_view>

namespace lookback {

/// SHA-256 of `bytes`, lower-case hex.
std::string Sha256Hex(std::string_view bytes);

/// SHA-256 of a stream of pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(std::string_view bytes);
  /// The digest in lower-case hex. Call once.
  std::string Finish();

 private:
  void* context_;
};

}  // namespace lookback
