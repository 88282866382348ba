// Typed metadata reads of File.

#include "compiler/import/gguf/file.h"

namespace cuvil::gguf {

absl::StatusOr<const Value*> File::Require(std::string_view key) const {
  const Value* value = Find(key);
  if (value != nullptr) return value;
  return absl::NotFoundError(absl::StrCat("metadata ", Quoted(key), " is missing from ",
                                          Quoted(name_), "; convert the model again"));
}

absl::Status File::WrongType(std::string_view key, std::string_view wanted) const {
  return absl::InvalidArgumentError(absl::StrCat("metadata ", Quoted(key), " in ", Quoted(name_),
                                                 " is ", Describe(*Find(key)), ", not ",
                                                 std::string(wanted)));
}

absl::StatusOr<int64_t> File::Int(std::string_view key) const {
  ASSIGN_OR_RETURN(const Value* value, Require(key));
  int64_t out;
  if (!ToInt(*value, &out)) return WrongType(key, "an integer below 2^63");
  return out;
}

absl::StatusOr<double> File::Float(std::string_view key) const {
  ASSIGN_OR_RETURN(const Value* value, Require(key));
  double out;
  if (!ToDouble(*value, &out)) return WrongType(key, "a float");
  return out;
}

absl::StatusOr<bool> File::Bool(std::string_view key) const {
  ASSIGN_OR_RETURN(const Value* value, Require(key));
  if (value->type != ValueType::kBool) return WrongType(key, "a bool");
  return value->bytes[0] != 0;
}

absl::StatusOr<std::string_view> File::String(std::string_view key) const {
  ASSIGN_OR_RETURN(const Value* value, Require(key));
  if (value->type != ValueType::kString) return WrongType(key, "a string");
  return value->AsString();
}

absl::StatusOr<std::vector<int64_t>> File::Ints(std::string_view key) const {
  ASSIGN_OR_RETURN(const Value* value, Require(key));
  std::vector<int64_t> out;
  if (!ToInts(*value, &out)) return WrongType(key, "an array of integers below 2^63");
  return out;
}

absl::StatusOr<std::vector<double>> File::Floats(std::string_view key) const {
  ASSIGN_OR_RETURN(const Value* value, Require(key));
  std::vector<double> out;
  if (!ToDoubles(*value, &out)) return WrongType(key, "an array of floats");
  return out;
}

absl::StatusOr<std::vector<bool>> File::Bools(std::string_view key) const {
  ASSIGN_OR_RETURN(const Value* value, Require(key));
  std::vector<bool> out;
  if (!ToBools(*value, &out)) return WrongType(key, "an array of bools");
  return out;
}

absl::StatusOr<std::vector<std::string_view>> File::Strings(std::string_view key) const {
  ASSIGN_OR_RETURN(const Value* value, Require(key));
  std::vector<std::string_view> out;
  if (!ToStrings(*value, &out)) return WrongType(key, "an array of strings");
  return out;
}

absl::StatusOr<int64_t> File::IntOr(std::string_view key, int64_t fallback) const {
  return Has(key) ? Int(key) : fallback;
}

absl::StatusOr<double> File::FloatOr(std::string_view key, double fallback) const {
  return Has(key) ? Float(key) : fallback;
}

absl::StatusOr<bool> File::BoolOr(std::string_view key, bool fallback) const {
  return Has(key) ? Bool(key) : fallback;
}

absl::StatusOr<std::string_view> File::StringOr(std::string_view key,
                                                std::string_view fallback) const {
  return Has(key) ? String(key) : fallback;
}

}  // namespace cuvil::gguf
