// Hashes: SHA-256 for content addresses, XXH3-128 for fast integrity checks of large data.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace cuvil {

using Sha256Digest = std::array<uint8_t, 32>;
Sha256Digest Sha256(absl::Span<const uint8_t> bytes);
// 64 lower-case hex digits.
std::string Sha256Hex(absl::Span<const uint8_t> bytes);
std::string Sha256Hex(std::string_view text);

// 32 lower-case hex digits. Not a defence against an attacker.
std::string Xxh128Hex(absl::Span<const uint8_t> bytes);

}  // namespace cuvil
