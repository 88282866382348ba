// A call that a model works on: checked on the pool, submitted, its events written as they come.
// Ends the model's work the moment nobody can read the answer: the client cancelled or left, Abort
// named it, or it reads too slowly.
//
// Lifetime: its reactor part until OnDone, itself until the backend has let go of its sink. gRPC's
// threads, the pool and the event thread come in; one lock orders them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/grpc/call.h"
#include "server/openai/prepare.h"

namespace cuvil::server::grpc {

class ModelCall : public EventTaker, public std::enable_shared_from_this<ModelCall> {
 public:
  // Once, from the method's handler.
  void Start(size_t request_bytes, std::string_view id);

  // Ends it with this status, unless it has ended. What is queued is sent before, or dropped.
  enum class Queued : uint8_t { kSend, kDrop };
  void End(const absl::Status& status, Queued queued);
  bool ended() const;  // its status is decided

  void Take(Events events) override;
  // Cuts the stream when its client has read nothing for too long.
  void CheckProgress();

 protected:
  ModelCall(Door* door, ::grpc::CallbackServerContext* context, Method method)
      : exchange_(door, context, method) {}

  // On the pool: what the model is asked. The request message may be read until it returns.
  virtual absl::StatusOr<GenerateRequest> Prepare(const openai::CallContext& context) = 0;
  // Puts what has happened into the answer; an error ends the call.
  virtual absl::Status Gather(Events events) = 0;
  // Begins to send the next queued message, if there is any; OnSent follows then.
  virtual bool SendNext() = 0;
  virtual void DropQueued() = 0;
  virtual size_t QueuedBytes() const { return 0; }
  virtual void FinishReactor(::grpc::Status status) = 0;

  // For the reactor's reactions of the same names.
  void OnSent(bool ok);
  void OnClientGone();
  void OnReactorDone();

  Call exchange_;

 private:
  using Clock = std::chrono::steady_clock;

  void PrepareAndSubmit();
  // With the lock held.
  void EndLocked(const absl::Status& status, Queued queued);
  void Pump();
  void NoteEnd(const Events& events);

  mutable std::mutex mutex_;
  std::shared_ptr<ModelCall> self_;  // until OnDone
  std::optional<absl::Status> final_;
  std::optional<uint64_t> handle_;
  bool preparing_ = false;     // the pool has it
  bool submitted_ = false;     // the backend has accepted it
  bool backend_done_ = false;  // and told its last event
  bool sending_ = false, finished_ = false, done_ = false;
  bool registered_ = false;
  FinishReason worst_ = FinishReason::kStop;  // of the choices that have ended
  Clock::time_point progress_at_ = Clock::now();
};

}  // namespace cuvil::server::grpc
