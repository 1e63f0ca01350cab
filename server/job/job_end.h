// The changes of a job's state that its own thread records, and those of a job that waits: each in one transaction
// with the records that belong to it.
#ifndef LENET_SERVER_JOB_JOB_END_H_
#define LENET_SERVER_JOB_JOB_END_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lenet/v1/job.pb.h"
#include "server/job/live_job.h"
#include "server/job/store_patience.h"
#include "server/store/job_store.h"
#include "trainer/train/trainer.h"

namespace lenet {

inline constexpr char kPaused[] = "paused on request";

// A result without a step of this attempt, for what ends it outside of a training.
TrainResult WithoutAStep(const LiveJob& live, TrainEnd end);
TrainResult Failed(const LiveJob& live, std::string phase, absl::Status status);

// QUEUED to STARTING, or to STOPPED if a stop was asked for and could not be recorded. ABORTED: a Stop or a Pause came
// first.
absl::StatusOr<v1::Job> BeginAttempt(LiveJob* live, JobStore* store, StorePatience* patience, const JobEdit& edit);

// STARTING to RUNNING.
absl::StatusOr<v1::Job> RecordRunning(LiveJob* live);

// The change that ends the attempt: a terminal one, or, if the training was stopped for the job's yield, one to QUEUED
// or PAUSED; none if it has ended already. Tries as long as the patience lasts, at last without the metrics that the
// store refuses.
absl::StatusOr<v1::Job> EndAttempt(LiveJob* live, JobStore* store, StorePatience* patience, const TrainResult& result);

// An attempt that the end of an earlier server cut short, STARTING, RUNNING or STOPPING, which `job` is. A stop that
// was asked for has been: STOPPED. Else QUEUED again, or, if it is not to go on, FAILED.
// Its time is that of the log's newest record, and FAILED has the last step in the log.
absl::StatusOr<v1::Job> EndLostAttempt(LiveJob* live, const JobStore& store, const v1::Job& job, bool goes_on);

// QUEUED or PAUSED, which `job` is, to STOPPED, in one try. ABORTED if the state is another by now.
absl::StatusOr<v1::Job> StopWaitingJob(LiveJob* live, const v1::Job& job, absl::string_view reason);

// From the state that `job` is in to QUEUED or PAUSED, with the progress that it has saved last, in one try. ABORTED if
// the state is another by now.
absl::StatusOr<v1::Job> RecordWaiting(LiveJob* live, const v1::Job& job, v1::JobState to, absl::string_view reason,
                                      absl::Time time = absl::Now());

// For the thread of a job that it has left waiting as `job` says: the job as it is by now, after a Resume or a Stop. If
// it is QUEUED, and a Pause came too late for the attempt, it is PAUSED first: ABORTED if a Stop came before that, or
// the store's error. Resume and Pause are to be held off.
absl::StatusOr<v1::Job> SettleWaiting(LiveJob* live, const JobStore& store, const v1::Job& job);

// For a queued job that cannot even be run: FAILED in phase "init" with `why`, tried for about a second. ABORTED as
// BeginAttempt.
absl::StatusOr<v1::Job> FailQueuedJob(LiveJob* live, JobStore* store, const absl::Status& why);

}  // namespace lenet

#endif  // LENET_SERVER_JOB_JOB_END_H_
