// Runs one job on the devices that it got.
#ifndef LENET_SERVER_JOB_JOB_RUNNER_H_
#define LENET_SERVER_JOB_JOB_RUNNER_H_

#include <filesystem>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lenet/v1/job.pb.h"
#include "server/job/group_cache.h"
#include "server/job/live_job.h"
#include "server/metrics/metrics_flusher.h"
#include "server/store/job_store.h"
#include "trainer/backend/backend.h"
#include "trainer/data/catalog.h"

namespace lenet {

// What all jobs share; all of it outlives them.
struct JobServices {
  Backend* backend = nullptr;
  DatasetCatalog* catalog = nullptr;
  JobStore* store = nullptr;
  GroupCache* groups = nullptr;
  MetricsFlusher* flusher = nullptr;
  std::filesystem::path checkpoint_root;  // a folder for each job below it; empty: nothing is saved
};

// Takes the job from QUEUED through STARTING and RUNNING to its end, and gives it as it is then. Blocks meanwhile.
// ABORTED if the job was stopped before it could start, which is then its end. The store's errors: the end is not
// recorded.
absl::StatusOr<v1::Job> RunJob(const JobServices& services, LiveJob* live, const std::vector<int>& device_ids);

// For a queued job that cannot even be run: FAILED with `why`. As RunJob.
absl::StatusOr<v1::Job> FailQueuedJob(LiveJob* live, JobStore* store, const absl::Status& why);

}  // namespace lenet

#endif  // LENET_SERVER_JOB_JOB_RUNNER_H_
