#include "server/grpc/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cstdlib>
#include <utility>

#include "server/grpc/health.h"
#include "server/grpc/model_call.h"
#include "server/grpc/reflection.h"
#include "server/grpc/service.h"
#include "server/grpc/unreadable.h"

namespace cuvil::server::grpc {
namespace {

// For answers to leave after the drain's deadline.
constexpr absl::Duration kLastWords = absl::Seconds(2);

// Below what its connections themselves take, gRPC would wait for memory for ever.
constexpr size_t kQuotaBytesMin = size_t{64} << 20;

// Lines of gRPC and protobuf would stand between those of the log, in another form and as often as
// clients like. Who looks for a fault in them asks for them by GRPC_VERBOSITY.
void QuietLog() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  gpr_set_log_function([](gpr_log_func_args*) {});
  google::protobuf::SetLogHandler(nullptr);
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

void SetLimits(const Options& options, ::grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes_max));
  builder->SetMaxSendMessageSize(-1);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.streams_max);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              Milliseconds(options.keepalive_timeout));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              Milliseconds(options.client_ping_min));
  // A port that another server has is an error, not a share of its connections.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // What is read before a call is seen, and refused by Door::Enter, must not grow without end.
  ::grpc::ResourceQuota quota("cuvil");
  quota.Resize(std::max(2 * options.AllMessagesBytesMax(), kQuotaBytesMin));
  builder->SetResourceQuota(quota);
}

class DoorServer : public Server {
 public:
  DoorServer(Options options, Hooks hooks, Backend* backend)
      : health_(backend),
        door_(std::move(options), std::move(hooks), backend, [this] { return health_.Tick(); }),
        cuvil_(&door_),
        reflection_(&door_) {
    health_.on_watcher = [this] { door_.events().TickSoon(); };
  }

  ~DoorServer() override {
    BeginDrain();
    if (server_ != nullptr) {
      EndAll(absl::UnavailableError("the server stopped; send the request again later"));
      door_.WaitUntilIdle(kLastWords);
      server_->Shutdown(std::chrono::system_clock::now());
    }
    door_.Stop();
  }

  absl::Status Listen() {
    const Options& options = door_.options();
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(
        options.host == "localhost" ? "127.0.0.1" : options.host, error);
    if (error) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot listen on '", options.host, "': it is no address; use 127.0.0.1 or 0.0.0.0"));
    }
    const std::string host =
        address.is_v6() ? absl::StrCat("[", address.to_string(), "]") : address.to_string();
    QuietLog();
    ::grpc::ServerBuilder builder;
    SetLimits(options, &builder);
    int port = 0;
    builder.AddListeningPort(absl::StrCat(host, ":", options.port),
                             ::grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&cuvil_);
    builder.RegisterService(&health_);
    if (options.reflection) builder.RegisterService(&reflection_);
    std::vector<std::unique_ptr<::grpc::experimental::ServerInterceptorFactoryInterface>> between;
    between.push_back(UnreadableToInvalid(&door_));
    builder.experimental().SetInterceptorCreators(std::move(between));
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port <= 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", host, ":", options.port,
                                                 " for gRPC; choose another port"));
    }
    address_ = absl::StrCat(host, ":", port);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  bool Drain(absl::Duration deadline) override {
    BeginDrain();
    const bool by_itself = door_.WaitUntilIdle(deadline);
    if (!by_itself) {
      EndAll(absl::UnavailableError("the server is shutting down; send the request again later"));
      door_.WaitUntilIdle(kLastWords);
    }
    server_->Shutdown(std::chrono::system_clock::now());
    return by_itself;
  }

 private:
  void BeginDrain() {
    door_.BeginDrain();
    health_.BeginDrain();
    door_.events().TickSoon();
  }

  void EndAll(const absl::Status& status) {
    for (const auto& call : door_.All()) call->End(status, ModelCall::Queued::kSend);
  }

  HealthService health_;
  Door door_;
  CuvilService cuvil_;
  ReflectionService reflection_;
  std::string address_;
  std::unique_ptr<::grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Options options, Hooks hooks,
                                                      Backend* backend) {
  auto server = std::make_unique<DoorServer>(std::move(options), std::move(hooks), backend);
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace cuvil::server::grpc
