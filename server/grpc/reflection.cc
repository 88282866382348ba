#include "server/grpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <string>
#include <vector>

#include "server/grpc/call.h"

namespace cuvil::server::grpc {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using ::grpc::reflection::v1alpha::ServerReflectionRequest;
using ::grpc::reflection::v1alpha::ServerReflectionResponse;

constexpr const char* kServices[] = {"cuvil.v1.Cuvil", "grpc.health.v1.Health",
                                     "grpc.reflection.v1alpha.ServerReflection"};
// Names are far shorter; every question comes back in its answer.
constexpr size_t kQuestionBytesMax = 4096;

// The file and all it imports, each once.
void AddFiles(const FileDescriptor* first, ServerReflectionResponse* response) {
  auto* out = response->mutable_file_descriptor_response();
  std::set<const FileDescriptor*> seen = {first};
  std::vector<const FileDescriptor*> open = {first};
  while (!open.empty()) {
    const FileDescriptor* file = open.back();
    open.pop_back();
    google::protobuf::FileDescriptorProto proto;
    file->CopyTo(&proto);
    out->add_file_descriptor_proto(proto.SerializeAsString());
    for (int i = 0; i < file->dependency_count(); ++i) {
      if (seen.insert(file->dependency(i)).second) open.push_back(file->dependency(i));
    }
  }
}

void Fail(::grpc::StatusCode code, const char* message, ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(code);
  response->mutable_error_response()->set_error_message(message);
}

// Questions and answers in turn; an operation at a time, so that no lock is needed.
class ReflectionCall
    : public ::grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse> {
 public:
  ReflectionCall(Door* door, ::grpc::CallbackServerContext* context)
      : call_(door, context, Method::kReflection) {
    const absl::Status admitted = call_.Admit(0, "");
    if (admitted.ok()) {
      StartRead(&request_);
    } else {
      Finish(call_.Close(admitted, /*turned_away=*/true));
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(call_.Close(absl::OkStatus(), false));
    if (request_.ByteSizeLong() > kQuestionBytesMax) {
      return Finish(call_.Close(absl::InvalidArgumentError("the question is too long"), true));
    }
    response_.Clear();
    Reflect(request_, &response_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(call_.Close(call_.WhyCancelled(), false));
    StartRead(&request_);
  }
  void OnDone() override {
    call_.Done();
    delete this;
  }

 private:
  Call call_;
  ServerReflectionRequest request_;
  ServerReflectionResponse response_;
};

}  // namespace

void Reflect(const ServerReflectionRequest& request, ServerReflectionResponse* response) {
  response->set_valid_host(request.host());
  *response->mutable_original_request() = request;
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const FileDescriptor* file = nullptr;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const char* name : kServices) {
        response->mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case ServerReflectionRequest::kFileByFilename:
      file = pool.FindFileByName(request.file_by_filename());
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      file = pool.FindFileContainingSymbol(request.file_containing_symbol());
      break;
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      if (pool.FindMessageTypeByName(request.all_extension_numbers_of_type()) == nullptr) break;
      response->mutable_all_extension_numbers_response()->set_base_type_name(
          request.all_extension_numbers_of_type());  // it has none
      return;
    case ServerReflectionRequest::kFileContainingExtension:
      break;  // there are none
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      return Fail(::grpc::StatusCode::INVALID_ARGUMENT, "the question is empty", response);
  }
  if (file == nullptr) {
    return Fail(::grpc::StatusCode::NOT_FOUND, "there is nothing of that name", response);
  }
  AddFiles(file, response);
}

::grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse>*
ReflectionService::ServerReflectionInfo(::grpc::CallbackServerContext* context) {
  return new ReflectionCall(door_, context);
}

}  // namespace cuvil::server::grpc
