#include "base/json.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace cuvil {
namespace {

// Members an object has room for at once: most of ours have fewer, and growing copies keys.
constexpr size_t kMembersReserved = 8;
// Up to here equal keys are found by comparing, which is faster than a set.
constexpr size_t kMembersCompared = 32;

// Builds the value while watching for equal keys. Containers that are open do not move: only the
// innermost one grows.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Json Take() { return std::move(root_); }
  const absl::Status& status() const { return status_; }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has none
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }
  bool end_object() override { return Close(); }

  bool start_object(size_t) override {
    Open(Json::object());
    open_.back().value->get_ref<Json::object_t&>().reserve(kMembersReserved);
    return true;
  }

  bool key(string_t& key) override {
    Container& object = open_.back();
    auto& members = object.value->get_ref<Json::object_t&>();
    if (IsThere(key, members, object.keys)) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("JSON is refused: key '", key, "' appears twice"));
      return false;
    }
    members.emplace_back(std::move(key), nullptr);
    object.member = &members.back().second;
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& e) override {
    status_ = absl::InvalidArgumentError(absl::StrCat("JSON does not parse: ", e.what()));
    return false;
  }

 private:
  struct Container {
    Json* value = nullptr;
    Json* member = nullptr;      // of an object: the place of the next value
    std::set<std::string> keys;  // of an object with more than kMembersCompared members
  };

  static bool IsThere(const std::string& key, const Json::object_t& members,
                      std::set<std::string>& keys) {
    if (members.size() < kMembersCompared) {
      return std::any_of(members.begin(), members.end(),
                         [&](const auto& member) { return member.first == key; });
    }
    if (keys.empty()) {
      for (const auto& member : members) keys.insert(member.first);
    }
    return !keys.insert(key).second;
  }

  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Container& top = open_.back();
    if (top.member != nullptr) {
      *top.member = std::move(value);
      return top.member;
    }
    auto& items = top.value->get_ref<Json::array_t&>();
    items.push_back(std::move(value));
    return &items.back();
  }
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(Json container) {
    Json* const at = Place(std::move(container));
    open_.push_back({.value = at});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Container> open_;
  absl::Status status_;
};

// nlohmann's parser is iterative but its DOM destructor and our readers are not: bound the nesting
// before parsing, outside strings.
bool TooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kJsonDepthMax) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text) {
  if (TooDeep(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON is nested deeper than ", kJsonDepthMax, " levels"));
  }
  Builder builder;
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return builder.Take();
  CUVIL_CHECK(!builder.status().ok(), "a parser that stops says why");
  return builder.status();
}

std::string WriteJson(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cuvil
