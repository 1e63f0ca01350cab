#include "server/shutdown_signals.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"

namespace lenet {
namespace {

sigset_t WatchedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

ShutdownSignals::ShutdownSignals() {
  const sigset_t signals = WatchedSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this] { Run(); });
}

ShutdownSignals::~ShutdownSignals() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGINT);
  thread_.join();
}

void ShutdownSignals::SetCallback(std::function<void(int count)> callback) {
  MutexLock lock(&callback_mutex_);
  callback_ = std::move(callback);
  reported_ = 0;
  Report();
}

int ShutdownSignals::count() const {
  MutexLock lock(&mutex_);
  return count_;
}

void ShutdownSignals::WaitForFirst() {
  MutexLock lock(&mutex_);
  while (count_ == 0) changed_.Wait(&mutex_);
}

bool ShutdownSignals::WaitForFirst(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&mutex_);
  while (count_ == 0) {
    if (!changed_.WaitUntil(&mutex_, deadline)) return count_ > 0;
  }
  return true;
}

void ShutdownSignals::Run() {
  pthread_setname_np(pthread_self(), "signals");
  const sigset_t signals = WatchedSignals();
  for (;;) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) continue;
    int count = 0;
    {
      MutexLock lock(&mutex_);
      if (stop_) return;
      count = ++count_;
    }
    changed_.SignalAll();
    Log(LogLevel::kInfo,
        absl::StrCat("SIG", sigabbrev_np(signal), ": ",
                     count == 1 ? "shutting down; running jobs save their state" : "aborting all jobs"));
    MutexLock lock(&callback_mutex_);
    Report();
  }
}

void ShutdownSignals::Report() {
  const int now = count();
  if (!callback_ || now == reported_) return;
  reported_ = now;
  callback_(now);
}

}  // namespace lenet
