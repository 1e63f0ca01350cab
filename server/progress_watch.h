// Whether the parts of a process make progress.
#ifndef LENET_SERVER_PROGRESS_WATCH_H_
#define LENET_SERVER_PROGRESS_WATCH_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trainer/base/mutex.h"

namespace lenet {

// Asks one part after the other, on a thread of its own, whether it moves. So a part that never answers holds up this
// thread alone, and whoever looks at it sees where. Safe from any thread.
class ProgressWatch {
 public:
  using Clock = std::chrono::steady_clock;

  struct Part {
    std::string name;
    // Returns true when the part has moved; false if it has not by the deadline, and is then called again. What cannot
    // be asked with a deadline, such as a lock, may take longer. An exception counts as an answer.
    std::function<bool(Clock::time_point deadline)> moves;
  };
  struct Standstill {
    std::string part;
    std::chrono::milliseconds duration;
  };

  // With `pause` after each round.
  ProgressWatch(std::vector<Part> parts, std::chrono::milliseconds pause);
  // Waits for the question under way.
  ~ProgressWatch();
  ProgressWatch(const ProgressWatch&) = delete;
  ProgressWatch& operator=(const ProgressWatch&) = delete;

  // The part that has been asked for longer than `patience`, if one has. Never waits for a part.
  std::optional<Standstill> Find(std::chrono::milliseconds patience) const ABSL_LOCKS_EXCLUDED(mutex_);

  // No more questions; Find finds nothing from now on. Does not wait for the one under way.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // False at the end.
  bool Ask(const Part& part) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::vector<Part> parts_;
  const std::chrono::milliseconds pause_;
  mutable Mutex mutex_;
  CondVar changed_;
  const Part* asked_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null in a pause
  Clock::time_point asked_at_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lenet

#endif  // LENET_SERVER_PROGRESS_WATCH_H_
