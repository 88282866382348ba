#include "server/ops/config_toml.h"

#include <optional>
#include <vector>

#include "server/ops/options.h"
#include "server/ops/values.h"

// Without exceptions the parser returns its error; header only, so that these settings are ours.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
// Version 3.3 asserts that a key begins where a header's brackets end, which "[[[" does not obey,
// and tells the optimiser so in release builds. The parser refuses such text by itself a few lines
// further, so its assertions are off and none is assumed (config_fuzz covers it).
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>

namespace cuvil::ops {
namespace {

class Reader {
 public:
  Reader(const std::string& path, Effective* effective) : path_(path), effective_(effective) {}

  absl::Status Read(const toml::table& root) {
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      const Option* option = FindOption(name);
      if (option != nullptr && option->section.empty()) {
        RETURN_IF_ERROR(ReadOption(*option, node));
      } else if (IsSection(name) && node.is_table()) {
        RETURN_IF_ERROR(ReadSection(name, *node.as_table()));
      } else {
        return UnknownKey(name, "", key.source());
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Error(const toml::source_region& at, std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ":", at.begin.line, ": ", Sv(what)));
  }
  absl::Status Error(const toml::source_region& at, const absl::Status& status) const {
    return status.ok() ? status : Error(at, Sv(status.message()));
  }

  static bool IsSection(std::string_view name) {
    for (const Option& option : Options()) {
      if (!name.empty() && option.section == name) return true;
    }
    return false;
  }

  absl::Status ReadSection(const std::string& section, const toml::table& table) {
    for (const auto& [key, node] : table) {
      const Option* option = FindOption(key.str());
      if (option == nullptr || option->section != section) {
        return UnknownKey(std::string(key.str()), section, key.source());
      }
      RETURN_IF_ERROR(ReadOption(*option, node));
    }
    return absl::OkStatus();
  }

  absl::Status UnknownKey(const std::string& name, const std::string& section,
                          const toml::source_region& at) const {
    const std::string full = section.empty() ? name : absl::StrCat(section, ".", name);
    std::string hint;
    if (const Option* elsewhere = FindOption(name)) {
      hint = absl::StrCat("; it belongs to ", elsewhere->section.empty()
                                                  ? "the top level"
                                                  : absl::StrCat("[", Sv(elsewhere->section), "]"));
    } else {
      std::vector<std::string> known;
      for (const Option& option : Options()) {
        known.push_back(option.TomlKey());
        if (section.empty() && !option.section.empty()) known.emplace_back(option.section);
      }
      hint = DidYouMean(full, known);
    }
    return Error(at, absl::StrCat("unknown key '", full.substr(0, kNameMax), "'", hint));
  }

  // A value that is one text, whatever its TOML type.
  std::optional<std::string> Scalar(const toml::node& node) const {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
    if (const auto* whole = node.as_integer()) return absl::StrCat(whole->get());
    if (const auto* real = node.as_floating_point()) return absl::StrFormat("%.15g", real->get());
    return std::nullopt;
  }

  absl::Status ReadOption(const Option& option, const toml::node& node) {
    Config& config = effective_->config;
    if (option.kind == OptionKind::kModels) {
      RETURN_IF_ERROR(ReadList(option, node, ParseModel, &Reader::ModelOf, &config.models));
    } else if (option.kind == OptionKind::kKeys) {
      RETURN_IF_ERROR(ReadList(option, node, ParseKey, &Reader::KeyOf, &config.api_keys));
    } else {
      std::vector<std::string> texts;
      RETURN_IF_ERROR(Texts(option, node, &texts));
      RETURN_IF_ERROR(Error(node.source(), SetOption(option, texts, &config)));
    }
    effective_->origins[std::string(option.name)] = {
        Origin::Layer::kFile, absl::StrCat(path_, ":", node.source().begin.line)};
    return absl::OkStatus();
  }

  absl::Status Texts(const Option& option, const toml::node& node,
                     std::vector<std::string>* texts) const {
    if (const std::optional<std::string> text = Scalar(node)) {
      texts->push_back(*text);
      return absl::OkStatus();
    }
    const toml::array* array = node.as_array();
    if (array == nullptr || !option.is_list()) {
      return Error(node.source(), absl::StrCat(Sv(option.name), " takes one value, not a ",
                                               array == nullptr ? "table or date" : "list"));
    }
    for (const toml::node& item : *array) {
      const std::optional<std::string> text = Scalar(item);
      if (!text) return Error(item.source(), absl::StrCat(Sv(option.name), " lists texts"));
      texts->push_back(*text);
    }
    return absl::OkStatus();
  }

  // Items are texts, as in the other layers, or tables.
  template <typename T>
  absl::Status ReadList(const Option& option, const toml::node& node,
                        absl::StatusOr<T> (*parse)(std::string_view),
                        absl::StatusOr<T> (Reader::*from_table)(const toml::table&) const,
                        std::vector<T>* items) const {
    const toml::array* array = node.as_array();
    if (array == nullptr) {
      return Error(node.source(), absl::StrCat(Sv(option.name), " is a list: [[", Sv(option.name),
                                               "]] starts an item"));
    }
    std::vector<T> read;
    for (const toml::node& item : *array) {
      const auto* text = item.as_string();
      const auto* table = item.as_table();
      if (text == nullptr && table == nullptr) {
        return Error(item.source(), absl::StrCat(Sv(option.name), " lists texts or tables"));
      }
      auto value = text != nullptr ? parse(text->get()) : (this->*from_table)(*table);
      if (!value.ok() && text == nullptr) return value.status();
      if (!value.ok()) {
        return Error(item.source(), absl::StrCat(Sv(option.name), ": ", value.status().message()));
      }
      read.push_back(*std::move(value));
    }
    *items = std::move(read);
    return absl::OkStatus();
  }

  // Calls set(key, text) for each entry of an item; `known` is for the suggestion.
  template <typename F>
  absl::Status EachEntry(const toml::table& table, const std::vector<std::string>& known,
                         F set) const {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return Error(key.source(), absl::StrCat("unknown key '", name.substr(0, kNameMax), "'",
                                                DidYouMean(name, known)));
      }
      const std::optional<std::string> text = Scalar(node);
      if (!text) return Error(node.source(), absl::StrCat(name, " takes one value"));
      if (const absl::Status status = set(name, *text); !status.ok()) {
        return Error(node.source(), absl::StrCat(name, ": ", status.message()));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ModelEntry> ModelOf(const toml::table& table) const {
    ModelEntry model;
    const auto count = [](const std::string& text, int64_t* out) -> absl::Status {
      ASSIGN_OR_RETURN(*out, ParseCount(text));
      return CheckRange(static_cast<double>(*out), 0, 1e9, "tokens");
    };
    const auto set = [&](const std::string& key, const std::string& text) -> absl::Status {
      RETURN_IF_ERROR(CheckPlainText(text));
      if (key == "max_kv_len") return count(text, &model.max_kv_len);
      if (key == "kv_sinks") return count(text, &model.kv_sinks);
      if (key == "kv_tokens") return count(text, &model.kv_tokens);
      if (key == "name") model.name = text;
      if (key == "path") model.path = text;
      if (key == "numerics") {
        RETURN_IF_ERROR(CheckChoice(text, FindOption("numerics")->choices));
        model.numerics = text;
      }
      if (key == "preload") {
        ASSIGN_OR_RETURN(model.preload, ParseSwitch(text));
      }
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(EachEntry(
        table, {"name", "path", "preload", "numerics", "max_kv_len", "kv_sinks", "kv_tokens"},
        set));
    if (model.path.empty()) return Error(table.source(), "a model needs a path");
    if (model.name.empty()) {
      absl::StatusOr<ModelEntry> named = ParseModel("./" + model.path);
      if (!named.ok()) return Error(table.source(), named.status());
      model.name = named->name;
    }
    if (const absl::Status s = CheckModelName(model.name); !s.ok()) return Error(table.source(), s);
    return model;
  }

  absl::StatusOr<KeyEntry> KeyOf(const toml::table& table) const {
    std::string hash, tenant = KeyEntry().tenant, weight = "1";
    bool admin = false;
    const auto set = [&](const std::string& key, const std::string& text) -> absl::Status {
      if (key == "hash") hash = text;
      if (key == "tenant") tenant = text;
      if (key == "weight") weight = text;
      if (key == "admin") {
        ASSIGN_OR_RETURN(admin, ParseSwitch(text));
      }
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(EachEntry(table, {"hash", "tenant", "weight", "admin"}, set));
    absl::StatusOr<KeyEntry> key =
        ParseKey(absl::StrCat(hash, ":", tenant, ":", weight, admin ? ":admin" : ""));
    if (!key.ok()) return Error(table.source(), key.status());
    return key;
  }

  const std::string& path_;
  Effective* effective_;
};

}  // namespace

absl::Status ApplyToml(std::string_view text, const std::string& path, Effective* effective) {
  if (text.size() > kConfigBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", text.size(), " bytes; at most ", kConfigBytesMax, " are read"));
  }
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":", parsed.error().source().begin.line,
                                                   ": ", Sv(parsed.error().description())));
  }
  return Reader(path, effective).Read(parsed.table());
}

}  // namespace cuvil::ops
