#include "server/rpc/rpc_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpc/support/log.h"
#include "grpcpp/create_channel_posix.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "server/rpc/call_meter.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;

constexpr int kExecutorThreads = 4;
constexpr size_t kMaxWaitingCalls = 1000;
// How long a new connection may say nothing.
constexpr milliseconds kHandshakeTimeout(20000);
// After the streams have ended; a call that is not done then is cancelled.
constexpr milliseconds kLastCalls(500);

// Leaves reflection out, which gRPC offers on every server once its library is loaded.
class WithoutReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) { return plugin->name() == "proto_server_reflection"; });
  }
};

void LogGrpc(gpr_log_func_args* args) {
  // What is an error to gRPC (a peer that speaks no HTTP/2) is none to this server.
  const LogLevel level = args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug;
  Log(level, absl::StrCat("grpc: ", args->message));
}

int Milliseconds(milliseconds duration) { return static_cast<int>(duration.count()); }

}  // namespace

void RouteGrpcLog() { gpr_set_log_function(LogGrpc); }

RpcServer::RpcServer(const RpcServerOptions& options, const ServerIdentity& identity, JobManager* manager,
                     const Backend* backend, const DatasetCatalog* catalog)
    : counters_(ServedMethods()),
      calls_(options.limits),
      connections_(options.limits),
      executor_(kExecutorThreads, kMaxWaitingCalls),
      hub_(options.limits.max_streams),
      service_(identity, options.access != nullptr ? options.access : &everyone_, &users_, manager, backend, catalog,
               &hub_, &executor_, &calls_),
      manager_(manager) {
  hub_.SetLimits(options.limits.max_streams, options.limits.max_streams_per_client);
  manager_->OnWritten([this] { hub_.Wake(); });
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                            const ServerIdentity& identity, JobManager* manager,
                                                            const Backend* backend, const DatasetCatalog* catalog) {
  std::unique_ptr<RpcServer> server(new RpcServer(options, identity, manager, backend, catalog));
  LENET_RETURN_IF_ERROR(server->Listen(options));

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  using Experimental = grpc::ServerBuilder::experimental_type;
  server->tcp_acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      Experimental::ExternalConnectionType::FROM_FD,
      options.tls.any() ? TlsCredentials(options.tls) : grpc::InsecureServerCredentials());
  server->unix_peers_ = std::make_unique<UnixPeers>(&builder, &server->users_);
  server->own_acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      Experimental::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(options.min_client_ping));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(kHandshakeTimeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(options.limits.max_calls_per_connection));
  if (options.limits.max_idle_time.count() > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(options.limits.max_idle_time));
  }
  builder.SetMaxReceiveMessageSize(options.limits.max_request_bytes);
  if (!options.reflection) builder.SetOption(std::make_unique<WithoutReflection>());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(NewCallMeter(&server->counters_, &server->calls_, &server->connections_));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  builder.RegisterService(&server->service_);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) return absl::InternalError("gRPC did not start; the log has its reason");
  server->SetServing(false);
  for (const std::unique_ptr<Listener>& listener : server->listeners_) {
    if (ParseListenAddress(listener->address())->is_unix()) {
      listener->Start([peers = server->unix_peers_.get()](int socket, UniqueDescriptor connection) {
        return peers->HandOver(socket, std::move(connection));
      });
    } else {
      listener->Start([acceptor = server->tcp_acceptor_.get()](int socket, UniqueDescriptor connection) {
        GiveToGrpc(acceptor, socket, std::move(connection));
        return absl::OkStatus();
      });
    }
  }
  return server;
}

absl::Status RpcServer::Listen(const RpcServerOptions& options) {
  const ListenerOptions listener_options = {
      .peer_timeout = options.keepalive_timeout, .unix_group = options.unix_group, .connections = &connections_};
  std::vector<ListenAddress> to_bind;
  for (const std::string& listen : options.listen) {
    LENET_ASSIGN_OR_RETURN(to_bind.emplace_back(), ParseListenAddress(listen));
  }
  for (const Descriptor socket : options.sockets) {
    LENET_ASSIGN_OR_RETURN(listeners_.emplace_back(), Listener::Adopt(UniqueDescriptor(socket), listener_options));
  }
  for (const ListenAddress& address : to_bind) {
    LENET_ASSIGN_OR_RETURN(listeners_.emplace_back(), Listener::Bind(address, listener_options));
  }
  if (listeners_.empty()) return absl::InvalidArgumentError("there is no address to serve on");
  for (const std::unique_ptr<Listener>& listener : listeners_) addresses_.push_back(listener->address());
  return absl::OkStatus();
}

RpcServer::~RpcServer() {
  manager_->OnWritten(nullptr);
  if (server_ != nullptr) Shutdown(std::chrono::steady_clock::now());
}

void RpcServer::SetLimits(const RpcLimits& limits) {
  connections_.SetLimits(limits);
  hub_.SetLimits(limits.max_streams, limits.max_streams_per_client);
  calls_.SetLimits(limits);
}

void RpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
  health->SetServingStatus(serving);
  health->SetServingStatus(v1::TrainingService::service_full_name(), serving);
}

bool RpcServer::AcceptResponds(std::chrono::steady_clock::time_point deadline) {
  return std::all_of(listeners_.begin(), listeners_.end(),
                     [deadline](const std::unique_ptr<Listener>& listener) { return listener->Responds(deadline); });
}

bool RpcServer::CallsRespond(std::chrono::steady_clock::time_point deadline) {
  int ends[2];
  // Without descriptors nothing can be told of gRPC.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return true;
  GiveToGrpc(own_acceptor_.get(), -1, UniqueDescriptor(Descriptor{ends[0]}));
  grpc::GenericStub stub(grpc::CreateInsecureChannelFromFd("self", ends[1]));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + (deadline - std::chrono::steady_clock::now()));
  grpc::CompletionQueue queue;
  // An empty message, unlike a buffer of none, asks for the server as a whole.
  const grpc::Slice empty;
  const std::unique_ptr<grpc::GenericClientAsyncResponseReader> call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::ByteBuffer(&empty, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && status.ok();
}

void RpcServer::Shutdown(std::chrono::steady_clock::time_point deadline) {
  if (shut_down_) return;
  shut_down_ = true;
  // The streams first: with one open, Server::Shutdown would wait for it, and what it has not sent would be lost.
  hub_.Drain();
  hub_.WaitEmpty(deadline);
  // gRPC would neither serve nor close what it gets from now on.
  for (const std::unique_ptr<Listener>& listener : listeners_) listener->Stop();
  unix_peers_->Stop();
  server_->Shutdown(std::chrono::system_clock::now() + kLastCalls);
}

}  // namespace lenet
