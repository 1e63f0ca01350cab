// Counts the calls that are being answered.
#ifndef LENET_SERVER_RPC_CALL_COUNTS_H_
#define LENET_SERVER_RPC_CALL_COUNTS_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "server/rpc/rpc_limits.h"
#include "trainer/base/mutex.h"

namespace lenet {

// A call counts until gRPC is done with it, refused or not; but of a client with more calls than it may have only so
// many count for all, so that one client cannot take the others' places. Safe from any thread.
class CallCounts {
 public:
  explicit CallCounts(const RpcLimits& limits) { SetLimits(limits); }

  void SetLimits(const RpcLimits& limits) ABSL_LOCKS_EXCLUDED(mutex_);

  // `client` is the other side, as CountedClient() tells. Each Begin has its End.
  void Begin(const std::string& client) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const std::string& client) ABSL_LOCKS_EXCLUDED(mutex_);

  // RESOURCE_EXHAUSTED if a call of that client, which has begun, is one too many.
  absl::Status Check(const std::string& client) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable Mutex mutex_;
  size_t max_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t max_per_client_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t total_ ABSL_GUARDED_BY(mutex_) = 0;  // of each client max_per_client_ at most
  std::map<std::string, size_t> clients_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_CALL_COUNTS_H_
