#include "base/hash.h"

#include <openssl/sha.h>

#include "absl/strings/str_format.h"
#include "xxhash.h"

namespace cuvil {

// By the three old calls: they need nothing else of the library, and SHA256() sets up all of it.
Sha256Digest Sha256(absl::Span<const uint8_t> bytes) {
  static_assert(sizeof(Sha256Digest) == SHA256_DIGEST_LENGTH);
  Sha256Digest digest;
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, bytes.data(), bytes.size());
  SHA256_Final(digest.data(), &context);
  return digest;
}

std::string Sha256Hex(absl::Span<const uint8_t> bytes) {
  std::string out;
  for (const uint8_t byte : Sha256(bytes)) absl::StrAppendFormat(&out, "%02x", byte);
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
