// How long a job waits for a store that refuses its changes.
#ifndef LENET_SERVER_JOB_STORE_PATIENCE_H_
#define LENET_SERVER_JOB_STORE_PATIENCE_H_

#include <chrono>

#include "trainer/base/mutex.h"

namespace lenet {

// The pauses between tries, for as many jobs as wait: without end until there is a deadline. Safe from any thread.
class StorePatience {
 public:
  using Clock = std::chrono::steady_clock;

  StorePatience() = default;
  explicit StorePatience(Clock::time_point deadline) : deadline_(deadline) {}

  // No more pauses after `deadline`; the earliest one given counts. Pauses under way end, for a try at once.
  void EndAt(Clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  // Pauses after that many failed tries, from 1: 100 ms, then each time twice as long, up to 5 s, but not beyond the
  // deadline. False, at once, if it has passed.
  bool Pause(int failures) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  CondVar changed_;
  Clock::time_point deadline_ ABSL_GUARDED_BY(mutex_) = Clock::time_point::max();
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_STORE_PATIENCE_H_
