#include "server/http/handle.h"

#include <utility>

#include "server/http/generation.h"
#include "server/openai/error.h"
#include "server/openai/json_writer.h"
#include "server/openai/openapi.h"

namespace cuvil::server::http {
namespace {

using openai::JsonWriter;
using ConnectionPtr = std::shared_ptr<Connection>;

RejectReason ReasonOf(const openai::ApiError& error) {
  switch (error.status) {
    case 404:
      return RejectReason::kNotFound;
    case 429:
      return RejectReason::kQueueFull;
    case 503:
      return RejectReason::kUnavailable;
    default:
      return error.code == openai::kContextLengthExceeded ? RejectReason::kTooLong
                                                          : RejectReason::kInvalid;
  }
}

void Probe(Connection* connection, bool good, std::string_view otherwise) {
  Response response;
  response.status = good ? 200 : 503;
  JsonWriter json(&response.body);
  json.BeginObject().Key("status").String(good ? "ok" : otherwise).EndObject();
  connection->Respond(std::move(response));
}

void WriteModel(const ModelInfo& info, JsonWriter* json) {
  json->BeginObject().Key("id").String(info.name).Key("object").String("model");
  json->Key("created").Int(info.created).Key("owned_by").String("cuvil");
  json->Key("max_model_len").Int(info.context).EndObject();
}

// A model that is not ready is not offered; it is in /admin/models.
void ListModels(Front* front, Connection* connection) {
  Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Key("object").String("list").Key("data").BeginArray();
  for (const ModelInfo& info : front->backend().Models()) {
    if (info.state == ModelState::kReady) WriteModel(info, &json);
  }
  json.EndArray().EndObject();
  connection->Respond(std::move(response));
}

void OneModel(Front* front, Connection* connection) {
  const std::string& name = connection->exchange().match.argument;
  for (const ModelInfo& info : front->backend().Models()) {
    if (info.name != name || info.state != ModelState::kReady) continue;
    Response response;
    JsonWriter json(&response.body);
    WriteModel(info, &json);
    return connection->Respond(std::move(response));
  }
  RespondError(front, connection,
               openai::About("model", absl::NotFoundError("there is no such model; GET /v1/models "
                                                          "lists those that are served")));
}

void WriteAdminModel(const ModelInfo& info, JsonWriter* json) {
  json->BeginObject().Key("name").String(info.name);
  json->Key("state").String(StateName(info.state));
  json->Key("architecture").String(info.architecture);
  json->Key("error").String(info.error);
  json->Key("load_fraction").Double(info.load_fraction);
  json->Key("created").Int(info.created).Key("context").Int(info.context);
  json->Key("vocab_size").Int(info.vocab_size).Key("embedding_size").Int(info.embedding_size);
  json->Key("memory_bytes").Int(info.memory_bytes).Key("digest").String(info.digest);
  json->EndObject();
}

void AdminModels(Front* front, Connection* connection) {
  Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Key("models").BeginArray();
  for (const ModelInfo& info : front->backend().Models()) WriteAdminModel(info, &json);
  json.EndArray().EndObject();
  connection->Respond(std::move(response));
}

absl::Status DoAction(Backend* backend, const std::string& name, std::string_view action) {
  if (action == "load") return backend->LoadModel(name);
  if (action == "unload") return backend->UnloadModel(name);
  if (action == "sleep") return backend->Sleep(name);
  return backend->Wake(name);
}

void AdminAction(Front* front, Connection* connection) {
  const Match& match = connection->exchange().match;
  const absl::Status status = DoAction(&front->backend(), match.argument, match.action);
  if (!status.ok()) return RespondError(front, connection, status);
  Response response;
  response.status = 202;  // begun; GET /admin/models tells when it is done
  JsonWriter json(&response.body);
  json.BeginObject().Key("name").String(match.argument);
  json.Key("action").String(match.action).EndObject();
  connection->Respond(std::move(response));
}

void Version(Front* front, Connection* connection) {
  Response response;
  JsonWriter json(&response.body);
  json.BeginObject().Key("version").String(front->options().version).EndObject();
  connection->Respond(std::move(response));
}

using TextCall = absl::StatusOr<std::string> (*)(std::string_view body, Backend* backend);

void OnPool(Front* front, const ConnectionPtr& connection, TextCall call) {
  front->OnPool([call, body = std::move(connection->exchange().body),
                 backend = &front->backend()] { return call(body, backend); },
                [front, connection](absl::StatusOr<std::string> body) {
                  if (!connection->open()) return;
                  if (!body.ok()) return RespondError(front, connection.get(), body.status());
                  connection->Respond({.body = *std::move(body)});
                });
}

void Metrics(Front* front, const ConnectionPtr& connection) {
  front->OnPool([metrics = front->hooks().metrics] { return metrics(); },
                [connection](std::string text) {
                  connection->Respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                                       .body = std::move(text)});
                });
}

void OpenApi(Front* front, const ConnectionPtr& connection) {
  std::vector<openai::PathDoc> paths;
  for (const Route& route : Routes()) {
    paths.push_back({route.pattern, route.is_post, route.doc, !route.is_probe});
  }
  front->OnPool([paths = std::move(paths),
                 version = front->options().version] { return openai::OpenApi(paths, version); },
                [connection](std::string text) { connection->Respond({.body = std::move(text)}); });
}

void Generate(Front* front, const ConnectionPtr& connection, Generation::Prepare prepare) {
  const auto generation = std::make_shared<Generation>(front, connection);
  connection->set_job(generation);
  generation->Start(prepare);
}

}  // namespace

void RespondError(Front* front, Connection* connection, const absl::Status& status) {
  if (!connection->open()) return;
  const openai::ApiError error = openai::ErrorOf(status);
  if (error.status < 500 || error.status == 503) {
    front->observer().OnRejected(ReasonOf(error), connection->exchange().record.endpoint);
  }
  connection->Respond(ErrorResponse(status));
}

void Handle(Front* front, const ConnectionPtr& connection) {
  Connection* plain = connection.get();
  Backend& backend = front->backend();
  switch (plain->exchange().match.route->endpoint) {
    case Endpoint::kChat:
      return Generate(front, connection, openai::PrepareChat);
    case Endpoint::kCompletion:
      return Generate(front, connection, openai::PrepareCompletion);
    case Endpoint::kEmbedding:
      return Generate(front, connection, openai::PrepareEmbedding);
    case Endpoint::kTokenize:
      return OnPool(front, connection, openai::Tokenize);
    case Endpoint::kDetokenize:
      return OnPool(front, connection, openai::Detokenize);
    case Endpoint::kModels:
      return ListModels(front, plain);
    case Endpoint::kModel:
      return OneModel(front, plain);
    case Endpoint::kOpenApi:
      return OpenApi(front, connection);
    case Endpoint::kVersion:
      return Version(front, plain);
    case Endpoint::kLive:
      return Probe(plain, backend.alive(), "stalled");
    case Endpoint::kStartup:
      return Probe(plain, backend.started(), "starting");
    case Endpoint::kReady:
    case Endpoint::kHealth: {
      const bool draining = front->draining || backend.draining();
      return Probe(plain, !draining && backend.ready(), draining ? "draining" : "not ready");
    }
    case Endpoint::kMetrics:
      return Metrics(front, connection);
    case Endpoint::kAdminModels:
      return AdminModels(front, plain);
    case Endpoint::kAdminModel:
      return AdminAction(front, plain);
    case Endpoint::kNone:
      break;  // was refused
  }
  CUVIL_CHECK(false, "an admitted request has a route");
}

}  // namespace cuvil::server::http
