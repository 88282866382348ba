// cuvil inspect: what a model file holds, without loading it.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/output.h"
#include "compiler/import/gguf/file.h"
#include "compiler/import/gguf/value.h"

namespace cuvil::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  cuvil inspect model.gguf\n"
    "  cuvil inspect model.gguf --json | python3 -m json.tool";

constexpr size_t kFirst = 8;        // elements of an array that are shown
constexpr size_t kTextShown = 100;  // bytes of a value in the table

struct Options {
  CommonOptions common;
  std::string path;
  bool json = false;
};

template <typename T>
Json FirstOf(const std::vector<T>& values) {
  Json first = Json::array();
  for (size_t i = 0; i < std::min(values.size(), kFirst); ++i) {
    if constexpr (std::is_same_v<T, std::string_view>) {
      first.push_back(std::string(values[i]));
    } else {
      first.push_back(static_cast<T>(values[i]));
    }
  }
  return first;
}

Json FirstElements(const gguf::Value& array) {
  std::vector<int64_t> ints;
  std::vector<double> doubles;
  std::vector<bool> bools;
  std::vector<std::string_view> strings;
  if (gguf::ToInts(array, &ints)) return FirstOf(ints);
  if (gguf::ToDoubles(array, &doubles)) return FirstOf(doubles);
  if (gguf::ToBools(array, &bools)) return FirstOf(bools);
  if (gguf::ToStrings(array, &strings)) return FirstOf(strings);
  return Json::array();  // arrays of arrays
}

// A scalar as it is, an array as {"array": what, "count": n, "first": […]}.
Json ValueJson(const gguf::Value& value) {
  int64_t integer = 0;
  double real = 0;
  if (value.type == gguf::ValueType::kArray) {
    return {
        {"array", gguf::Describe(value)}, {"count", value.count}, {"first", FirstElements(value)}};
  }
  if (value.type == gguf::ValueType::kString) return std::string(value.AsString());
  if (value.type == gguf::ValueType::kBool) return value.bytes[0] != 0;
  if (gguf::ToInt(value, &integer)) return integer;
  if (gguf::ToDouble(value, &real)) return real;
  return gguf::Describe(value);  // an unsigned number beyond 2^63
}

Json FileJson(const gguf::File& file) {
  Json json = {{"path", file.name()},           {"version", file.version()},
               {"alignment", file.alignment()}, {"bytes", file.bytes().size()},
               {"metadata", Json::object()},    {"tensors", Json::array()}};
  for (size_t i = 0; i < file.key_count(); ++i) {
    json["metadata"][std::string(file.key(i))] = ValueJson(file.value(i));
  }
  int64_t parameters = 0;
  for (const gguf::Tensor& t : file.tensors()) {
    parameters += t.elements;
    json["tensors"].push_back({{"name", std::string(t.name)},
                               {"type", std::string(Info(t.dtype).name)},
                               {"shape", t.shape()},
                               {"offset", t.offset},
                               {"bytes", t.data.size()}});
  }
  json["parameters"] = parameters;
  return json;
}

// Cut at a character's start, so that what is shown stays valid UTF-8.
std::string Shortened(std::string text) {
  text = OneLine(text);
  if (text.size() <= kTextShown) return text;
  size_t end = kTextShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "… (", text.size(), " bytes)");
}

std::string ValueText(const Json& value) {
  if (value.is_object()) {
    return absl::StrCat(value["array"].get<std::string>(), ": ",
                        Shortened(WriteJson(value["first"])));
  }
  if (value.is_string()) return Shortened(value.get<std::string>());
  return WriteJson(value);
}

std::string FileText(const Json& f) {
  std::string text = absl::StrFormat("%s\nGGUF version %d, %d bytes, %d parameters\n\n",
                                     f["path"].get<std::string>(), f["version"].get<int64_t>(),
                                     f["bytes"].get<int64_t>(), f["parameters"].get<int64_t>());
  size_t width = 0;
  for (const auto& [key, value] : f["metadata"].items()) width = std::max(width, key.size());
  for (const auto& [key, value] : f["metadata"].items()) {
    absl::StrAppendFormat(&text, "%-*s  %s\n", static_cast<int>(width), OneLine(key),
                          ValueText(value));
  }
  absl::StrAppend(&text, "\n");
  std::map<std::string, std::pair<int64_t, int64_t>> types;  // tensors, bytes
  for (const Json& t : f["tensors"]) {
    const auto type = t["type"].get<std::string>();
    const auto bytes = t["bytes"].get<int64_t>();
    ++types[type].first;
    types[type].second += bytes;
    absl::StrAppendFormat(&text, "%-40s %-7s %-18s %12d bytes\n",
                          OneLine(t["name"].get<std::string>()), type, WriteJson(t["shape"]),
                          bytes);
  }
  for (const auto& [type, sums] : types) {
    absl::StrAppendFormat(&text, "%d tensors of %s, %d bytes\n", sums.first, type, sums.second);
  }
  return text;
}

absl::StatusOr<int> Inspect(Options o) {
  if (!o.path.empty()) o.common.model = o.path;
  ASSIGN_OR_RETURN(const std::string path, ModelPath(o.common));
  ASSIGN_OR_RETURN(const std::shared_ptr<const gguf::File> file, gguf::File::Open(path));
  const Json json = FileJson(*file);
  if (o.json) {
    RETURN_IF_ERROR(WriteJsonOut(json));
  } else {
    RETURN_IF_ERROR(WriteOut(std::string_view(FileText(json))));
  }
  return kDone;
}

}  // namespace

void AddInspect(CLI::App& app, Handler* chosen) {
  CLI::App* sub = Subcommand(app, "inspect", "Show what a model file holds", kFooter);
  auto o = std::make_shared<Options>();
  sub->add_option("path", o->path, "Model file; default: as --model")->type_name("FILE");
  AddModelOption(sub, &o->common);
  sub->add_flag("--json", o->json, "One JSON object instead of a table");
  sub->callback([o, chosen] { *chosen = [o] { return Inspect(*o); }; });
}

}  // namespace cuvil::cli
