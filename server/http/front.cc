#include "server/http/front.h"

#include <sys/random.h>

#include <chrono>
#include <utility>

#include "server/http/connection.h"
#include "server/http/response.h"

namespace cuvil::server::http {
namespace {

template <typename T>
T RandomBytes() {
  T value{};
  // From the kernel's pool, which is ready long before a server starts: it cannot fail or wait.
  CUVIL_CHECK(getrandom(&value, sizeof value, 0) == static_cast<ssize_t>(sizeof value),
              "no random bytes");
  return value;
}

}  // namespace

Front::Front(Options options, Hooks hooks, Backend* backend)
    : options_(std::move(options)),
      hooks_(std::move(hooks)),
      backend_(backend),
      observer_(hooks_.observer != nullptr ? hooks_.observer : &silent_),
      io_(1),
      pool_(static_cast<size_t>(std::max(options_.pool_threads, 1))),
      events_(std::make_shared<EventQueue>(&io_, [this](std::vector<EventQueue::Entry> entries) {
        TakeEvents(std::move(entries));
      })) {}

Front::~Front() = default;

void Front::Stop() {
  events_->Close();
  pool_.join();
  listeners_.clear();
}

std::pair<uint64_t, std::shared_ptr<AnswerSink>> Front::Listen(std::shared_ptr<Job> job, int part) {
  const uint64_t ticket = next_ticket_++;
  listeners_.emplace(ticket, Listener{std::move(job), part});
  return {ticket, events_->MakeSink(ticket)};
}

void Front::TakeEvents(std::vector<EventQueue::Entry> entries) {
  taking_ = true;
  for (EventQueue::Entry& entry : entries) {
    const auto found = listeners_.find(entry.ticket);
    if (found == listeners_.end()) continue;
    // A copy: the job may forget its tickets while it takes the events.
    const Listener listener = found->second;
    if (entry.events.done) listeners_.erase(found);
    listener.job->OnEvents(listener.part, std::move(entry.events));
  }
  taking_ = false;
  for (const std::shared_ptr<Connection>& connection : std::exchange(dirty_, {})) {
    connection->Flush();
  }
}

void Front::FlushSoon(std::shared_ptr<Connection> connection) {
  if (taking_) {
    dirty_.push_back(std::move(connection));
  } else {
    connection->Flush();
  }
}

std::string_view Front::date() {
  if (const int64_t now = unix_seconds(); now != date_second_) {
    date_second_ = now;
    date_ = HttpDate(now);
  }
  return date_;
}

int64_t Front::unix_seconds() const {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string Front::NewId() {
  return absl::StrCat(absl::Hex(RandomBytes<uint64_t>(), absl::kZeroPad16),
                      absl::Hex(RandomBytes<uint64_t>(), absl::kZeroPad16));
}

uint64_t Front::NewSeed() { return RandomBytes<uint64_t>(); }

void Front::AddBusy(int change) {
  busy += change;
  if (busy == 0 && on_idle) std::exchange(on_idle, nullptr)();
}

}  // namespace cuvil::server::http
