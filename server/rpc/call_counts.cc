#include "server/rpc/call_counts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lenet {

void CallCounts::SetLimits(const RpcLimits& limits) {
  MutexLock lock(&mutex_);
  max_calls_ = limits.max_calls;
  max_per_client_ = limits.max_calls_per_client == 0 ? limits.max_calls : limits.max_calls_per_client;
  total_ = 0;
  for (const auto& [client, calls] : clients_) total_ += std::min(calls, max_per_client_);
}

void CallCounts::Begin(const std::string& client) {
  MutexLock lock(&mutex_);
  if (++clients_[client] <= max_per_client_) ++total_;
}

void CallCounts::End(const std::string& client) {
  MutexLock lock(&mutex_);
  const auto held = clients_.find(client);
  if (held->second <= max_per_client_) --total_;
  if (--held->second == 0) clients_.erase(held);
}

absl::Status CallCounts::Check(const std::string& client) const {
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

}  // namespace lenet
