// Accepts jobs, queues them, gives them devices, runs and stops them.
#ifndef LENET_SERVER_JOB_JOB_MANAGER_H_
#define LENET_SERVER_JOB_JOB_MANAGER_H_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lenet/v1/job.pb.h"
#include "lenet/v1/training_service.pb.h"
#include "server/job/device_health.h"
#include "server/job/device_pool.h"
#include "server/job/group_cache.h"
#include "server/job/job_id.h"
#include "server/job/job_queue.h"
#include "server/job/job_runner.h"
#include "server/job/job_waiters.h"
#include "server/job/live_job.h"
#include "server/job/start_request.h"
#include "server/job/store_patience.h"
#include "server/metrics/metrics_flusher.h"
#include "server/metrics/metrics_reader.h"
#include "server/store/job_store.h"
#include "server/telemetry/job_counters.h"
#include "trainer/backend/backend.h"
#include "trainer/base/mutex.h"
#include "trainer/data/catalog.h"
#include "trainer/train/stop_request.h"

namespace lenet {

struct JobLimits {
  size_t max_queued = 1000;        // jobs that wait, queued or paused
  size_t max_jobs_per_client = 0;  // that have not ended; 0: no limit
};

struct JobManagerOptions {
  std::filesystem::path checkpoint_root;  // a folder for each job below it; empty: nothing is saved
  JobLimits limits;                       // to begin with, see SetLimits
  size_t max_cached_groups = 8;
  std::chrono::milliseconds collective_timeout{0};  // see TrainJob
  std::chrono::milliseconds join_timeout{10'000};   // see TrainJob
  // How often a device that failed is tried again.
  std::chrono::milliseconds probe_interval{30'000};
  // Called, from any thread, when the process must end for its jobs to go on: ranks that never end, or a device that
  // works in a new process alone. Quick. Or null.
  std::function<void(const std::string& why)> unusable;
  FaultInjector* faults = nullptr;  // in tests alone
  // For how long after AbortAll() the end of a job is offered to a store that refuses it.
  std::chrono::milliseconds abort_patience{5000};
};

// What the server is doing.
struct ServerLoad {
  std::vector<DevicePool::Device> devices;
  int queued = 0;
  int running = 0;
  bool draining = false;
};

// How far a job that runs is.
struct RunningJob {
  std::string id;
  v1::Progress progress;
  std::vector<JobProgress::Rank> ranks;
};

// Safe from any thread. Jobs wait in one queue, see JobQueue; jobs on disjoint devices run at the same time. What the
// calls answer is written in proto/README.md; each job given out is complete, with its progress, its place in the queue
// and what it waits for.
class JobManager {
 public:
  // All outlive it. It accepts and starts no jobs before Serve().
  JobManager(const JobManagerOptions& options, Backend* backend, DatasetCatalog* catalog, JobStore* store);
  // Ends what runs, which can go on later, and waits for that.
  ~JobManager();
  JobManager(const JobManager&) = delete;
  JobManager& operator=(const JobManager&) = delete;

  // Takes over the jobs that the store has not ended: those that waited wait, those that ran go on from their last
  // checkpoint, or fail if they are not to. Once, before Serve(). Reads headers of data sets.
  absl::Status Recover(bool running_go_on) ABSL_LOCKS_EXCLUDED(admit_mutex_, mutex_);
  // Uses every device once, and gives no jobs to those that fail. An error if all do, or if only together they fail;
  // CANCELLED if a drain began.
  absl::Status WarmUp() { return health_.WarmUp(); }
  // For jobs that are started from now on; those that are there stay, be they too many.
  void SetLimits(const JobLimits& limits) ABSL_LOCKS_EXCLUDED(mutex_);
  // From now on jobs are accepted, unless a drain began.
  void Serve() ABSL_LOCKS_EXCLUDED(admit_mutex_, mutex_);

  // Reads the headers of the data set's files, and the checkpoint that the job is to go on from. `client` as in
  // Job.client.
  absl::StatusOr<v1::Job> Start(const v1::StartRequest& request, absl::string_view client = "")
      ABSL_LOCKS_EXCLUDED(admit_mutex_, mutex_);

  // Asks for the end and gives the job as it is then. kNone is not asked for.
  absl::StatusOr<v1::Job> Stop(absl::string_view id, StopMode mode) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `done` once, with the job when it is PAUSED, or FAILED_PRECONDITION with its state if it is ending or has
  // ended first. Where and with what token as WaitForEnd.
  uint64_t Pause(absl::string_view id, EndCallback done) ABSL_LOCKS_EXCLUDED(admit_mutex_, mutex_);
  // From PAUSED to QUEUED; one that waits or runs already is given as it is. FAILED_PRECONDITION: it is ending or has
  // ended.
  absl::StatusOr<v1::Job> Resume(absl::string_view id) ABSL_LOCKS_EXCLUDED(admit_mutex_, mutex_);
  // With its checkpoints. FAILED_PRECONDITION unless it has ended.
  absl::Status Delete(absl::string_view id) { return store_->DeleteJob(id); }

  // Calls `done` once, with the job when it has ended, NOT_FOUND, or DATA_LOSS if it has ended but the store has not
  // taken that: maybe before this returns, else from the thread that ends the job. Gives a token for StopWaiting, 0 if
  // `done` was called. `done` must be quick.
  uint64_t WaitForEnd(absl::string_view id, EndCallback done) ABSL_LOCKS_EXCLUDED(mutex_);
  // True if the callback has not been and will not be called.
  bool StopWaiting(absl::string_view id, uint64_t token) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<v1::Job> GetJob(absl::string_view id) const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<JobPage> ListJobs(const JobQuery& query) const ABSL_LOCKS_EXCLUDED(mutex_);
  // See JobStore.
  absl::StatusOr<ChangePage> ListChanges(uint64_t after, int limit, int64_t max_bytes) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t revision() const { return store_->revision(); }

  // INVALID_ARGUMENT for a rank that the job does not have. `known_epoch` as in MetricsReader.
  absl::StatusOr<MetricsReader> ReadMetrics(absl::string_view id, uint64_t from_sequence, RecordWishes wishes,
                                            uint32_t known_epoch = 0) const ABSL_LOCKS_EXCLUDED(mutex_);

  // `written` is called, from any thread, when there are new records; null: no more, when this returns. Quick.
  void OnWritten(std::function<void()> written) ABSL_LOCKS_EXCLUDED(written_mutex_);

  ServerLoad Load() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Those that hold devices now and have not ended. Asks neither the store nor the devices.
  std::vector<RunningJob> Running() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Since this manager was made.
  const JobCounters& counters() const { return counters_; }

  // Returns when no call holds what jobs are accepted, queued and started under. There is no thread to ask: whoever
  // changes the queue starts what can start.
  void AwaitScheduler() ABSL_LOCKS_EXCLUDED(admit_mutex_, mutex_);
  // Whether the thread that writes metrics moves, see MetricsFlusher.
  bool MetricsRespond(std::chrono::steady_clock::time_point deadline) { return flusher_.Responds(deadline); }

  // No job is accepted or started any more; those that run are asked to save their state and to wait in the queue, with
  // the others, for the next server.
  void BeginDrain() ABSL_LOCKS_EXCLUDED(admit_mutex_, mutex_);
  // Asks those that still run to give up at once, without saving.
  void AbortAll() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until no job is running; false if the deadline passes first.
  bool WaitIdle(std::chrono::steady_clock::time_point deadline) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class Phase { kStarting, kServing, kDraining };
  using LivePtr = std::shared_ptr<LiveJob>;
  using LiveJobs = std::map<std::string, LivePtr, std::less<>>;

  // The device works again.
  void Restore(int device) ABSL_LOCKS_EXCLUDED(mutex_);
  // The job of an equal request, if there is one.
  absl::StatusOr<std::optional<v1::Job>> FindRequest(const v1::StartRequest& request) const;
  absl::Status CheckServing() const ABSL_LOCKS_EXCLUDED(mutex_);
  // RESOURCE_EXHAUSTED if no more jobs may wait, or that client may have no more.
  absl::Status CheckLimits(absl::string_view client) const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::Job> CreateJob(const v1::StartRequest& request, absl::string_view client, Admitted admitted,
                                    const StartFile& start) ABSL_EXCLUSIVE_LOCKS_REQUIRED(admit_mutex_)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Of a job that has so many records.
  LivePtr NewLive(std::string id, Admitted admitted, std::string client, uint64_t last_sequence);
  LivePtr FindLive(absl::string_view id) const ABSL_LOCKS_EXCLUDED(mutex_);
  LiveJobs AllLive() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Puts in what only the live job knows. It was looked up before the job was read, or an end in between would leave
  // a running job without progress.
  void Complete(const LivePtr& live, v1::Job* job) const ABSL_LOCKS_EXCLUDED(mutex_);
  void CompleteAll(const LiveJobs& live, std::vector<v1::Job>* jobs) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Of a job that is in the queue no more; it is put back if that fails. `job` as it is.
  absl::StatusOr<v1::Job> PauseQueued(const LivePtr& live, const v1::Job& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(admit_mutex_) ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts what can start, and asks preemptible jobs to make room.
  void Dispatch() ABSL_LOCKS_EXCLUDED(mutex_);
  void Enqueue(const LivePtr& live) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Holder> Holders() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The body of a job's thread.
  void RunOnThread(const LivePtr& live, const std::vector<int>& device_ids) ABSL_LOCKS_EXCLUDED(mutex_);
  // The job is at its end, which whoever recorded it reports here.
  void Ended(const LivePtr& live, absl::StatusOr<v1::Job> job) ABSL_LOCKS_EXCLUDED(mutex_);
  void JoinFinished() ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex written_mutex_;
  std::function<void()> written_ ABSL_GUARDED_BY(written_mutex_);

  const JobManagerOptions options_;
  Backend* const backend_;
  DatasetCatalog* const catalog_;
  JobStore* const store_;
  GroupCache groups_;
  MetricsFlusher flusher_;
  JobCounters counters_;
  StorePatience patience_;
  const JobServices services_;

  // Held while a job is accepted, paused in the queue or resumed: ids, records and queue have one order. Taken before
  // mutex_.
  Mutex admit_mutex_;
  JobIdGenerator ids_ ABSL_GUARDED_BY(admit_mutex_);

  mutable Mutex mutex_;
  mutable CondVar idle_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kStarting;
  JobLimits limits_ ABSL_GUARDED_BY(mutex_);
  DevicePool pool_ ABSL_GUARDED_BY(mutex_);
  LiveJobs live_ ABSL_GUARDED_BY(mutex_);
  JobQueue queue_ ABSL_GUARDED_BY(mutex_);
  std::map<LivePtr, std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> finished_ ABSL_GUARDED_BY(mutex_);
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;  // jobs' threads that still use the manager
  JobWaiters waiters_ ABSL_GUARDED_BY(mutex_);

  DeviceHealth health_;  // the last member: its thread uses the others
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_JOB_MANAGER_H_
