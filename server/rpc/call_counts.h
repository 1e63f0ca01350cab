// Counts the calls that are being answered.
#ifndef LENET_SERVER_RPC_CALL_COUNTS_H_
#define LENET_SERVER_RPC_CALL_COUNTS_H_

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/rpc_limits.h"
#include "trainer/base/mutex.h"

namespace lenet {

// A call counts until gRPC is done with it, refused or not; but of a client with more calls than it may have only so
// many count for all, so that one client cannot take the others' places. Safe from any thread.
class CallCounts {
 public:
  explicit CallCounts(const RpcLimits& limits) { SetLimits(limits); }

  void SetLimits(const RpcLimits& limits) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    max_calls_ = limits.max_calls;
    max_per_client_ = limits.max_calls_per_client == 0 ? limits.max_calls : limits.max_calls_per_client;
    total_ = 0;
    for (const auto& [client, calls] : clients_) total_ += std::min(calls, max_per_client_);
  }

  // `client` is the other side, as CountedClient() tells.
  void Begin(const std::string& client) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (++clients_[client] <= max_per_client_) ++total_;
  }
  void End(const std::string& client) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    const auto held = clients_.find(client);
    if (held->second <= max_per_client_) --total_;
    if (--held->second == 0) clients_.erase(held);
  }

  // RESOURCE_EXHAUSTED if a call of that client, which has begun, is one too many.
  absl::Status Check(const std::string& client) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    const auto held = clients_.find(client);
    if (held != clients_.end() && held->second > max_per_client_) {
      return absl::ResourceExhaustedError(absl::StrCat(held->second, " calls of ", client,
                                                       " are being answered; the limit is ", max_per_client_,
                                                       " (limits.max_calls_per_client)"));
    }
    if (total_ <= max_calls_) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(total_, " calls are being answered; the limit is ", max_calls_, " (limits.max_calls)"));
  }

 private:
  mutable Mutex mutex_;
  size_t max_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t max_per_client_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t total_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> clients_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_CALL_COUNTS_H_
