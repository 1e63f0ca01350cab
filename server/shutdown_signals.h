// SIGTERM and SIGINT as events.
#ifndef LENET_SERVER_SHUTDOWN_SIGNALS_H_
#define LENET_SERVER_SHUTDOWN_SIGNALS_H_

#include <chrono>
#include <functional>
#include <thread>

#include "trainer/base/mutex.h"

namespace lenet {

// Make it before any other thread: it blocks the signals for this thread and all that it starts, and waits for them on
// a thread of its own. SIGPIPE is ignored from then on.
class ShutdownSignals {
 public:
  ShutdownSignals();
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // Calls `callback` with the number of signals so far: now if there were any, and when it rises from now on, one call
  // at a time. Null ends that; no call is under way when this returns.
  void SetCallback(std::function<void(int count)> callback) ABSL_LOCKS_EXCLUDED(callback_mutex_, mutex_);

  int count() const ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitForFirst() ABSL_LOCKS_EXCLUDED(mutex_);
  // False if the deadline passes first.
  bool WaitForFirst(std::chrono::steady_clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(callback_mutex_, mutex_);
  void Report() ABSL_EXCLUSIVE_LOCKS_REQUIRED(callback_mutex_) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex callback_mutex_;  // held during a call
  std::function<void(int)> callback_ ABSL_GUARDED_BY(callback_mutex_);
  int reported_ ABSL_GUARDED_BY(callback_mutex_) = 0;  // to this callback
  mutable Mutex mutex_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lenet

#endif  // LENET_SERVER_SHUTDOWN_SIGNALS_H_
