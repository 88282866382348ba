// A request on its way through a model: prepared on the pool, submitted part by part, its events
// written as they come or gathered. Owned by its connection and by the events it waits for; belongs
// to the I/O thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/http/connection.h"
#include "server/openai/prepare.h"

namespace cuvil::server::http {

class Generation : public Job, public std::enable_shared_from_this<Generation> {
 public:
  using Prepare = absl::StatusOr<openai::Call> (*)(std::string_view body,
                                                   const openai::CallContext& context);

  Generation(Front* front, std::shared_ptr<Connection> connection)
      : front_(front), connection_(std::move(connection)) {}

  void Start(Prepare prepare);

  void OnClientGone() override;
  void OnQuiet() override;
  void Fail(const absl::Status& status) override;
  void OnEvents(int part, Events events) override;

 private:
  struct Running {
    uint64_t ticket = 0, handle = 0;
    bool live = false;
  };

  void OnPrepared(absl::StatusOr<openai::Call> call);
  bool SubmitMore();
  absl::Status SubmitNext();
  void Advance(std::string sse);
  void SendBody();
  void AbortAll();
  void TakeNotes();

  Front* front_;
  std::shared_ptr<Connection> connection_;  // null when the client is gone
  bool ended_ = false;                      // the answer is complete or given up
  openai::Call call_;
  std::vector<Running> running_;  // by part, as far as submitted
  int live_ = 0;
};

}  // namespace cuvil::server::http
