// Any bytes as a message of any method: it ends with a request whose every value the backend may
// trust, or with an error that can be sent.
#include <google/protobuf/stubs/logging.h>

#include <cstddef>
#include <cstdint>
#include <deque>

#include "proto/cuvil/v1/cuvil.pb.h"
#include "server/grpc/read_request.h"
#include "server/grpc/status.h"
#include "server/grpc/write_events.h"
#include "server/openai/fake_backend.h"
#include "server/openai/prepare.h"
#include "server/openai/trusted_request.h"

namespace {

namespace door = cuvil::server::grpc;
namespace openai = cuvil::server::openai;
namespace v1 = cuvil::v1;
using cuvil::server::FakeBackend;
using cuvil::server::GenerateRequest;

void CheckError(const absl::Status& status) {
  const grpc::Status sent = door::ToGrpc(status);
  CUVIL_CHECK(!sent.ok() && !sent.error_message().empty(), "an error says what is wrong");
  CUVIL_CHECK(sent.error_code() != grpc::StatusCode::INTERNAL, "no input is an internal error");
}

// The answer of whatever was asked can be sent.
void Answer(GenerateRequest request, const cuvil::server::ServedModel& model) {
  request.max_tokens = std::min<int64_t>(request.max_tokens, 3);
  const door::EventWriter writer = {.request_id = "x",
                                    .logprobs = request.sampling.logprobs >= 0,
                                    .tokenizer = model.tokenizer()};
  std::deque<v1::GenerateResponse> out;
  for (const cuvil::server::Events& events : FakeBackend::Letters(request)) {
    writer.Append(events, &out);
  }
  CUVIL_CHECK(!out.empty() && out.back().has_done(), "Done is last");
  for (const v1::GenerateResponse& message : out) message.SerializeAsString();
}

void Generate(const std::string& bytes, FakeBackend* backend) {
  v1::GenerateRequest message;
  if (!message.ParseFromString(bytes)) return;
  const auto model = *backend->Find("");
  const absl::StatusOr<openai::RequestBody> body = door::ReadBody(message);
  if (!body.ok()) return CheckError(body.status());
  const auto request = openai::PrepareTyped(*body, {.backend = backend});
  if (!request.ok()) return CheckError(request.status());
  openai::CheckTrusted(*request, model->tokenizer()->vocab_size());
  Answer(*request, *model);
}

void Embed(const std::string& bytes, FakeBackend* backend) {
  v1::EmbedRequest message;
  if (!message.ParseFromString(bytes)) return;
  const absl::StatusOr<openai::RequestBody> body = door::ReadBody(message);
  if (!body.ok()) return CheckError(body.status());
  const auto request = openai::PrepareTypedEmbedding(*body, {.backend = backend});
  if (!request.ok()) return CheckError(request.status());
  openai::CheckTrusted(*request, (*backend->Find(""))->tokenizer()->vocab_size());
}

void Tokens(const std::string& bytes, FakeBackend* backend) {
  const auto model = *backend->Find("");
  v1::TokenizeRequest text;
  if (text.ParseFromString(bytes)) {
    const absl::StatusOr<openai::RequestBody> body = door::ReadBody(text);
    if (!body.ok()) return CheckError(body.status());
    const auto tokens = openai::TokensOf(*body, *model);
    if (!tokens.ok()) return CheckError(tokens.status());
  }
  v1::DetokenizeRequest tokens;
  if (tokens.ParseFromString(bytes)) {
    const absl::StatusOr<openai::RequestBody> body = door::ReadBody(tokens);
    if (!body.ok()) return CheckError(body.status());
    const auto decoded = openai::TextOf(*body, *model);
    if (!decoded.ok()) return CheckError(decoded.status());
    v1::DetokenizeResponse response;
    response.set_text(door::WholeUtf8(*decoded));
    CUVIL_CHECK(response.ParseFromString(response.SerializeAsString()), "its text is UTF-8");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* backend = [] {
    google::protobuf::SetLogHandler(nullptr);  // a line for each text that is no UTF-8
    return new FakeBackend();
  }();
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Generate(bytes, backend);
  Embed(bytes, backend);
  Tokens(bytes, backend);
  return 0;
}
