#include "base/hash.h"

#include <openssl/sha.h>

#include "absl/strings/str_format.h"
#include "xxhash.h"

namespace cuvil {

std::string Sha256Hex(absl::Span<const uint8_t> bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(bytes.data(), bytes.size(), digest);
  std::string out;
  for (const unsigned char byte : digest) absl::StrAppendFormat(&out, "%02x", byte);
  return out;
}

std::string Sha256Hex(std::string_view text) {
  return Sha256Hex(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

std::string Xxh128Hex(absl::Span<const uint8_t> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace cuvil
