#include "server/rpc/rpc_server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "grpc/support/log.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr int kExecutorThreads = 2;
constexpr size_t kMaxWaitingCalls = 1000;
// The largest request is a spec with a list of devices.
constexpr int kMaxRequestBytes = 1 << 20;
constexpr int kKeepaliveMs = 30000;
constexpr int kKeepaliveTimeoutMs = 10000;
// How often a client's own keepalive may come.
constexpr int kMinClientPingMs = 10000;
// After the streams have ended; a call that is not done then is cancelled.
constexpr std::chrono::milliseconds kLastCalls(500);

void LogGrpc(gpr_log_func_args* args) {
  // What is an error to gRPC (a peer that speaks no HTTP/2, a port in use) is none to this server, or is reported by
  // it.
  const LogLevel level = args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug;
  Log(level, absl::StrCat("grpc: ", args->message));
}

struct HostPort {
  std::string host;
  std::string port;
};

bool IsUnixSocket(absl::string_view listen) { return absl::StartsWith(listen, "unix:"); }

absl::StatusOr<HostPort> SplitAddress(absl::string_view listen) {
  const size_t colon = listen.rfind(':');
  int port = -1;
  if (colon == absl::string_view::npos || colon == 0 || !absl::SimpleAtoi(listen.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", listen, "\" is no address to listen on; it must be host:port, port 0 to 65535"));
  }
  absl::string_view host = listen.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) host = host.substr(1, host.size() - 2);
  return HostPort{std::string(host), absl::StrCat(port)};
}

// gRPC tells no reason: this tries the same once more, to learn the system's.
std::string ReasonNotToListen(const HostPort& address) {
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found); error != 0) {
    return ::gai_strerror(error);
  }
  std::string reason = "unknown reason";
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    const int fd = ::socket(info->ai_family, info->ai_socktype, info->ai_protocol);
    const int yes = 1;
    if (fd < 0 || ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        ::bind(fd, info->ai_addr, info->ai_addrlen) != 0 || ::listen(fd, 1) != 0) {
      reason = std::generic_category().message(errno);
    }
    if (fd >= 0) ::close(fd);
  }
  ::freeaddrinfo(found);
  return reason;
}

}  // namespace

void RouteGrpcLog() { gpr_set_log_function(LogGrpc); }

RpcServer::RpcServer(const RpcServerOptions& options, const ServerIdentity& identity, JobManager* manager,
                     const Backend* backend, const DatasetCatalog* catalog)
    : executor_(kExecutorThreads, kMaxWaitingCalls),
      hub_(options.max_streams),
      service_(identity, manager, backend, catalog, &hub_, &executor_) {}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                            const ServerIdentity& identity, JobManager* manager,
                                                            const Backend* backend, const DatasetCatalog* catalog) {
  HostPort address;
  if (!IsUnixSocket(options.listen)) {
    LENET_ASSIGN_OR_RETURN(address, SplitAddress(options.listen));
  }
  std::unique_ptr<RpcServer> server(new RpcServer(options, identity, manager, backend, catalog));

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  // Else a second server on the same port would share its connections instead of being refused.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinClientPingMs);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.RegisterService(&server->service_);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || port == 0) {
    const std::string reason = IsUnixSocket(options.listen) ? "see the log" : ReasonNotToListen(address);
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen, ": ", reason));
  }
  server->SetServing(false);
  const size_t colon = options.listen.rfind(':');
  server->address_ =
      IsUnixSocket(options.listen) ? options.listen : absl::StrCat(options.listen.substr(0, colon), ":", port);
  return server;
}

RpcServer::~RpcServer() {
  if (server_ != nullptr) Shutdown(std::chrono::steady_clock::now());
}

void RpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
  health->SetServingStatus(serving);
  health->SetServingStatus(v1::TrainingService::service_full_name(), serving);
}

void RpcServer::Shutdown(std::chrono::steady_clock::time_point deadline) {
  if (shut_down_) return;
  shut_down_ = true;
  // The streams first: with one open, Server::Shutdown would wait for it, and what it has not sent would be lost.
  hub_.Drain();
  hub_.WaitEmpty(deadline);
  server_->Shutdown(std::chrono::system_clock::now() + kLastCalls);
}

}  // namespace lenet
