// Texts of option values, from files, variables and flags alike. Every parser reads the whole text
// or fails with a sentence that says what is taken; none accepts spaces, signs or leading zeros
// that a person would read differently.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/ops/config.h"

namespace cuvil::ops {

absl::StatusOr<bool> ParseSwitch(std::string_view text);    // true|false|on|off|yes|no|1|0
absl::StatusOr<int64_t> ParseCount(std::string_view text);  // decimal digits, maybe a minus
absl::StatusOr<int64_t> ParseSize(std::string_view text);   // bytes; KiB MiB GiB TiB, kB MB GB TB
// `unit` is "s" or "ms": what a plain number means and what is returned. Suffixes ms s m h d.
absl::StatusOr<double> ParseDuration(std::string_view text, std::string_view unit);
absl::StatusOr<ModelEntry> ParseModel(std::string_view text);  // [NAME=]PATH
absl::StatusOr<KeyEntry> ParseKey(std::string_view text);  // sha256:HEX[:TENANT[:WEIGHT[:admin]]]

// "64KiB" where it is exact, else plain bytes: ParseSize takes it back.
std::string SizeText(int64_t bytes);
std::string ModelText(const ModelEntry& model);
std::string KeyText(const KeyEntry& key, bool shorten);

absl::Status CheckRange(double value, double min, double max, std::string_view unit);
absl::Status CheckChoice(std::string_view text, std::string_view choices);
// No control characters, at most kTextMax bytes.
absl::Status CheckPlainText(std::string_view text);
absl::Status CheckModelName(std::string_view name);
absl::Status CheckTenant(std::string_view tenant);

inline constexpr size_t kTextMax = 4096;    // PATH_MAX
inline constexpr size_t kNameMax = 128;     // of models and tenants: they are label values
inline constexpr double kWeightMax = 1000;  // of a tenant; 1 is the usual

// The closest of `names` by edits (and by letter case), close enough to suggest; empty: none is.
std::string ClosestName(std::string_view word, const std::vector<std::string>& names);
// "; did you mean 'x'?" or "".
std::string DidYouMean(std::string_view word, const std::vector<std::string>& names);

}  // namespace cuvil::ops
