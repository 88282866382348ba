// What the calls of one gRPC server share: settings, the pool, the events' thread, and which calls
// are at hand. Any thread.
#pragma once

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/backend.h"
#include "server/grpc/event_thread.h"
#include "server/grpc/options.h"

namespace grpc {
class ServerContextBase;
}

namespace cuvil::server::grpc {

class ModelCall;

class Door {
 public:
  // `tick`: as EventThread's, after the door's own work.
  Door(Options options, Hooks hooks, Backend* backend, std::function<absl::Duration()> tick);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  const Options& options() const { return options_; }
  Backend& backend() { return *backend_; }
  http::Observer& observer() { return *observer_; }
  EventThread& events() { return *events_; }
  bool draining() const { return draining_.load(); }
  bool needs_key() const { return static_cast<bool>(hooks_.authorizer); }

  // The tenant of the call's key; see http::Authorizer for the errors.
  absl::StatusOr<std::string> Authorise(const ::grpc::ServerContextBase& context) const;

  template <typename Work>
  void OnPool(Work work) {
    boost::asio::post(pool_, std::move(work));
  }

  // A call with a request of so many bytes begins: Unavailable while the server drains or holds too
  // much. After OK, Leave follows once.
  absl::Status Enter(size_t request_bytes);
  void Leave(size_t request_bytes);

  // Calls that a model works on, findable by their caller's tenant and id until they are gone.
  void Add(std::string_view tenant, std::string_view id, const std::shared_ptr<ModelCall>& call);
  void Remove(std::string_view tenant, std::string_view id, const ModelCall* call);
  std::vector<std::shared_ptr<ModelCall>> Find(std::string_view tenant, std::string_view id) const;
  std::vector<std::shared_ptr<ModelCall>> All() const;

  void BeginDrain() { draining_.store(true); }
  bool WaitUntilIdle(absl::Duration limit);  // false: calls are left
  void Stop();                               // no call is left; the pool and the events' thread end

  static std::string NewId();  // 32 hexadecimal digits, not guessable
  static uint64_t NewSeed();

 private:
  using Id = std::pair<std::string, std::string>;  // tenant, request

  const Options options_;
  const Hooks hooks_;
  Backend* const backend_;
  http::Observer silent_;
  http::Observer* const observer_;
  std::atomic<bool> draining_{false};
  boost::asio::thread_pool pool_;

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  // Under mutex_.
  int calls_ = 0;
  size_t bytes_ = 0;
  std::multimap<Id, std::weak_ptr<ModelCall>> working_;

  std::shared_ptr<EventThread> events_;  // last: its thread uses the rest
};

}  // namespace cuvil::server::grpc
