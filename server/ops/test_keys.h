// Keys for tests.
#pragma once

#include <string>

#include "server/ops/keys.h"
#include "server/ops/values.h"

namespace cuvil::ops {

inline KeyEntry TestKey(const std::string& key, const std::string& tenant, double weight = 1) {
  KeyEntry entry = *ParseKey(HashOfKey(key));
  entry.tenant = tenant;
  entry.weight = weight;
  return entry;
}

}  // namespace cuvil::ops
