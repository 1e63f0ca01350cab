// The thread that writes the logs of running jobs to the store.
#ifndef LENET_SERVER_METRICS_METRICS_FLUSHER_H_
#define LENET_SERVER_METRICS_METRICS_FLUSHER_H_

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "server/metrics/metrics_log.h"
#include "trainer/base/mutex.h"

namespace lenet {

// Flushes every log in it each `interval`, and at once after Wake(). Sleeps while there is none. Safe from any thread.
class MetricsFlusher {
 public:
  explicit MetricsFlusher(std::chrono::milliseconds interval = std::chrono::milliseconds(40));
  // Does not flush once more.
  ~MetricsFlusher();
  MetricsFlusher(const MetricsFlusher&) = delete;
  MetricsFlusher& operator=(const MetricsFlusher&) = delete;

  void Add(std::shared_ptr<MetricsLog> log) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(const MetricsLog* log) ABSL_LOCKS_EXCLUDED(mutex_);
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::chrono::milliseconds interval_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<MetricsLog>> logs_ ABSL_GUARDED_BY(mutex_);
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lenet

#endif  // LENET_SERVER_METRICS_METRICS_FLUSHER_H_
