// API keys: who may call, as whom. Only SHA-256 hashes are held. A key is checked against all of
// them in time that does not depend on which matches or how far. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "server/ops/config.h"

namespace cuvil::ops {

struct Tenant {
  std::string id;
  double weight = 1;
  bool admin = false;
};

class KeySet {
 public:
  // An empty set lets everyone in, as tenant "default" and admin: LoadConfig allows it on loopback,
  // or anywhere when told to. The same hash twice is an error.
  static absl::StatusOr<KeySet> Create(const std::vector<KeyEntry>& entries);

  // `bearer` is what follows "Bearer " in the header, empty for none. Unauthenticated, with one
  // sentence for a wrong key and none alike, when it matches no hash.
  absl::StatusOr<Tenant> Authenticate(std::string_view bearer) const;
  // The tenant's name for a door, or also PermissionDenied when `admin` is asked of a key without.
  absl::StatusOr<std::string> Authorize(std::string_view bearer, bool admin) const;

  bool empty() const { return hashes_.empty(); }
  const std::vector<Tenant>& tenants() const { return tenants_; }

 private:
  std::vector<Sha256Digest> hashes_;
  std::vector<Tenant> tenants_;  // beside hashes_
};

// A fresh key of 256 random bits and the text that api_keys takes. The key is shown once and kept
// nowhere. Internal when the system has no randomness.
struct NewKey {
  std::string key;   // "cuvil_" and 43 letters, digits, '-' and '_'
  std::string hash;  // "sha256:…"
};
absl::StatusOr<NewKey> GenerateKey();

// "sha256:…" of a key made elsewhere.
std::string HashOfKey(std::string_view key);

}  // namespace cuvil::ops
