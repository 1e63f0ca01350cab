// The thread that writes the logs of running jobs to the store.
#ifndef LENET_SERVER_METRICS_METRICS_FLUSHER_H_
#define LENET_SERVER_METRICS_METRICS_FLUSHER_H_

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "server/metrics/metrics_log.h"
#include "trainer/base/heartbeat.h"
#include "trainer/base/mutex.h"

namespace lenet {

// Flushes each log in it when it is due. Sleeps while none is. Safe from any thread.
class MetricsFlusher {
 public:
  MetricsFlusher();
  // Does not flush once more.
  ~MetricsFlusher();
  MetricsFlusher(const MetricsFlusher&) = delete;
  MetricsFlusher& operator=(const MetricsFlusher&) = delete;

  void Add(std::shared_ptr<MetricsLog> log) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(const MetricsLog* log) ABSL_LOCKS_EXCLUDED(mutex_);
  // A log has become due earlier.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until its thread has looked at the logs once more; false if the deadline passes first.
  bool Responds(std::chrono::steady_clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Waits for logs that are due; none: the end.
  std::vector<std::shared_ptr<MetricsLog>> AwaitDue() ABSL_LOCKS_EXCLUDED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  Heartbeat heartbeat_;
  std::vector<std::shared_ptr<MetricsLog>> logs_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lenet

#endif  // LENET_SERVER_METRICS_METRICS_FLUSHER_H_
