#include "server/job/job_waiters.h"

#include <utility>

namespace lenet {

uint64_t JobWaiters::Add(absl::string_view id, Waiter waiter) {
  waiters_[std::string(id)][++last_token_] = std::move(waiter);
  return last_token_;
}

EndCallback JobWaiters::Remove(absl::string_view id, uint64_t token) {
  const auto of_job = waiters_.find(id);
  if (of_job == waiters_.end()) return nullptr;
  const auto waiter = of_job->second.find(token);
  if (waiter == of_job->second.end()) return nullptr;
  EndCallback done = std::move(waiter->second.done);
  of_job->second.erase(waiter);
  if (of_job->second.empty()) waiters_.erase(of_job);
  return done;
}

std::vector<JobWaiters::Waiter> JobWaiters::Take(absl::string_view id) {
  std::vector<Waiter> taken;
  const auto of_job = waiters_.find(id);
  if (of_job == waiters_.end()) return taken;
  for (auto& [token, waiter] : of_job->second) taken.push_back(std::move(waiter));
  waiters_.erase(of_job);
  return taken;
}

std::vector<JobWaiters::Waiter> JobWaiters::TakeForPause(absl::string_view id) {
  std::vector<Waiter> taken;
  const auto of_job = waiters_.find(id);
  if (of_job == waiters_.end()) return taken;
  for (auto waiter = of_job->second.begin(); waiter != of_job->second.end();) {
    if (waiter->second.for_pause) {
      taken.push_back(std::move(waiter->second));
      waiter = of_job->second.erase(waiter);
    } else {
      ++waiter;
    }
  }
  if (of_job->second.empty()) waiters_.erase(of_job);
  return taken;
}

}  // namespace lenet
