// Threads for calls that read or write files, so that gRPC's own threads never wait.
#ifndef LENET_SERVER_RPC_EXECUTOR_H_
#define LENET_SERVER_RPC_EXECUTOR_H_

#include <chrono>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "trainer/base/heartbeat.h"
#include "trainer/base/mutex.h"

namespace lenet {

// Safe from any thread.
class Executor {
 public:
  Executor(int threads, size_t max_waiting);
  // Runs what waits, then joins.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs `task` soon, in the order of these calls; an exception ends it and is logged. False, and the task is dropped,
  // if too many wait already.
  bool Run(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

  size_t max_waiting() const { return max_waiting_; }

  // Waits until one more task has ended, for which it adds one of its own; false if the deadline passes first. So long
  // tasks, or many, are no standstill as long as any ends.
  bool Responds(std::chrono::steady_clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t max_waiting_;
  Mutex mutex_;
  CondVar changed_;
  Heartbeat heartbeat_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;  // the task of a Responds() waits
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_EXECUTOR_H_
