#include "server/metrics/metrics_flusher.h"

#include <pthread.h>

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"

namespace lenet {

MetricsFlusher::MetricsFlusher(std::chrono::milliseconds interval) : interval_(interval), thread_([this] { Run(); }) {}

MetricsFlusher::~MetricsFlusher() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void MetricsFlusher::Add(std::shared_ptr<MetricsLog> log) {
  {
    MutexLock lock(&mutex_);
    logs_.push_back(std::move(log));
  }
  changed_.Signal();
}

void MetricsFlusher::Remove(const MetricsLog* log) {
  MutexLock lock(&mutex_);
  std::erase_if(logs_, [log](const std::shared_ptr<MetricsLog>& held) { return held.get() == log; });
}

void MetricsFlusher::Wake() {
  {
    MutexLock lock(&mutex_);
    woken_ = true;
  }
  changed_.Signal();
}

void MetricsFlusher::Run() {
  pthread_setname_np(pthread_self(), "metrics");
  std::vector<std::shared_ptr<MetricsLog>> logs;
  std::set<std::string> failing;  // so that an outage is logged once
  for (;;) {
    logs.clear();
    {
      MutexLock lock(&mutex_);
      const auto next = std::chrono::steady_clock::now() + interval_;
      while (!stop_ && !woken_) {
        if (logs_.empty()) {
          changed_.Wait(&mutex_);
        } else if (!changed_.WaitUntil(&mutex_, next)) {
          break;
        }
      }
      if (stop_) return;
      woken_ = false;
      logs = logs_;
    }
    for (const std::shared_ptr<MetricsLog>& log : logs) {
      const absl::Status status = log->Flush();
      if (!status.ok()) {
        if (failing.insert(log->job_id()).second) {
          Log(LogLevel::kError,
              absl::StrCat("job ", log->job_id(), ": its metrics cannot be stored, trying again: ", status.ToString()));
        }
      } else if (failing.erase(log->job_id()) > 0) {
        Log(LogLevel::kInfo, absl::StrCat("job ", log->job_id(), ": its metrics are stored again"));
      }
    }
  }
}

}  // namespace lenet
