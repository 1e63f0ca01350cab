// Runs one job on the devices that it got.
#ifndef LENET_SERVER_JOB_JOB_RUNNER_H_
#define LENET_SERVER_JOB_JOB_RUNNER_H_

#include <filesystem>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lenet/v1/job.pb.h"
#include "server/job/group_cache.h"
#include "server/job/live_job.h"
#include "server/job/store_patience.h"
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
  StorePatience* patience = nullptr;
  std::filesystem::path checkpoint_root;  // a folder for each job below it; empty: nothing is saved
};

// Takes the job from QUEUED through STARTING and RUNNING to its end, and gives it as it is then. Blocks meanwhile. A
// job whose stop was asked for, but could not be recorded, goes from QUEUED to STOPPED.
//
// What the store refuses for a while (it is full, or away) is tried again as long as services.patience lasts, the end
// at last without the metrics that the store refuses. ABORTED: a Stop was recorded while the job was queued, which is
// its end. Any other error: the end is not recorded.
absl::StatusOr<v1::Job> RunJob(const JobServices& services, LiveJob* live, const std::vector<int>& device_ids);

// For a queued job that cannot even be run: FAILED with `why`. As RunJob, but tries for about a second.
absl::StatusOr<v1::Job> FailQueuedJob(LiveJob* live, JobStore* store, const absl::Status& why);

// QUEUED to STOPPED, in one try. ABORTED if the job is no longer queued.
absl::StatusOr<v1::Job> StopQueuedJob(LiveJob* live, absl::string_view reason);

}  // namespace lenet

#endif  // LENET_SERVER_JOB_JOB_RUNNER_H_
