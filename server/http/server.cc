#include "server/http/server.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <thread>
#include <utility>

#include "server/http/connection.h"
#include "server/http/front.h"

namespace cuvil::server::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Beyond the limit this many connections are still accepted, so that probes come through and
// others read why they may not.
constexpr int kConnectionsSpare = 128;
// Out of file descriptors: the next try is after some may have been closed.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
// For answers to leave after the drain's deadline.
constexpr absl::Duration kLastWords = absl::Seconds(2);

bool EndsWithin(const std::shared_future<void>& event, absl::Duration limit) {
  // wait_for adds to the clock: forever would overflow it.
  const absl::Duration sane = std::clamp(limit, absl::ZeroDuration(), absl::Hours(24 * 365));
  return event.wait_for(absl::ToChronoNanoseconds(sane)) == std::future_status::ready;
}

std::string Printed(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? absl::StrCat("[", address, "]:", endpoint.port())
                                    : absl::StrCat(address, ":", endpoint.port());
}

}  // namespace

class Server::Impl {
 public:
  Impl(Options options, Hooks hooks, Backend* backend)
      : front_(std::move(options), std::move(hooks), backend),
        work_(asio::make_work_guard(front_.io())),
        acceptor_(front_.io()),
        pause_(front_.io()),
        socket_(front_.io()) {}

  ~Impl() {
    if (!thread_.joinable()) return;
    asio::post(front_.io(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
      CloseAll();
      front_.io().stop();
    });
    thread_.join();
    front_.Stop();
  }

  absl::Status Listen() {
    const Options& options = front_.options();
    error_code error;
    const asio::ip::address address =
        asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
    if (error) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot listen on '", options.host, "': it is no address; use 127.0.0.1 or 0.0.0.0"));
    }
    const tcp::endpoint endpoint(address, options.port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (!error) acceptor_.non_blocking(true, error);
    if (error) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", Printed(endpoint), ": ",
                                                 error.message(), "; choose another port"));
    }
    front_.bound_to_loopback = address.is_loopback();
    address_ = Printed(acceptor_.local_endpoint(error));
    return absl::OkStatus();
  }

  void Run() {
    Accept();
    thread_ = std::thread([this] { front_.io().run(); });
  }

  const std::string& address() const { return address_; }

  bool Drain(absl::Duration deadline) {
    const std::shared_future<void> idle = idle_.get_future().share();
    asio::post(front_.io(), [this] {
      front_.draining = true;
      for (const auto& connection : Open()) connection->BeginDrain();
      front_.on_idle = [this] { idle_.set_value(); };
      if (front_.busy == 0) front_.AddBusy(0);
    });
    const bool by_itself = EndsWithin(idle, deadline);
    if (!by_itself) {
      asio::post(front_.io(), [this] {
        const auto why =
            absl::UnavailableError("the server is shutting down; send the request again later");
        for (const auto& connection : Open()) connection->FailNow(why);
      });
      EndsWithin(idle, kLastWords);
    }
    std::promise<void> closed;
    asio::post(front_.io(), [this, &closed] {
      error_code ignored;
      acceptor_.close(ignored);
      closed.set_value();
    });
    closed.get_future().wait();
    return by_itself;
  }

 private:
  // Copies that keep alive: closing changes the set and may drop a connection's last owner.
  std::vector<std::shared_ptr<Connection>> Open() const {
    std::vector<std::shared_ptr<Connection>> open;
    for (Connection* connection : front_.connections) {
      open.push_back(connection->shared_from_this());
    }
    return open;
  }

  void CloseAll() {
    for (const auto& connection : Open()) connection->Close("the server stopped");
  }

  void Accept() {
    acceptor_.async_accept(socket_, [this](error_code error) {
      if (!acceptor_.is_open()) return;
      if (!error) {
        TakeSocket();
      } else if (error == asio::error::no_descriptors || error == asio::error::no_memory ||
                 error == asio::error::no_buffer_space) {
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](error_code stopped) {
          if (!stopped && acceptor_.is_open()) Accept();
        });
        return;
      }
      Accept();
    });
  }

  void TakeSocket() {
    tcp::socket socket = std::exchange(socket_, tcp::socket(front_.io()));
    const auto open = static_cast<int>(front_.connections.size());
    const int limit = front_.options().connections_max;
    if (open >= limit + kConnectionsSpare) {
      front_.observer().OnRejected(RejectReason::kConnections, "other");
      return;  // closes it
    }
    error_code error;
    const tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) return;  // has left already
    std::make_shared<Connection>(&front_, std::move(socket), Printed(peer), open >= limit)->Start();
  }

  Front front_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  tcp::socket socket_;  // the next client's
  std::string address_;
  std::promise<void> idle_;  // no request is at hand while draining
  std::thread thread_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Options options, Hooks hooks,
                                                      Backend* backend) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(hooks), backend);
  RETURN_IF_ERROR(impl->Listen());
  impl->Run();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const std::string& Server::address() const { return impl_->address(); }
bool Server::Drain(absl::Duration deadline) { return impl_->Drain(deadline); }

}  // namespace cuvil::server::http
