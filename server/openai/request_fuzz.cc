// Any bytes as a request body of any endpoint: it ends with a request whose every value the backend
// may trust, or with an error that can be sent.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/openai/error.h"
#include "server/openai/fake_backend.h"
#include "server/openai/prepare.h"
#include "server/openai/trusted_request.h"

namespace {

using cuvil::server::FakeBackend;
using cuvil::server::GenerateRequest;
namespace openai = cuvil::server::openai;

void CheckError(const absl::Status& status) {
  const openai::ApiError error = openai::ErrorOf(status);
  CUVIL_CHECK(error.status >= 400 && error.status < 600, "a status of HTTP");
  CUVIL_CHECK(error.status != 500, "no input is an internal error");
  const auto body = cuvil::ParseJson(openai::ErrorBody(error));
  CUVIL_CHECK(body.ok() && (*body)["error"].size() == 4, "four keys");
}

// The answer of whatever was asked is JSON.
void Answer(openai::Call* call) {
  std::string sse;
  for (size_t part = 0; part < call->parts.size(); ++part) {
    GenerateRequest& request = call->parts[part];
    request.max_tokens = std::min<int64_t>(request.max_tokens, 3);
    for (cuvil::server::Events& events : FakeBackend::Letters(request)) {
      call->answer->Take(static_cast<int>(part), std::move(events), &sse);
    }
  }
  CUVIL_CHECK(call->answer->complete(), "all parts have ended");
  if (call->stream) {
    CUVIL_CHECK(sse.ends_with("data: [DONE]\n\n"), "a stream says where it ends");
  } else {
    CUVIL_CHECK(cuvil::ParseJson(call->answer->Body()).ok(), "a body is JSON");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* backend = new FakeBackend();
  static const int vocabulary = (*backend->Find(""))->tokenizer()->vocab_size();
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  openai::CallContext context;
  context.backend = backend;
  for (const auto prepare :
       {openai::PrepareChat, openai::PrepareCompletion, openai::PrepareEmbedding}) {
    auto call = prepare(body, context);
    if (!call.ok()) {
      CheckError(call.status());
      continue;
    }
    for (const GenerateRequest& request : call->parts) openai::CheckTrusted(request, vocabulary);
    Answer(&*call);
  }
  for (const auto plain : {openai::Tokenize, openai::Detokenize}) {
    const auto text = plain(body, backend);
    if (!text.ok()) {
      CheckError(text.status());
    } else {
      CUVIL_CHECK(cuvil::ParseJson(*text).ok(), "JSON");
    }
  }
  return 0;
}
