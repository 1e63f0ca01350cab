// Tells the service manager what lenetd is doing, and that it makes progress.
#ifndef LENET_SERVER_SUPERVISION_H_
#define LENET_SERVER_SUPERVISION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/progress_watch.h"
#include "server/service_manager.h"
#include "trainer/base/mutex.h"

namespace lenet {

struct SupervisionOptions {
  std::optional<std::chrono::microseconds> watchdog;  // see WatchdogTimeout
  std::chrono::milliseconds status_interval{1000};
};

// Without a service manager it does nothing and has no thread. Else one thread sends the status line when it has
// changed; with a watchdog, another sends signs of life at half of its timeout, and a third asks the parts (see
// ProgressWatch). A part that has not moved for half of the timeout stops the signs, and is logged; they go on when it
// does. So a standstill of up to the timeout does no harm; one of about one and a half makes the manager act.
class Supervision {
 public:
  using Clock = std::chrono::steady_clock;

  struct Phase {
    std::string state;                    // the line that announces it, such as "READY=1", or nothing
    std::function<std::string()> status;  // for the status line: asked about once a second, one at a time
    // For so long the manager is asked for patience with a start or a stop that has exceeded its timeout. Not if
    // `status` does not come back.
    std::chrono::milliseconds longest{0};
    bool watched = true;  // signs of life need the parts' progress; false: for good
  };

  // What the parts and the phases use outlives it.
  Supervision(ServiceManager manager, const SupervisionOptions& options, std::vector<ProgressWatch::Part> parts);
  // Waits for the questions to the parts, and for a status, that are under way.
  ~Supervision();
  Supervision(const Supervision&) = delete;
  Supervision& operator=(const Supervision&) = delete;

  // When this returns the manager has been told.
  void Enter(Phase phase) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void ReportStatus() ABSL_LOCKS_EXCLUDED(mutex_);
  void ShowLife(std::chrono::milliseconds interval) ABSL_LOCKS_EXCLUDED(mutex_);
  // Those that are not empty, as one message.
  void Send(const std::vector<std::string>& lines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The status line, which it notes.
  std::string Show(std::string text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A request for patience, if the phase has one and it is due; else nothing.
  std::string AskPatience() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False at the end.
  bool Pause(std::chrono::milliseconds duration) ABSL_LOCKS_EXCLUDED(mutex_);

  const ServiceManager manager_;
  const SupervisionOptions options_;
  std::unique_ptr<ProgressWatch> watch_;  // null without a watchdog
  Mutex mutex_;
  CondVar changed_;
  Phase phase_ ABSL_GUARDED_BY(mutex_);
  uint64_t phases_ ABSL_GUARDED_BY(mutex_) = 0;
  Clock::time_point patience_end_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point patience_due_ ABSL_GUARDED_BY(mutex_);  // when to ask for it again
  std::string shown_ ABSL_GUARDED_BY(mutex_);               // the status line
  bool stands_still_ ABSL_GUARDED_BY(mutex_) = false;       // the status line tells of that
  bool failing_ ABSL_GUARDED_BY(mutex_) = false;            // the manager cannot be told; logged once
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace lenet

#endif  // LENET_SERVER_SUPERVISION_H_
