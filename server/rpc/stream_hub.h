// The thread from which all streams write.
#ifndef LENET_SERVER_RPC_STREAM_HUB_H_
#define LENET_SERVER_RPC_STREAM_HUB_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/telemetry/instruments.h"
#include "server/telemetry/rpc_counters.h"
#include "trainer/base/heartbeat.h"
#include "trainer/base/mutex.h"

namespace lenet {

class HubStream {
 public:
  struct Occasion {
    bool draining = false;  // nothing more will come; a stream with nothing left to write ends
    bool eager = false;     // the stream has been idle, and what comes next should not wait
  };

  // `client` is its caller's name.
  explicit HubStream(std::string client) : client_(std::move(client)) {}
  virtual ~HubStream() = default;

  // On the hub's thread: writes what there is, if the write before is done. False if there was nothing to write. An
  // exception is logged, and the other streams go on.
  virtual bool Tick(const Occasion& occasion) = 0;
  // Records that are written and that it has not read yet, as far as it is known. Quick, and safe from any thread.
  virtual uint64_t lag() const { return 0; }

 private:
  friend class StreamHub;
  const std::string client_;
  // Of the hub's thread.
  bool idle_ = true;    // nothing to write since the last regular tick
  bool fresh_ = false;  // idle at the last regular tick
  int wakes_left_ = 0;
};

// Ticks each stream once when it is added, and then every `interval`: writes are gathered, their number does not grow
// with the rate of the records, and gRPC's threads stay free for other calls (a stream that writes again as soon as the
// write before is done starves them). Between two such ticks Wake() brings the next one forward: once for a stream that
// has much to write, kWakes times for one that was idle; what is left of these outlasts one regular tick, which may
// fall into the middle of a job's start. Sleeps while there is no stream. Safe from any thread.
class StreamHub {
 public:
  // A job's start has that many records before its first losses.
  static constexpr int kWakes = 8;

  explicit StreamHub(size_t max_streams, std::chrono::milliseconds interval = std::chrono::milliseconds(50));
  ~StreamHub();
  StreamHub(const StreamHub&) = delete;
  StreamHub& operator=(const StreamHub&) = delete;

  // At most so many streams, and so many of a client (0: no limit), from now on; those that are open stay.
  void SetLimits(size_t max_streams, size_t max_streams_per_client) ABSL_LOCKS_EXCLUDED(mutex_);

  // RESOURCE_EXHAUSTED at a limit.
  absl::Status Add(std::shared_ptr<HubStream> stream) ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream may still be in a tick when this returns. Harmless if it is not there.
  void Remove(const HubStream* stream) ABSL_LOCKS_EXCLUDED(mutex_);
  // There may be something to write.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);

  // A stream's message of that size has left.
  void CountSent(uint64_t bytes) { sent_bytes_.Add(bytes); }
  StreamLoad Load() const ABSL_LOCKS_EXCLUDED(mutex_);

  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until there is no stream; false if the deadline passes first.
  bool WaitEmpty(std::chrono::steady_clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until its thread has begun one more round; false if the deadline passes first.
  bool Responds(std::chrono::steady_clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Streams = std::vector<std::shared_ptr<HubStream>>;

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  // RESOURCE_EXHAUSTED at a limit.
  absl::Status CheckLimits(const std::string& client) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::chrono::milliseconds interval_;
  mutable Mutex mutex_;
  size_t max_streams_ ABSL_GUARDED_BY(mutex_);
  size_t max_streams_per_client_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> clients_ ABSL_GUARDED_BY(mutex_);  // how many streams each has
  CondVar changed_;
  CondVar empty_;
  Heartbeat heartbeat_;
  Streams streams_ ABSL_GUARDED_BY(mutex_);
  Streams added_ ABSL_GUARDED_BY(mutex_);  // of streams_: not ticked yet
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  Counter sent_bytes_;
  std::thread thread_;
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_STREAM_HUB_H_
