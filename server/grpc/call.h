// One call from its arrival to its last word: who makes it, under which id, what is told of it. A
// part of every method's reactor. One thread at a time; its owner sees to that.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "server/grpc/door.h"

namespace cuvil::server::grpc {

// The methods that are reported: "/cuvil.v1.Cuvil/Generate" and so on. A closed set.
enum class Method : uint8_t {
  kGenerate,
  kEmbed,
  kTokenize,
  kDetokenize,
  kAbort,
  kGetModelInfo,
  kGetLoad,
  kReflection,
};
std::string_view MethodPath(Method method);

class Call {
 public:
  Call(Door* door, ::grpc::CallbackServerContext* context, Method method)
      : door_(door), context_(context), method_(method) {}

  // Whether the call may go on: draining, the key, what the server holds, the id asked for (empty:
  // the one in metadata x-request-id, or a new one).
  absl::Status Admit(size_t request_bytes, std::string_view id);

  // The last status, with its metadata, for the reactor's Finish. `turned_away`: no model has
  // worked on it.
  ::grpc::Status Close(const absl::Status& status, bool turned_away);

  // The reactor's OnDone: nothing of gRPC is used after it.
  void Done();

  // Milliseconds that are left by the client's deadline and the server's limit; 0: no end.
  int64_t deadline_ms() const;
  // Why gRPC says the call is cancelled: by its deadline, or by the client.
  absl::Status WhyCancelled() const;

  Door& door() { return *door_; }
  ::grpc::CallbackServerContext& context() { return *context_; }
  http::RequestRecord& record() { return record_; }
  const std::string& id() const { return record_.id; }
  const std::string& tenant() const { return record_.tenant; }

 private:
  using Clock = std::chrono::steady_clock;

  Door* const door_;
  ::grpc::CallbackServerContext* const context_;
  const Method method_;
  const Clock::time_point arrived_ = Clock::now();
  http::RequestRecord record_;
  size_t request_bytes_ = 0;
  bool entered_ = false, started_ = false;
};

}  // namespace cuvil::server::grpc
