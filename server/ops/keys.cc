#include "server/ops/keys.h"

#include <openssl/crypto.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "base/hash.h"

namespace cuvil::ops {
namespace {

// All ones when equal, else zero; no branch on secret data.
size_t MaskIfEqual(const uint8_t* a, const uint8_t* b, size_t size) {
  const size_t different = CRYPTO_memcmp(a, b, size) != 0;
  return different - 1;
}

}  // namespace

absl::StatusOr<KeySet> KeySet::Create(const std::vector<KeyEntry>& entries) {
  KeySet set;
  for (const KeyEntry& entry : entries) {
    const std::string bytes = absl::HexStringToBytes(entry.hash);
    Sha256Digest hash{};
    if (bytes.size() != hash.size()) {
      return absl::InvalidArgumentError("api_keys: a hash has 64 hex digits");
    }
    std::copy(bytes.begin(), bytes.end(), hash.begin());
    for (const Sha256Digest& other : set.hashes_) {
      if (hash != other) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("api_keys: hash ", entry.hash.substr(0, 8),
                       "… is listed twice; a key belongs to one tenant"));
    }
    set.hashes_.push_back(hash);
    set.tenants_.push_back({entry.tenant, entry.weight, entry.admin});
  }
  return set;
}

absl::StatusOr<Tenant> KeySet::Authenticate(std::string_view bearer) const {
  if (hashes_.empty()) return Tenant{.id = KeyEntry().tenant, .weight = 1, .admin = true};
  const Sha256Digest hash =
      Sha256({reinterpret_cast<const uint8_t*>(bearer.data()), bearer.size()});
  // Every hash is compared in full, and the index of the match is gathered without a branch: time
  // tells neither which key matched nor how much of a hash did.
  size_t found = 0;
  for (size_t i = 0; i < hashes_.size(); ++i) {
    found |= MaskIfEqual(hash.data(), hashes_[i].data(), hash.size()) & (i + 1);
  }
  if (found == 0) {
    return absl::UnauthenticatedError(
        "this needs an API key that the server knows; send it as 'Authorization: Bearer KEY'");
  }
  return tenants_[found - 1];
}

absl::StatusOr<std::string> KeySet::Authorize(std::string_view bearer, bool admin) const {
  ASSIGN_OR_RETURN(const Tenant tenant, Authenticate(bearer));
  if (admin && !tenant.admin) {
    return absl::PermissionDeniedError("this key may not manage models; use an admin key");
  }
  return tenant.id;
}

std::string HashOfKey(std::string_view key) { return "sha256:" + Sha256Hex(key); }

absl::StatusOr<NewKey> GenerateKey() {
  std::array<uint8_t, 32> random{};
  if (getentropy(random.data(), random.size()) != 0) {
    return absl::InternalError("the system gives no random bytes for a key");
  }
  const absl::string_view bytes(reinterpret_cast<const char*>(random.data()), random.size());
  NewKey made;
  made.key = "cuvil_" + absl::WebSafeBase64Escape(bytes);
  made.hash = HashOfKey(made.key);
  return made;
}

}  // namespace cuvil::ops
