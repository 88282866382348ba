#include "server/grpc/door.h"

#include <grpcpp/server_context.h>
#include <sys/random.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "server/grpc/model_call.h"

namespace cuvil::server::grpc {
namespace {

std::string_view BearerOf(const ::grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  if (metadata.count("authorization") != 1) return {};
  constexpr std::string_view kScheme = "bearer ";
  const ::grpc::string_ref found = metadata.find("authorization")->second;
  const std::string_view value(found.data(), found.size());
  if (!absl::StartsWithIgnoreCase(Sv(value), Sv(kScheme))) return {};
  return value.substr(kScheme.size());
}

uint64_t RandomBits() {
  uint64_t value = 0;
  // From the kernel's pool, which is ready long before a server starts: it cannot fail or wait.
  CUVIL_CHECK(getrandom(&value, sizeof value, 0) == sizeof value, "no random bytes");
  return value;
}

}  // namespace

Door::Door(Options options, Hooks hooks, Backend* backend, std::function<absl::Duration()> tick)
    : options_(std::move(options)),
      hooks_(std::move(hooks)),
      backend_(backend),
      observer_(hooks_.observer != nullptr ? hooks_.observer : &silent_),
      pool_(static_cast<size_t>(std::max(options_.pool_threads, 1))),
      events_(std::make_shared<EventThread>([this, tick = std::move(tick)] {
        for (const auto& call : All()) call->CheckProgress();
        return tick();
      })) {}

Door::~Door() { Stop(); }

absl::StatusOr<std::string> Door::Authorise(const ::grpc::ServerContextBase& context) const {
  if (!hooks_.authorizer) return std::string();
  const std::string peer = context.peer();
  return hooks_.authorizer(
      {.bearer = BearerOf(context), .access = http::Access::kUse, .peer = peer});
}

absl::Status Door::Enter(size_t request_bytes) {
  if (draining()) {
    return absl::UnavailableError("the server is shutting down; try another or again later");
  }
  std::unique_lock lock(mutex_);
  if (calls_ >= options_.calls_max) {
    return absl::UnavailableError(
        absl::StrCat("the server has its ", options_.calls_max, " calls; try again later"));
  }
  if (request_bytes > options_.AllMessagesBytesMax() - bytes_) {
    return absl::UnavailableError(absl::StrCat("the server would hold more than ",
                                               options_.AllMessagesBytesMax(),
                                               " bytes of requests; try again later"));
  }
  ++calls_;
  bytes_ += request_bytes;
  return absl::OkStatus();
}

void Door::Leave(size_t request_bytes) {
  std::unique_lock lock(mutex_);
  if (--calls_ == 0) idle_.notify_all();
  bytes_ -= request_bytes;
}

void Door::Add(std::string_view tenant, std::string_view id,
               const std::shared_ptr<ModelCall>& call) {
  std::unique_lock lock(mutex_);
  working_.emplace(Id(tenant, id), call);
}

void Door::Remove(std::string_view tenant, std::string_view id, const ModelCall* call) {
  std::unique_lock lock(mutex_);
  const auto [from, to] = working_.equal_range(Id(tenant, id));
  for (auto it = from; it != to; ++it) {
    if (it->second.lock().get() != call) continue;
    working_.erase(it);
    return;
  }
}

std::vector<std::shared_ptr<ModelCall>> Door::Find(std::string_view tenant,
                                                   std::string_view id) const {
  std::vector<std::shared_ptr<ModelCall>> found;
  std::unique_lock lock(mutex_);
  const auto [from, to] = working_.equal_range(Id(tenant, id));
  for (auto it = from; it != to; ++it) {
    if (auto call = it->second.lock()) found.push_back(std::move(call));
  }
  return found;
}

std::vector<std::shared_ptr<ModelCall>> Door::All() const {
  std::vector<std::shared_ptr<ModelCall>> all;
  std::unique_lock lock(mutex_);
  for (const auto& [id, weak] : working_) {
    if (auto call = weak.lock()) all.push_back(std::move(call));
  }
  return all;
}

bool Door::WaitUntilIdle(absl::Duration limit) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, absl::ToChronoNanoseconds(limit), [this] { return calls_ == 0; });
}

void Door::Stop() {
  pool_.join();
  events_->Stop();
}

std::string Door::NewId() {
  return absl::StrCat(absl::Hex(RandomBits(), absl::kZeroPad16),
                      absl::Hex(RandomBits(), absl::kZeroPad16));
}

uint64_t Door::NewSeed() { return RandomBits(); }

}  // namespace cuvil::server::grpc
