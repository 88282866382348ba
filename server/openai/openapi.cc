#include "server/openai/openapi.h"

#include "base/json.h"
#include "server/openai/field.h"

namespace cuvil::server::openai {
namespace {

const FieldTable* TableOf(std::string_view path) {
  if (path == "/v1/chat/completions") return &ChatTable();
  if (path == "/v1/completions") return &CompletionTable();
  if (path == "/v1/embeddings") return &EmbeddingTable();
  if (path == "/tokenize") return &TokenizeTable();
  if (path == "/detokenize") return &DetokenizeTable();
  return nullptr;
}

Json ErrorSchema() {
  const Json text_or_null = {{"type", Json::array({"string", "null"})}};
  Json properties = {{"message", {{"type", "string"}}},
                     {"type", {{"type", "string"}}},
                     {"param", text_or_null},
                     {"code", text_or_null}};
  Json error = {{"type", "object"},
                {"required", Json::array({"message", "type", "param", "code"})},
                {"properties", std::move(properties)}};
  return {{"type", "object"},
          {"required", Json::array({"error"})},
          {"properties", {{"error", std::move(error)}}}};
}

Json Parameters(std::string_view path) {
  Json parameters = Json::array();
  for (size_t open = path.find('{'); open != std::string_view::npos;
       open = path.find('{', open + 1)) {
    const size_t close = path.find('}', open);
    parameters.push_back({{"name", std::string(path.substr(open + 1, close - open - 1))},
                          {"in", "path"},
                          {"required", true},
                          {"schema", {{"type", "string"}}}});
  }
  return parameters;
}

Json Operation(const PathDoc& path) {
  Json operation = {{"summary", path.doc}};
  if (Json parameters = Parameters(path.path); !parameters.empty()) {
    operation["parameters"] = std::move(parameters);
  }
  if (const FieldTable* table = TableOf(path.path); table != nullptr) {
    const Json schema = {{"$ref", absl::StrCat("#/components/schemas/", table->title())}};
    operation["requestBody"] = {{"required", true},
                                {"content", {{"application/json", {{"schema", schema}}}}}};
  }
  const Json error = {{"schema", {{"$ref", "#/components/schemas/Error"}}}};
  operation["responses"] = {
      {"2XX", {{"description", "The answer."}}},
      {"default", {{"description", "An error."}, {"content", {{"application/json", error}}}}}};
  if (!path.needs_key) operation["security"] = Json::array();
  return operation;
}

}  // namespace

std::string OpenApi(const std::vector<PathDoc>& paths, std::string_view version) {
  Json schemas = {{"Error", ErrorSchema()}};
  for (const FieldTable* table : {&ChatTable(), &CompletionTable(), &EmbeddingTable(),
                                  &TokenizeTable(), &DetokenizeTable()}) {
    schemas[table->title()] = table->Schema();
  }
  Json listed = Json::object();
  for (const PathDoc& path : paths) {
    listed[path.path][path.is_post ? "post" : "get"] = Operation(path);
  }
  Json document = {{"openapi", "3.1.0"}};
  document["info"] = {{"title", "Cuvil"}, {"version", std::string(version)}};
  document["security"] = Json::array({{{"key", Json::array()}}});
  document["paths"] = std::move(listed);
  document["components"] = {
      {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}},
      {"schemas", std::move(schemas)}};
  return WriteJson(document);
}

}  // namespace cuvil::server::openai
