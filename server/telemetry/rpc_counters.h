// What is counted of calls.
#ifndef LENET_SERVER_TELEMETRY_RPC_COUNTERS_H_
#define LENET_SERVER_TELEMETRY_RPC_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/telemetry/instruments.h"

namespace lenet {

struct RpcMethodName {
  std::string service;  // "lenet.v1.TrainingService"
  std::string method;   // "Start"
  bool streams = false;
};

struct RpcMethodCounters {
  static constexpr double kHandlingBounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                               0.1,    0.25,  0.5,    1,     2.5,  5,     10};
  static constexpr size_t kCodes = 17;  // of google.rpc.Code

  explicit RpcMethodCounters(RpcMethodName method_name) : name(std::move(method_name)) {}

  const RpcMethodName name;
  Counter started;
  std::array<Counter, kCodes> handled;          // by the code that was answered
  std::atomic<int64_t> in_flight{0};            // from its start until gRPC is done with it
  DurationHistogram handling{kHandlingBounds};  // until the status is known; of streams nothing
};

struct StreamLoad {
  size_t open = 0;          // streams
  uint64_t max_lag = 0;     // records of a running job that the stream furthest behind has not read yet
  uint64_t sent_bytes = 0;  // of packed messages that have left, since the start
};

// Methods are fixed: what a client calls adds no series. Safe from any thread.
class RpcCounters {
 public:
  explicit RpcCounters(std::vector<RpcMethodName> methods) {
    for (RpcMethodName& name : methods) {
      const std::string path = "/" + name.service + "/" + name.method;
      by_path_[path] = &methods_.emplace_back(std::move(name));
    }
    unknown_ = &methods_.emplace_back(RpcMethodName{.service = "unknown", .method = "unknown", .streams = true});
  }

  // "/lenet.v1.TrainingService/Start"; all that were not given share one.
  RpcMethodCounters* Find(absl::string_view path) {
    const auto found = by_path_.find(path);
    return found == by_path_.end() ? unknown_ : found->second;
  }
  const std::deque<RpcMethodCounters>& methods() const { return methods_; }

 private:
  std::deque<RpcMethodCounters> methods_;
  std::map<std::string, RpcMethodCounters*, std::less<>> by_path_;
  RpcMethodCounters* unknown_;
};

}  // namespace lenet

#endif  // LENET_SERVER_TELEMETRY_RPC_COUNTERS_H_
