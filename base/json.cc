#include "base/json.h"

#include <set>
#include <vector>

namespace cuvil {
namespace {

// Watches nlohmann's DOM callback for depth and duplicate keys.
class Guard {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth >= kJsonDepthMax) return Refuse(absl::StrCat("nested deeper than ", kJsonDepthMax));
      if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      if (!keys_.empty()) keys_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const std::string key = parsed.get<std::string>();
      if (!keys_.empty() && !keys_.back().insert(key).second) {
        return Refuse(absl::StrCat("key '", key, "' appears twice"));
      }
    }
    return true;
  }
  const std::string& error() const { return error_; }

 private:
  bool Refuse(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return false;
  }
  std::vector<std::set<std::string>> keys_;
  std::string error_;
};

// What can be seen of a text without parsing it.
struct Outline {
  bool too_deep = false;
  size_t members = 0;  // of all objects, if it is JSON
};

// nlohmann's parser is iterative but its DOM destructor and our readers are not: bound the nesting
// before parsing, outside strings.
Outline Scan(std::string_view text) {
  Outline outline;
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
      if (++depth > kJsonDepthMax) {
        outline.too_deep = true;
        return outline;
      }
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ':') {
      ++outline.members;
    }
  }
  return outline;
}

// The nesting is bounded.
size_t Members(const Json& value) {
  if (!value.is_structured()) return 0;
  size_t members = value.is_object() ? value.size() : 0;
  for (const Json& child : value) members += Members(child);
  return members;
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text) {
  const Outline outline = Scan(text);
  if (outline.too_deep) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON is nested deeper than ", kJsonDepthMax, " levels"));
  }
  try {
    Json value = Json::parse(text.begin(), text.end());
    // Of two equal keys one has vanished. Which it was costs a slower parser.
    if (Members(value) == outline.members) return value;
    Guard guard;
    Json::parse(text.begin(), text.end(), std::ref(guard));
    return absl::InvalidArgumentError(absl::StrCat("JSON is refused: ", guard.error()));
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("JSON does not parse: ", e.what()));
  }
}

std::string WriteJson(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cuvil
