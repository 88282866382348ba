#include "server/ops/values.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace cuvil::ops {
namespace {

constexpr size_t kHashDigits = 64;

struct Suffix {
  std::string_view text;
  double factor;
};
constexpr Suffix kSizes[] = {{"", 1},
                             {"B", 1},
                             {"KiB", 1024.0},
                             {"MiB", 1024.0 * 1024},
                             {"GiB", 1024.0 * 1024 * 1024},
                             {"TiB", 1024.0 * 1024 * 1024 * 1024},
                             {"Ki", 1024.0},
                             {"Mi", 1024.0 * 1024},
                             {"Gi", 1024.0 * 1024 * 1024},
                             {"Ti", 1024.0 * 1024 * 1024 * 1024},
                             {"kB", 1e3},
                             {"KB", 1e3},
                             {"MB", 1e6},
                             {"GB", 1e9},
                             {"TB", 1e12}};
constexpr Suffix kDurations[] = {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};

absl::Status Takes(std::string_view what, std::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("takes ", Sv(what), ", not '", Sv(text), "'"));
}

// Splits "1.5GiB" into digits with at most one dot, and the rest.
bool SplitNumber(std::string_view text, double* number, std::string_view* rest) {
  size_t end = 0;
  int dots = 0;
  while (end < text.size() && (absl::ascii_isdigit(text[end]) || text[end] == '.')) {
    dots += text[end] == '.';
    ++end;
  }
  // Thirty digits are beyond every range here.
  if (end == 0 || end > 30 || dots > 1 || text.front() == '.' || text[end - 1] == '.') return false;
  *rest = text.substr(end);
  return absl::SimpleAtod(Sv(text.substr(0, end)), number);
}

bool IsNameChar(char c) { return absl::ascii_isalnum(c) || absl::StrContains("._-:/@+", c); }

std::string FileStem(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash != path.npos) path.remove_prefix(slash + 1);
  if (path.ends_with(".gguf")) path.remove_suffix(5);
  return std::string(path);
}

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

absl::StatusOr<bool> ParseSwitch(std::string_view text) {
  const std::string lower = absl::AsciiStrToLower(Sv(text));
  if (lower == "true" || lower == "on" || lower == "yes" || lower == "1") return true;
  if (lower == "false" || lower == "off" || lower == "no" || lower == "0") return false;
  return Takes("true or false", text);
}

absl::StatusOr<int64_t> ParseCount(std::string_view text) {
  int64_t value = 0;
  if (absl::SimpleAtoi(Sv(text), &value) && absl::StrCat(value) == Sv(text)) return value;
  return Takes("a whole number", text);
}

absl::StatusOr<int64_t> ParseSize(std::string_view text) {
  constexpr std::string_view kTakes = "a size such as 1048576, 64KiB, 2GiB or 2GB";
  double number = 0;
  std::string_view rest;
  if (!SplitNumber(text, &number, &rest)) return Takes(kTakes, text);
  for (const Suffix& suffix : kSizes) {
    if (suffix.text != rest) continue;
    const double bytes = number * suffix.factor;
    if (bytes > 9e18) return Takes("a size below 9 exabytes", text);
    if (bytes != std::floor(bytes)) return Takes("a whole number of bytes", text);
    return static_cast<int64_t>(bytes);
  }
  return Takes(kTakes, text);
}

absl::StatusOr<double> ParseDuration(std::string_view text, std::string_view unit) {
  double number = 0;
  std::string_view rest;
  if (SplitNumber(text, &number, &rest)) {
    if (rest.empty()) return number;
    for (const Suffix& suffix : kDurations) {
      if (suffix.text != rest) continue;
      if (unit == "s") return number * suffix.factor;
      return rest == "ms" ? number : number * suffix.factor * 1000;
    }
  }
  return Takes(
      absl::StrCat("a duration such as 30s, 250ms or 5m (a plain number is in ", Sv(unit), ")"),
      text);
}

absl::StatusOr<ModelEntry> ParseModel(std::string_view text) {
  ModelEntry model;
  RETURN_IF_ERROR(CheckPlainText(text));
  const size_t equals = text.find('=');
  // Names may have a slash (org/model) and paths an '=': a text that begins as a path is one.
  const bool named = equals != text.npos && !text.starts_with('/') && !text.starts_with('.');
  model.path = std::string(named ? text.substr(equals + 1) : text);
  model.name = named ? std::string(text.substr(0, equals)) : FileStem(model.path);
  if (model.path.empty()) return Takes("[NAME=]PATH", text);
  RETURN_IF_ERROR(CheckModelName(model.name));
  return model;
}

absl::StatusOr<KeyEntry> ParseKey(std::string_view text) {
  // The text is never repeated in an error: it may be a key that someone forgot to hash.
  const absl::Status wrong = absl::InvalidArgumentError(
      "takes sha256:HEX[:TENANT[:WEIGHT[:admin]]] with 64 hex digits, the hash of a key and not "
      "the key itself; cuvil config --new-key makes one");
  const std::vector<std::string> parts = absl::StrSplit(Sv(text), ':');
  if (parts.size() < 2 || parts.size() > 5 || parts[0] != "sha256") return wrong;
  KeyEntry key;
  key.hash = absl::AsciiStrToLower(parts[1]);
  const bool hex = std::all_of(key.hash.begin(), key.hash.end(), absl::ascii_isxdigit);
  if (key.hash.size() != kHashDigits || !hex) return wrong;
  if (parts.size() > 2) key.tenant = parts[2];
  RETURN_IF_ERROR(CheckTenant(key.tenant));
  if (parts.size() > 3) {
    std::string_view rest;
    if (!SplitNumber(parts[3], &key.weight, &rest) || !rest.empty()) return wrong;
    RETURN_IF_ERROR(CheckRange(key.weight, 1 / kWeightMax, kWeightMax, "(a tenant's weight)"));
  }
  if (parts.size() > 4) {
    if (parts[4] != "admin") return wrong;
    key.admin = true;
  }
  return key;
}

std::string SizeText(int64_t bytes) {
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  std::string_view unit;
  int64_t count = bytes;
  for (const std::string_view larger : kUnits) {
    if (count == 0 || count % 1024 != 0) break;
    count /= 1024;
    unit = larger;
  }
  return absl::StrCat(count, Sv(unit));
}

std::string ModelText(const ModelEntry& model) { return model.name + "=" + model.path; }

std::string KeyText(const KeyEntry& key, bool shorten) {
  std::string text = shorten ? absl::StrCat("sha256:", key.hash.substr(0, 8), "…:", key.tenant)
                             : absl::StrCat("sha256:", key.hash, ":", key.tenant);
  if (key.weight != 1 || key.admin) absl::StrAppend(&text, ":", key.weight);
  if (key.admin) text += ":admin";
  return text;
}

absl::Status CheckRange(double value, double min, double max, std::string_view unit) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("takes %.12g to %.12g %s, not %.12g", min, max, unit, value));
}

absl::Status CheckChoice(std::string_view text, std::string_view choices) {
  const std::vector<std::string> all = absl::StrSplit(Sv(choices), '|');
  if (std::find(all.begin(), all.end(), text) != all.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Takes(choices, text).message(), DidYouMean(text, all)));
}

absl::Status CheckPlainText(std::string_view text) {
  if (text.size() > kTextMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("takes at most ", kTextMax, " bytes, not ", text.size()));
  }
  for (const char c : text) {
    if (absl::ascii_iscntrl(c)) {
      return absl::InvalidArgumentError("takes text without control characters");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckModelName(std::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(), IsNameChar);
  const bool safe = !absl::StrContains(Sv(name), "..") && !name.starts_with('/');
  if (!name.empty() && name.size() <= kNameMax && plain && safe) return absl::OkStatus();
  return Takes(
      absl::StrCat("a model name of 1 to ", kNameMax, " letters, digits and ._-:/@+ (no '..')"),
      name);
}

absl::Status CheckTenant(std::string_view tenant) {
  const bool plain = std::all_of(tenant.begin(), tenant.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
  });
  if (!tenant.empty() && tenant.size() <= kNameMax && plain) return absl::OkStatus();
  return Takes(absl::StrCat("a tenant of 1 to ", kNameMax, " letters, digits and ._-"), tenant);
}

std::string ClosestName(std::string_view word, const std::vector<std::string>& names) {
  const std::string lower = absl::AsciiStrToLower(Sv(word.substr(0, kNameMax)));
  // A third of the letters may differ, and two always (they swap easily): more, and the suggestion
  // puzzles.
  const int length = static_cast<int>(lower.size());
  int best = (length < 4 ? 1 : std::max(2, length / 3)) + 1;
  std::string closest;
  for (const std::string& name : names) {
    const int distance = EditDistance(lower, absl::AsciiStrToLower(name));
    if (distance < best) {
      best = distance;
      closest = name;
    }
  }
  return closest;
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& names) {
  const std::string closest = ClosestName(word, names);
  return closest.empty() ? "" : absl::StrCat("; did you mean '", closest, "'?");
}

}  // namespace cuvil::ops
