// The gRPC server: the training service, health and reflection on all addresses.
#ifndef LENET_SERVER_RPC_RPC_SERVER_H_
#define LENET_SERVER_RPC_RPC_SERVER_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/job/job_manager.h"
#include "server/rpc/access.h"
#include "server/rpc/call_counts.h"
#include "server/rpc/connection_table.h"
#include "server/rpc/executor.h"
#include "server/rpc/listener.h"
#include "server/rpc/rpc_limits.h"
#include "server/rpc/stream_hub.h"
#include "server/rpc/tls.h"
#include "server/rpc/training_service.h"
#include "server/rpc/unix_peers.h"
#include "server/rpc/users.h"
#include "server/telemetry/rpc_counters.h"
#include "trainer/backend/backend.h"
#include "trainer/base/descriptor.h"
#include "trainer/data/catalog.h"

namespace grpc {
class Server;
namespace experimental {
class ExternalConnectionAcceptor;
}
}  // namespace grpc

namespace lenet {

struct RpcServerOptions {
  std::vector<std::string> listen;  // see ListenAddress
  std::vector<Descriptor> sockets;  // that listen already, served beside those; the server's from then on
  std::optional<gid_t> unix_group;  // see ListenerOptions
  TlsFiles tls;                     // for which CheckTlsFiles is OK; spoken on TCP alone
  const Access* access = nullptr;   // outlives the server; null: everyone is an admin
  bool reflection = true;           // which tells everyone what there is to call
  RpcLimits limits;                 // to begin with, see SetLimits
  // A connection on which nothing has come for so long is asked for a sign of life, and closed without an answer in
  // the other time.
  std::chrono::milliseconds keepalive{20'000};
  std::chrono::milliseconds keepalive_timeout{10'000};
  // How often a client may ask for one; those that do so more often lose their connection.
  std::chrono::milliseconds min_client_ping{10'000};
};

// Routes what gRPC logs of itself to Log(). Once, before any other use of gRPC.
void RouteGrpcLog();

class RpcServer {
 public:
  // Listens and answers; health says NOT_SERVING. All outlive it. UNAVAILABLE, with the system's reason, if an address
  // cannot be had; INVALID_ARGUMENT if it is none, or there is none.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                          const ServerIdentity& identity, JobManager* manager,
                                                          const Backend* backend, const DatasetCatalog* catalog);
  // Shutdown() with no grace.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // With the ports that were got; first those of sockets.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Of all calls since the start.
  const RpcCounters& counters() const { return counters_; }
  // Safe from any thread.
  StreamLoad stream_load() const { return hub_.Load(); }

  // From now on those of the limits hold that can change. Safe from any thread.
  void SetLimits(const RpcLimits& limits);

  // From now on callers on unix sockets have the names and groups that the system tells now; asking it may take long.
  // Safe from any thread.
  void RefreshUsers() { users_.Refresh(); }

  // What health answers, for the server as a whole and for lenet.v1.TrainingService.
  void SetServing(bool serving);

  // Whether its threads make progress: each of these waits for a proof, and is false if there is none by the deadline.
  // Not after Shutdown.
  bool AcceptResponds(std::chrono::steady_clock::time_point deadline);
  bool ExecutorResponds(std::chrono::steady_clock::time_point deadline) { return executor_.Responds(deadline); }
  bool StreamsRespond(std::chrono::steady_clock::time_point deadline) { return hub_.Responds(deadline); }
  // gRPC's own threads answer a health check, on a connection that takes no address.
  bool CallsRespond(std::chrono::steady_clock::time_point deadline);

  // The manager is idle. Lets every stream write what is left and end, until `deadline`, then cancels the calls that
  // remain and returns when all are done.
  void Shutdown(std::chrono::steady_clock::time_point deadline);

 private:
  RpcServer(const RpcServerOptions& options, const ServerIdentity& identity, JobManager* manager,
            const Backend* backend, const DatasetCatalog* catalog);

  absl::Status Listen(const RpcServerOptions& options);

  const Access everyone_;  // without rules
  RpcCounters counters_;
  CallCounts calls_;
  ConnectionTable connections_;
  Executor executor_;
  StreamHub hub_;
  Users users_;
  TrainingService service_;
  JobManager* const manager_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> tcp_acceptor_;
  std::unique_ptr<UnixPeers> unix_peers_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> own_acceptor_;  // of this process's connections
  std::vector<std::unique_ptr<Listener>> listeners_;                              // their threads use the acceptors
  std::vector<std::string> addresses_;
  bool shut_down_ = false;
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_RPC_SERVER_H_
