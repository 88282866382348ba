#include "server/grpc/service.h"

#include <functional>
#include <utility>

#include "server/grpc/embed.h"
#include "server/grpc/generate.h"
#include "server/grpc/read_request.h"
#include "server/openai/error.h"
#include "server/openai/prepare.h"

namespace cuvil::server::grpc {
namespace {

// A method that needs no model's step. Deletes itself when gRPC is done with it. A cancelled one
// ends when its work does: that is short.
class ShortCall : public ::grpc::ServerUnaryReactor {
 public:
  // Fills the response; runs once, if the call is admitted.
  using Work = std::function<absl::Status(Call* call)>;

  ShortCall(Door* door, ::grpc::CallbackServerContext* context, Method method)
      : call_(door, context, method) {}

  enum class Where : uint8_t { kHere, kPool };
  ::grpc::ServerUnaryReactor* Run(size_t request_bytes, Where where, Work work) {
    const absl::Status admitted = call_.Admit(request_bytes, "");
    if (!admitted.ok()) {
      Finish(call_.Close(admitted, /*turned_away=*/true));
    } else if (where == Where::kHere) {
      Finish(call_.Close(work(&call_), /*turned_away=*/true));
    } else {
      call_.door().OnPool([this, work = std::move(work)] {
        Finish(call_.Close(work(&call_), /*turned_away=*/true));
      });
    }
    return this;
  }

  void OnDone() override {
    call_.Done();
    delete this;
  }

 private:
  Call call_;
};

using Where = ShortCall::Where;

void WriteModel(const ModelInfo& info, v1::ModelInfo* out) {
  out->set_name(info.name);
  out->set_state(std::string(StateName(info.state)));
  out->set_architecture(info.architecture);
  out->set_context(info.context);
  out->set_vocab_size(info.vocab_size);
  out->set_embedding_size(info.embedding_size);
  out->set_memory_bytes(info.memory_bytes);
  out->set_load_fraction(info.load_fraction);
}

}  // namespace

::grpc::ServerWriteReactor<v1::GenerateResponse>* CuvilService::Generate(
    ::grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  const auto call = std::make_shared<GenerateCall>(door_, context, request);
  call->Start(request->ByteSizeLong(), request->request_id());
  return call.get();  // keeps itself until it is done
}

::grpc::ServerUnaryReactor* CuvilService::Embed(::grpc::CallbackServerContext* context,
                                                const v1::EmbedRequest* request,
                                                v1::EmbedResponse* response) {
  const auto call = std::make_shared<EmbedCall>(door_, context, request, response);
  call->Start(request->ByteSizeLong(), request->request_id());
  return call.get();
}

::grpc::ServerUnaryReactor* CuvilService::Tokenize(::grpc::CallbackServerContext* context,
                                                   const v1::TokenizeRequest* request,
                                                   v1::TokenizeResponse* response) {
  auto* call = new ShortCall(door_, context, Method::kTokenize);
  return call->Run(
      request->ByteSizeLong(), Where::kPool, [this, request, response](Call* c) -> absl::Status {
        ASSIGN_OR_RETURN(const openai::RequestBody body, ReadBody(*request));
        ASSIGN_OR_RETURN(const auto model, openai::FindModel(&door_->backend(), body));
        c->record().model = model->info().name;
        ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, openai::TokensOf(body, *model));
        response->mutable_tokens()->Assign(tokens.begin(), tokens.end());
        response->set_context(model->info().context);
        return absl::OkStatus();
      });
}

::grpc::ServerUnaryReactor* CuvilService::Detokenize(::grpc::CallbackServerContext* context,
                                                     const v1::DetokenizeRequest* request,
                                                     v1::DetokenizeResponse* response) {
  auto* call = new ShortCall(door_, context, Method::kDetokenize);
  return call->Run(request->ByteSizeLong(), Where::kPool,
                   [this, request, response](Call* c) -> absl::Status {
                     ASSIGN_OR_RETURN(const openai::RequestBody body, ReadBody(*request));
                     ASSIGN_OR_RETURN(const auto model, openai::FindModel(&door_->backend(), body));
                     c->record().model = model->info().name;
                     ASSIGN_OR_RETURN(const std::string text, openai::TextOf(body, *model));
                     response->set_text(WholeUtf8(text));
                     return absl::OkStatus();
                   });
}

::grpc::ServerUnaryReactor* CuvilService::Abort(::grpc::CallbackServerContext* context,
                                                const v1::AbortRequest* request,
                                                v1::AbortResponse* response) {
  auto* call = new ShortCall(door_, context, Method::kAbort);
  return call->Run(
      request->ByteSizeLong(), Where::kHere, [this, request, response](Call* c) -> absl::Status {
        RETURN_IF_ERROR(CheckRequestId(request->request_id()));
        for (const auto& found : door_->Find(c->tenant(), request->request_id())) {
          if (found->ended()) continue;
          response->set_found(true);
          found->End(absl::CancelledError("the request was cancelled"), ModelCall::Queued::kSend);
        }
        return absl::OkStatus();
      });
}

::grpc::ServerUnaryReactor* CuvilService::GetModelInfo(::grpc::CallbackServerContext* context,
                                                       const v1::GetModelInfoRequest* request,
                                                       v1::GetModelInfoResponse* response) {
  auto* call = new ShortCall(door_, context, Method::kGetModelInfo);
  return call->Run(
      request->ByteSizeLong(), Where::kHere, [this, request, response](Call*) -> absl::Status {
        for (const ModelInfo& info : door_->backend().Models()) {
          const bool wanted = request->model().empty() || request->model() == info.name;
          if (wanted) WriteModel(info, response->add_models());
        }
        if (request->model().empty() || response->models_size() > 0) return absl::OkStatus();
        return openai::About("model",
                             absl::NotFoundError("there is no such model; leave the name out for "
                                                 "all that are served"));
      });
}

::grpc::ServerUnaryReactor* CuvilService::GetLoad(::grpc::CallbackServerContext* context,
                                                  const v1::GetLoadRequest* request,
                                                  v1::GetLoadResponse* response) {
  auto* call = new ShortCall(door_, context, Method::kGetLoad);
  return call->Run(request->ByteSizeLong(), Where::kHere,
                   [this, request, response](Call*) -> absl::Status {
                     const absl::StatusOr<Load> load = door_->backend().GetLoad(request->model());
                     if (!load.ok()) return openai::About("model", load.status());
                     response->set_running(load->running);
                     response->set_waiting(load->waiting);
                     response->set_pages_total(load->pages_total);
                     response->set_pages_used(load->pages_used);
                     response->set_pages_cached(load->pages_cached);
                     response->set_page_tokens(load->page_tokens);
                     return absl::OkStatus();
                   });
}

}  // namespace cuvil::server::grpc
