#include "server/metrics/metrics_flusher.h"

#include <pthread.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"

namespace lenet {

MetricsFlusher::MetricsFlusher() : thread_([this] { Run(); }) {}

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
  // Not between the look at the logs and the wait.
  { MutexLock lock(&mutex_); }
  changed_.Signal();
}

bool MetricsFlusher::Responds(std::chrono::steady_clock::time_point deadline) {
  const uint64_t before = heartbeat_.beats();
  Wake();
  return heartbeat_.AwaitMore(before, deadline);
}

std::vector<std::shared_ptr<MetricsLog>> MetricsFlusher::AwaitDue() {
  using Clock = MetricsLog::Clock;
  std::vector<std::shared_ptr<MetricsLog>> due;
  MutexLock lock(&mutex_);
  while (!stop_) {
    heartbeat_.Beat();
    const Clock::time_point now = Clock::now();
    Clock::time_point next = Clock::time_point::max();
    for (const std::shared_ptr<MetricsLog>& log : logs_) {
      const Clock::time_point log_due = log->due();
      if (log_due <= now) due.push_back(log);
      next = std::min(next, log_due);
    }
    if (!due.empty()) break;
    if (next == Clock::time_point::max()) {
      changed_.Wait(&mutex_);
    } else {
      changed_.WaitUntil(&mutex_, next);
    }
  }
  return due;
}

void MetricsFlusher::Run() {
  pthread_setname_np(pthread_self(), "metrics");
  std::set<std::string> failing;  // so that an outage is logged once
  while (true) {
    const std::vector<std::shared_ptr<MetricsLog>> due = AwaitDue();
    if (due.empty()) return;
    for (const std::shared_ptr<MetricsLog>& log : due) {
      const absl::Status status = log->Flush();
      if (!status.ok()) {
        if (failing.insert(log->job_id()).second) {
          LogOfJob(LogLevel::kError, log->job_id(),
                   absl::StrCat("its metrics cannot be stored, trying again: ", status.ToString()));
        }
      } else if (failing.erase(log->job_id()) > 0) {
        LogOfJob(LogLevel::kInfo, log->job_id(), "its metrics are stored again");
      }
    }
  }
}

}  // namespace lenet
