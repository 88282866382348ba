#include "server/grpc/model_call.h"

#include <utility>

namespace cuvil::server::grpc {
namespace {

FinishReason ReasonOfFailure(const absl::Status& status) {
  if (absl::IsCancelled(status)) return FinishReason::kAborted;
  return absl::IsDeadlineExceeded(status) ? FinishReason::kDeadline : FinishReason::kError;
}

}  // namespace

void ModelCall::Start(size_t request_bytes, std::string_view id) {
  const std::lock_guard lock(mutex_);
  self_ = shared_from_this();
  if (const absl::Status status = exchange_.Admit(request_bytes, id); !status.ok()) {
    EndLocked(status, Queued::kDrop);
    return Pump();
  }
  preparing_ = true;
  registered_ = true;
  exchange_.door().Add(exchange_.tenant(), exchange_.id(), self_);
  exchange_.door().OnPool([self = self_] { self->PrepareAndSubmit(); });
}

void ModelCall::PrepareAndSubmit() {
  openai::CallContext context;
  context.backend = &exchange_.door().backend();
  context.tenant = exchange_.tenant();
  context.id = exchange_.id();
  context.seed = Door::NewSeed();
  context.deadline_ms = exchange_.deadline_ms();
  absl::StatusOr<GenerateRequest> request = absl::CancelledError("");
  const Clock::time_point began = Clock::now();
  const absl::Status room = context.backend->CheckRoom(context.deadline_ms);
  if (!room.ok()) {
    request = room;
  } else if (!ended()) {
    request = Prepare(context);
  }
  {
    const std::lock_guard lock(mutex_);
    exchange_.record().prepare_s = std::chrono::duration<double>(Clock::now() - began).count();
    if (request.ok()) exchange_.record().model = request->model;
    if (!request.ok()) EndLocked(request.status(), Queued::kDrop);
    if (final_.has_value()) {
      preparing_ = false;
      return Pump();
    }
  }
  request->id = exchange_.id();
  exchange_.record().answer_id = exchange_.id();
  // Without the lock: events may come before this returns.
  const absl::StatusOr<uint64_t> handle = context.backend->Submit(
      *std::move(request), exchange_.door().events().MakeSink(shared_from_this()));
  const std::lock_guard lock(mutex_);
  preparing_ = false;
  if (!handle.ok()) {
    EndLocked(handle.status(), Queued::kDrop);
  } else {
    submitted_ = true;
    handle_ = *handle;
    // It was ended in between, when there was nothing to abort yet.
    if (final_.has_value() && !backend_done_) {
      exchange_.record().finish_reason = FinishName(ReasonOfFailure(*final_));
      exchange_.door().backend().Abort(*handle);
    }
  }
  Pump();
}

bool ModelCall::ended() const {
  const std::lock_guard lock(mutex_);
  return final_.has_value();
}

void ModelCall::End(const absl::Status& status, Queued queued) {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  EndLocked(status, queued);
  Pump();
}

void ModelCall::EndLocked(const absl::Status& status, Queued queued) {
  if (queued == Queued::kDrop) DropQueued();
  if (final_.has_value()) return;
  final_ = status;
  if (!handle_.has_value() || backend_done_) return;
  exchange_.record().finish_reason = FinishName(ReasonOfFailure(status));
  exchange_.door().backend().Abort(*handle_);
}

void ModelCall::NoteEnd(const Events& events) {
  http::RequestRecord& record = exchange_.record();
  for (const ChoiceEnd& end : events.ended) {
    if (!record.finish_reason.empty() && end.reason <= worst_) continue;
    worst_ = end.reason;
    record.finish_reason = FinishName(worst_);
  }
  if (!events.done) return;
  backend_done_ = true;
  record.usage = events.usage;
  record.timings = events.timings;
  if (!events.status.ok()) record.finish_reason = FinishName(ReasonOfFailure(events.status));
}

void ModelCall::Take(Events events) {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  NoteEnd(events);
  if (final_.has_value()) return Pump();
  absl::Status status = events.status;
  const bool last = events.done;
  if (status.ok()) {
    for (const ChoiceEnd& end : events.ended) status.Update(openai::FailureOf(end.reason));
    status.Update(Gather(std::move(events)));
  }
  if (!status.ok() || last) {
    EndLocked(status, Queued::kSend);
  } else if (QueuedBytes() > exchange_.door().options().backlog_bytes_max) {
    EndLocked(absl::ResourceExhaustedError("the answer was read too slowly; read it as it comes"),
              Queued::kDrop);
  }
  Pump();
}

void ModelCall::Pump() {
  if (sending_ || finished_) return;
  if (SendNext()) {
    sending_ = true;
    progress_at_ = Clock::now();
    return;
  }
  // The pool may still read the request message, which gRPC takes back with the call.
  if (!final_.has_value() || preparing_) return;
  finished_ = true;
  progress_at_ = Clock::now();
  FinishReactor(exchange_.Close(*final_, /*turned_away=*/!submitted_));
}

void ModelCall::OnSent(bool ok) {
  const std::lock_guard lock(mutex_);
  sending_ = false;
  progress_at_ = Clock::now();
  if (!ok) EndLocked(exchange_.WhyCancelled(), Queued::kDrop);
  Pump();
}

void ModelCall::OnClientGone() {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  EndLocked(exchange_.WhyCancelled(), Queued::kDrop);
  Pump();
}

void ModelCall::OnReactorDone() {
  std::shared_ptr<ModelCall> self;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    if (registered_) exchange_.door().Remove(exchange_.tenant(), exchange_.id(), this);
    self.swap(self_);
  }
  exchange_.Done();
}

void ModelCall::CheckProgress() {
  const std::lock_guard lock(mutex_);
  const double limit = absl::ToDoubleSeconds(exchange_.door().options().write_timeout);
  if (done_ || (!sending_ && !finished_)) return;
  if (std::chrono::duration<double>(Clock::now() - progress_at_).count() < limit) return;
  EndLocked(absl::ResourceExhaustedError("the answer was not read"), Queued::kDrop);
  exchange_.context().TryCancel();
}

}  // namespace cuvil::server::grpc
