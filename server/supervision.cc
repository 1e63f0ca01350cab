#include "server/supervision.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;

// The manager's patience is asked for in pieces of the first length, each time the second has passed.
constexpr std::chrono::microseconds kPatience = std::chrono::seconds(20);
constexpr std::chrono::seconds kPatienceInterval(5);
// Parts are asked so many times in the watchdog's timeout, but no less often than the second says.
constexpr int kRounds = 8;
constexpr milliseconds kLongestPause(5000);
constexpr milliseconds kLeastInterval(1);
constexpr milliseconds kLongestTimeout = std::chrono::hours(24);

}  // namespace

Supervision::Supervision(ServiceManager manager, const SupervisionOptions& options,
                         std::vector<ProgressWatch::Part> parts)
    : manager_(std::move(manager)), options_(options) {
  if (!manager_.present()) return;
  threads_.emplace_back([this] { ReportStatus(); });
  if (!options.watchdog) return;
  const milliseconds timeout = std::min(std::chrono::duration_cast<milliseconds>(*options.watchdog), kLongestTimeout);
  watch_ =
      std::make_unique<ProgressWatch>(std::move(parts), std::clamp(timeout / kRounds, kLeastInterval, kLongestPause));
  threads_.emplace_back([this, timeout] { ShowLife(std::max(timeout / 2, kLeastInterval)); });
}

Supervision::~Supervision() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.SignalAll();
  for (std::thread& thread : threads_) thread.join();
}

void Supervision::Enter(Phase phase) {
  if (!manager_.present()) return;
  std::string text = phase.status();
  MutexLock lock(&mutex_);
  if (!phase.watched && watch_ != nullptr) watch_->Stop();
  phase_ = std::move(phase);
  ++phases_;
  patience_due_ = Clock::now();
  patience_end_ = patience_due_ + phase_.longest;
  Send({phase_.state, Show(std::move(text)), AskPatience()});
}

void Supervision::ReportStatus() {
  pthread_setname_np(pthread_self(), "status");
  while (Pause(options_.status_interval)) {
    std::function<std::string()> status;
    uint64_t phases = 0;
    {
      MutexLock lock(&mutex_);
      status = phase_.status;
      phases = phases_;
    }
    if (!status) continue;
    std::string text = status();
    MutexLock lock(&mutex_);
    if (phases != phases_) continue;
    const bool changed = text != shown_ && !stands_still_;
    Send({changed ? Show(std::move(text)) : "", AskPatience()});
  }
}

void Supervision::ShowLife(milliseconds interval) {
  pthread_setname_np(pthread_self(), "watchdog");
  std::string still;  // the part that stands still
  milliseconds pause{0};
  while (Pause(pause)) {
    const std::optional<ProgressWatch::Standstill> found = watch_->Find(interval);
    const std::string part = found ? found->part : "";
    if (found && part != still) {
      Log(LogLevel::kError, absl::StrCat("watchdog: ", part, " stands still, for ", found->duration.count(),
                                         " ms now: no signs of life for the service manager until it goes on"));
    } else if (!found && !still.empty()) {
      Log(LogLevel::kInfo, "watchdog: the service manager gets signs of life again");
    }
    still = part;
    pause = found ? std::max(interval / kRounds, kLeastInterval) : interval;
    MutexLock lock(&mutex_);
    stands_still_ = found.has_value();
    const std::string text = absl::StrCat(still, " stands still");
    Send({found ? "" : "WATCHDOG=1", found && text != shown_ ? Show(text) : ""});
  }
}

std::string Supervision::Show(std::string text) {
  shown_ = std::move(text);
  return absl::StrCat("STATUS=", shown_);
}

std::string Supervision::AskPatience() {
  const Clock::time_point now = Clock::now();
  if (now < patience_due_ || now >= patience_end_) return "";
  patience_due_ = now + kPatienceInterval;
  return absl::StrCat("EXTEND_TIMEOUT_USEC=", kPatience.count());
}

void Supervision::Send(const std::vector<std::string>& lines) {
  std::string message;
  for (const std::string& line : lines) {
    if (!line.empty()) absl::StrAppend(&message, message.empty() ? "" : "\n", line);
  }
  if (message.empty()) return;
  const absl::Status sent = manager_.Notify(message);
  if (!sent.ok() && !failing_) Log(LogLevel::kWarning, absl::StrCat("not told: ", sent.message()));
  failing_ = !sent.ok();
}

bool Supervision::Pause(milliseconds duration) {
  MutexLock lock(&mutex_);
  const Clock::time_point end = Clock::now() + duration;
  while (!stop_ && changed_.WaitUntil(&mutex_, end)) {
  }
  return !stop_;
}

}  // namespace lenet
