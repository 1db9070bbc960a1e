#include "engine/sha256.h"

#include <openssl/evp.h>

#include "engine/status.h"

namespace lookback {

namespace {
EVP_MD_CTX* Context(void* context) { return static_cast<EVP_MD_CTX*>(context); }
}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  LOOKBACK_CHECK(context_ != nullptr);
  LOOKBACK_CHECK(EVP_DigestInit_ex(Context(context_), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(Context(context_)); }

void Sha256::Update(std::string_view bytes) {
  LOOKBACK_CHECK(EVP_DigestUpdate(Context(context_), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::Finish() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  LOOKBACK_CHECK(EVP_DigestFinal_ex(Context(context_), digest, &size) == 1);
  std::string out;
  for (unsigned int i = 0; i < size; ++i) {
    out += kDigits[digest[i] >> 4];
    out += kDigits[digest[i] & 0xF];
  }
  return out;
}

std::string Sha256Hex(std::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

}  // namespace lookback
