// What every store does alike: which calls it refuses, in which words, and what a change makes of a job.
#ifndef LENET_SERVER_STORE_STORE_RULES_H_
#define LENET_SERVER_STORE_STORE_RULES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lenet/v1/job.pb.h"
#include "lenet/v1/metrics.pb.h"
#include "server/store/job_store.h"

namespace lenet {

absl::Status UnknownJob(absl::string_view id);
absl::Status UnknownRequest(absl::string_view request_id);
absl::Status TakenId(absl::string_view id);

// INTERNAL if the job is not QUEUED.
absl::Status CheckNew(const v1::Job& job);
// INTERNAL if the change of state is not legal.
absl::Status CheckLegal(absl::string_view id, const StateUpdate& update);
// ABORTED if the job is not in `update.from`.
absl::Status CheckFrom(const v1::Job& job, const StateUpdate& update);
// FAILED_PRECONDITION if the job has ended.
absl::Status CheckLogOpen(const v1::Job& job);
// FAILED_PRECONDITION if the job has not ended.
absl::Status CheckEnded(const v1::Job& job);
// INVALID_ARGUMENT if no page ever had the token.
absl::Status CheckPageToken(const JobQuery& query);

bool Wanted(const JobQuery& query, v1::JobState state);

// What a new job has of the store itself.
void ApplyCreation(v1::Job* job);
// State, reason, attempt and times; the edit comes after the store's own part of the change.
void ApplyChange(const StateUpdate& update, v1::Job* job);
// Gives the record the next place in the job's log, and the job the checkpoint that it may tell of.
void Number(v1::Job* job, v1::MetricRecord* record);

// Gathers the jobs that a change forgets. Made before the lock is taken, it calls the hook when the lock is gone, if
// the change was made.
class ForgottenJobs {
 public:
  explicit ForgottenJobs(const StoreLimits* limits) : limits_(limits) {}
  ~ForgottenJobs();
  ForgottenJobs(const ForgottenJobs&) = delete;
  ForgottenJobs& operator=(const ForgottenJobs&) = delete;

  bool empty() const { return ids_.empty(); }
  void Add(std::string id) { ids_.push_back(std::move(id)); }
  void Commit() { committed_ = true; }

 private:
  const StoreLimits* const limits_;
  std::vector<std::string> ids_;
  bool committed_ = false;
};

}  // namespace lenet

#endif  // LENET_SERVER_STORE_STORE_RULES_H_
