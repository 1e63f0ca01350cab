// The calls that change nothing.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/job/job_manager.h"
#include "server/store/job_state.h"
#include "trainer/base/status.h"

namespace lenet {

absl::StatusOr<v1::Job> JobManager::GetJob(absl::string_view id) const {
  const LivePtr live = FindLive(id);
  LENET_ASSIGN_OR_RETURN(v1::Job job, store_->GetJob(id));
  Complete(live, &job);
  return job;
}

absl::StatusOr<JobPage> JobManager::ListJobs(const JobQuery& query) const {
  const LiveJobs live = AllLive();
  LENET_ASSIGN_OR_RETURN(JobPage page, store_->ListJobs(query));
  CompleteAll(live, &page.jobs);
  return page;
}

absl::StatusOr<ChangePage> JobManager::ListChanges(uint64_t after, int limit, int64_t max_bytes) const {
  const LiveJobs live = AllLive();
  LENET_ASSIGN_OR_RETURN(ChangePage page, store_->ListChanges(after, limit, max_bytes));
  CompleteAll(live, &page.jobs);
  return page;
}

absl::StatusOr<MetricsReader> JobManager::ReadMetrics(absl::string_view id, uint64_t from_sequence, RecordWishes wishes,
                                                      uint32_t known_epoch) const {
  // The live log first: a job that is not live is over.
  const LivePtr live = FindLive(id);
  LENET_ASSIGN_OR_RETURN(const v1::Job job, store_->GetJob(id));
  for (int rank : wishes.ranks) {
    if (rank < 0 || rank >= job.resolved().ranks()) {
      return absl::InvalidArgumentError(
          absl::StrCat("ranks: ", rank, " is no rank of job \"", id, "\"; must be 0 to ", job.resolved().ranks() - 1));
    }
  }
  return MetricsReader(store_, std::string(id), live == nullptr ? nullptr : live->log, from_sequence, std::move(wishes),
                       known_epoch);
}

ServerLoad JobManager::Load() const {
  MutexLock lock(&mutex_);
  return {.devices = pool_.devices(),
          .queued = static_cast<int>(queue_.size()),
          .running = static_cast<int>(threads_.size()),
          .draining = phase_ == Phase::kDraining};
}

void JobManager::AwaitScheduler() {
  MutexLock admit(&admit_mutex_);
  MutexLock lock(&mutex_);
}

std::vector<RunningJob> JobManager::Running() const {
  std::vector<LivePtr> live;
  {
    MutexLock lock(&mutex_);
    for (const auto& [running, thread] : threads_) {
      if (live_.contains(running->id)) live.push_back(running);
    }
  }
  std::vector<RunningJob> running;
  for (const LivePtr& job : live) {
    running.push_back({.id = job->id, .progress = job->progress.Get(), .ranks = job->progress.ranks()});
  }
  return running;
}

JobManager::LivePtr JobManager::FindLive(absl::string_view id) const {
  MutexLock lock(&mutex_);
  const auto it = live_.find(id);
  return it == live_.end() ? nullptr : it->second;
}

JobManager::LiveJobs JobManager::AllLive() const {
  MutexLock lock(&mutex_);
  return live_;
}

void JobManager::Complete(const LivePtr& live, v1::Job* job) const {
  if (live == nullptr || IsTerminal(job->state())) return;
  *job->mutable_progress() = live->progress.Get();
  if (job->state() != v1::QUEUED) return;
  MutexLock lock(&mutex_);
  // One that has just left the queue for its thread counts as first.
  job->set_queue_position(std::max(queue_.Position(live->id), 1));
  job->set_reason(absl::StrCat(job->reason(), "; ", queue_.WaitsFor(live->id, pool_)));
}

void JobManager::CompleteAll(const LiveJobs& live, std::vector<v1::Job>* jobs) const {
  for (v1::Job& job : *jobs) {
    const auto it = live.find(job.id());
    if (it != live.end()) Complete(it->second, &job);
  }
}

}  // namespace lenet
