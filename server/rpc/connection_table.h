// Counts the connections that are open, and closes those of clients that take back their calls too often.
#ifndef LENET_SERVER_RPC_CONNECTION_TABLE_H_
#define LENET_SERVER_RPC_CONNECTION_TABLE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/rpc/rpc_limits.h"
#include "trainer/base/descriptor.h"
#include "trainer/base/mutex.h"

namespace lenet {

// Nobody tells it when a connection is closed: it looks at the descriptors when a limit is reached, at most every
// kLookEvery, so that a place that has become free may be given a little later. Safe from any thread.
class ConnectionTable {
 public:
  static constexpr std::chrono::milliseconds kLookEvery{50};
  static constexpr std::chrono::milliseconds kResetWindow{10'000};

  explicit ConnectionTable(const RpcLimits& limits, std::chrono::milliseconds reset_window = kResetWindow)
      : reset_window_(reset_window), limits_(limits) {}

  void SetLimits(const RpcLimits& limits) ABSL_LOCKS_EXCLUDED(mutex_);

  // Counts a connection, which is open, until its descriptor is closed or has become another file's. A client is an
  // IPv4 address, the first 64 bits of an IPv6 one, or a user on unix sockets. RESOURCE_EXHAUSTED, and it is not
  // counted, if there are too many.
  absl::Status Add(Descriptor connection) ABSL_LOCKS_EXCLUDED(mutex_);

  // That client has taken back a call that had just begun. When it has done so more often than it may in a window,
  // all its connections are closed, and Add() refuses others until the window ends: gRPC begins each such call, however
  // many of them there are, and what it keeps for them grows without a bound.
  void CountReset(const std::string& client) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Connection {
    uint64_t device = 0;
    uint64_t inode = 0;
    std::string client;
  };
  using Connections = std::map<int, Connection>;  // by their descriptors

  absl::Status Check(const std::string& client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins a new window if the last one has ended.
  void EndResetWindow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool IsOpen(int descriptor, const Connection& connection);
  void Remove(Connections::iterator connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::chrono::milliseconds reset_window_;
  Mutex mutex_;
  RpcLimits limits_ ABSL_GUARDED_BY(mutex_);
  Connections connections_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> clients_ ABSL_GUARDED_BY(mutex_);  // how many each has
  std::optional<std::chrono::steady_clock::time_point> looked_at_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> resets_ ABSL_GUARDED_BY(mutex_);  // of each client in this window
  std::chrono::steady_clock::time_point window_ends_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_CONNECTION_TABLE_H_
