// Jobs, their attempts and their metrics logs: what must be remembered, behind one interface.
#ifndef LENET_SERVER_STORE_JOB_STORE_H_
#define LENET_SERVER_STORE_JOB_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lenet/v1/job.pb.h"
#include "lenet/v1/metrics.pb.h"

namespace lenet {

// One run of a job. A job has as many as it was started.
struct Attempt {
  uint32_t number = 0;  // from 1
  absl::Time started_at;
  std::optional<absl::Time> ended_at;
  v1::JobState end_state = v1::JOB_STATE_UNSPECIFIED;  // set with ended_at
};

// Changes fields of a stored job. It runs inside the store's transaction: it must be quick, may not call the store, and
// may not touch what the store itself keeps: id, request_id, spec, state, attempt, the three times, last_sequence,
// log_epoch, checkpoint. It may take out of `checkpoints` those that are no longer kept.
using JobEdit = std::function<void(v1::Job* job)>;

struct StateUpdate {
  v1::JobState from = v1::JOB_STATE_UNSPECIFIED;
  v1::JobState to = v1::JOB_STATE_UNSPECIFIED;
  absl::Time time;
  std::string reason;                     // becomes Job.reason
  JobEdit edit;                           // or null
  std::vector<v1::MetricRecord> records;  // appended to the job's log with the change
};

struct JobQuery {
  std::vector<v1::JobState> states;  // empty: all
  int limit = 100;                   // >= 1
  int64_t max_bytes = 1 << 20;       // of the jobs together, about; one is given in any case
  std::string page_token;            // of the page before; empty: the first page
};

struct JobPage {
  std::vector<v1::Job> jobs;
  std::string next_page_token;  // empty: no more
};

struct ChangePage {
  std::vector<v1::Job> jobs;  // in the order of their newest change
  uint64_t revision = 0;      // of the last of them; `after` if there is none
  bool complete = false;      // nothing newer was left out
};

struct CreateResult {
  v1::Job job;
  bool created = false;
};

// Immutable and shared among readers.
using RecordPtr = std::shared_ptr<const v1::MetricRecord>;

struct RecordPage {
  std::vector<RecordPtr> records;
  uint64_t first_sequence = 0;  // oldest record kept; last_sequence + 1 if none is
  uint64_t last_sequence = 0;   // newest record; 0 if there never was one
  bool ended = false;           // the job is in a terminal state: the log will not grow
  uint32_t log_epoch = 1;       // Job.log_epoch
  // First sequences of the epochs 2 to log_epoch; none is below the one before it.
  std::vector<uint64_t> epoch_starts;
};

// How much a store remembers.
struct StoreLimits {
  // Beyond it the jobs that ended first are forgotten.
  int64_t max_ended_jobs = 10000;
  // Beyond it a log loses its oldest records; its newest stay.
  int64_t max_log_bytes = int64_t{64} << 20;
  // Of all logs together. Logs of ended jobs lose records first, in the order in which the jobs ended.
  int64_t max_total_log_bytes = int64_t{512} << 20;
  // Jobs that ended longer ago are forgotten.
  absl::Duration max_age = absl::InfiniteDuration();
  // Called with the id of every job that has been forgotten or deleted, so that its owner can remove what it keeps
  // elsewhere: by the call that did it, after the change is durable, without a lock. It may call the store, but may not
  // throw. What a process that died before the call has left is for the owner to find. Or null.
  std::function<void(const std::string& id)> forgotten;
};

// Safe from any thread. Each call is atomic, and what it answered OK survives as long as the implementation promises
// (a durable one: from then on). Unknown job ids give NOT_FOUND. Besides what is listed, any call may give the
// storage's own errors: RESOURCE_EXHAUSTED (disk full), DATA_LOSS, UNAVAILABLE, INTERNAL; they change nothing.
class JobStore {
 public:
  virtual ~JobStore() = default;

  // Adds `job`, whose id is new, spec set and state QUEUED, with its first records; its log_epoch becomes 1. If its
  // request_id is not empty and is another job's, gives that job instead, `created` false. ALREADY_EXISTS if the id is
  // taken.
  virtual absl::StatusOr<CreateResult> CreateJob(const v1::Job& job, std::vector<v1::MetricRecord> records) = 0;

  virtual absl::StatusOr<v1::Job> GetJob(absl::string_view id) const = 0;
  // NOT_FOUND if no job has this request id, which is not empty.
  virtual absl::StatusOr<v1::Job> FindByRequestId(absl::string_view request_id) const = 0;
  // In falling order of their ids, that is, newest first. INVALID_ARGUMENT for a page token that no page ever had.
  virtual absl::StatusOr<JobPage> ListJobs(const JobQuery& query) const = 0;
  // How many jobs are in each state in which there are any; damaged ones count, too.
  virtual absl::StatusOr<std::map<v1::JobState, int64_t>> CountJobs() const = 0;

  // Every creation and change of state takes the next revision, and a job is known by its newest one. Gives jobs with
  // a revision above `after`, at most `limit` >= 1 and about `max_bytes` of them, but at least one if there is any; so
  // `after` = 0 gives all jobs, page by page.
  virtual absl::StatusOr<ChangePage> ListChanges(uint64_t after, int limit, int64_t max_bytes) const = 0;
  // The newest revision; cheap.
  virtual uint64_t revision() const = 0;

  // Changes the state by compare-and-set and gives the job as it is then. ABORTED, naming the state found, if it is not
  // `update.from`; INTERNAL if the change is not legal (job_state.h). A change to STARTING opens the next attempt and
  // sets started_at, if not set; one that ends an attempt (job_state.h) closes it; one to a terminal state sets
  // ended_at, and what is too old or too much by then is forgotten.
  virtual absl::StatusOr<v1::Job> ChangeState(absl::string_view id, StateUpdate update) = 0;

  virtual absl::StatusOr<v1::Job> UpdateJob(absl::string_view id, const JobEdit& edit) = 0;

  // Forgets an ended job: its record, attempts and log. FAILED_PRECONDITION, with the state, if it has not ended.
  virtual absl::Status DeleteJob(absl::string_view id) = 0;
  // In the place of StoreLimits::max_age. What is too old is forgotten by the next change that looks for it.
  virtual void SetMaxAge(absl::Duration max_age) = 0;
  // Forgets the jobs that ended more than max_age before `now`.
  virtual absl::Status ForgetOld(absl::Time now) = 0;

  virtual absl::StatusOr<std::vector<Attempt>> ListAttempts(absl::string_view id) const = 0;

  // Appends in order; the store sets the records' sequence and attempt, and Job.last_sequence, and a checkpoint_saved
  // record becomes Job.checkpoint and one of Job.checkpoints, which are in the order of their steps, in place of one of
  // the same step. Of its path a store may keep the file's name alone, and give that below a folder of its own. Gives
  // the newest sequence. FAILED_PRECONDITION if the job has ended. After an error the records are as they were.
  virtual absl::StatusOr<uint64_t> AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) = 0;

  // Kept records from `from_sequence` (or from the oldest, if that was removed) on, in order, without gaps, of about
  // `max_bytes` together, but at least one if there is any.
  virtual absl::StatusOr<RecordPage> ReadRecords(absl::string_view id, uint64_t from_sequence,
                                                 int64_t max_bytes) const = 0;
};

}  // namespace lenet

#endif  // LENET_SERVER_STORE_JOB_STORE_H_
