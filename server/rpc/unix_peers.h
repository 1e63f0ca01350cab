// Tells calls over unix sockets whose they are. gRPC 1.51 does not: a call has neither its connection's descriptor nor
// an address that differs.
#ifndef LENET_SERVER_RPC_UNIX_PEERS_H_
#define LENET_SERVER_RPC_UNIX_PEERS_H_

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/executor.h"
#include "server/rpc/users.h"
#include "trainer/base/descriptor.h"
#include "trainer/base/mutex.h"

namespace grpc {
class ServerBuilder;
class ServerContextBase;
namespace experimental {
class ExternalConnectionAcceptor;
}
}  // namespace grpc

namespace lenet {

// Gives the connection, which came from `listener` (or -1), to gRPC, which owns it from then on.
void GiveToGrpc(grpc::experimental::ExternalConnectionAcceptor* acceptor, int listener, UniqueDescriptor connection);

// Has an acceptor of gRPC's for each user, whose connections all have the mark of its id. Safe from any thread.
class UnixPeers {
 public:
  // That have connected since the start: a slot is its first user's for good.
  static constexpr size_t kMaxUsers = 256;

  // Adds the acceptors to a server that is to be built. `users` outlives it.
  UnixPeers(grpc::ServerBuilder* builder, Users* users);
  ~UnixPeers();

  // Gives the connection, which came from `listener` (or -1), to gRPC once `users` knows its user, which a thread of
  // its own waits for; who cannot be looked up is turned away, with a line in the log. RESOURCE_EXHAUSTED, and it is
  // closed, for one user too many, or if too many connections wait. Not after Stop.
  absl::Status HandOver(int listener, UniqueDescriptor connection) ABSL_LOCKS_EXCLUDED(mutex_);

  // Nothing is given to gRPC any more when it returns; before the server shuts down. What waits is handed over first.
  void Stop() { look_ups_.reset(); }

 private:
  struct Slot;

  absl::StatusOr<const Slot*> SlotOf(uid_t id) ABSL_LOCKS_EXCLUDED(mutex_);

  Users* const users_;
  std::vector<Slot> slots_;
  Mutex mutex_;
  std::map<uid_t, size_t> taken_ ABSL_GUARDED_BY(mutex_);  // the slots of those that have connected
  std::optional<Executor> look_ups_;                       // its tasks use the others
};

// Whose call it is, on a connection of UnixPeers; none on others.
std::optional<uid_t> PeerOf(const grpc::ServerContextBase& context);

// Who counts as one client for limits of calls: "unix:UID" of a connection of UnixPeers, else NetworkOf() its address.
std::string CountedClient(const grpc::ServerContextBase& context);

}  // namespace lenet

#endif  // LENET_SERVER_RPC_UNIX_PEERS_H_
