// How a thread shows that it makes progress.
#ifndef LENET_TRAINER_BASE_HEARTBEAT_H_
#define LENET_TRAINER_BASE_HEARTBEAT_H_

#include <chrono>
#include <cstdint>

#include "trainer/base/mutex.h"

namespace lenet {

// The thread beats in each round of its loop. Whoever wants a proof notes the count, wakes the thread, and waits for
// one more. Safe from any thread; its lock is taken last.
class Heartbeat {
 public:
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    ++beats_;
    beaten_.SignalAll();
  }

  uint64_t beats() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return beats_;
  }

  // Waits for more than so many beats; false if the deadline passes first.
  bool AwaitMore(uint64_t beats, std::chrono::steady_clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    while (beats_ <= beats) {
      if (!beaten_.WaitUntil(&mutex_, deadline)) return beats_ > beats;
    }
    return true;
  }

 private:
  mutable Mutex mutex_;
  CondVar beaten_;
  uint64_t beats_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_HEARTBEAT_H_
