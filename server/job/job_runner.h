// Runs one job on the devices that it got.
#ifndef LENET_SERVER_JOB_JOB_RUNNER_H_
#define LENET_SERVER_JOB_JOB_RUNNER_H_

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
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
#include "server/telemetry/job_counters.h"
#include "trainer/backend/backend.h"
#include "trainer/data/catalog.h"
#include "trainer/train/fault_injector.h"

namespace lenet {

// What all jobs share; all of it outlives them.
struct JobServices {
  Backend* backend = nullptr;
  DatasetCatalog* catalog = nullptr;
  JobStore* store = nullptr;
  GroupCache* groups = nullptr;
  MetricsFlusher* flusher = nullptr;
  StorePatience* patience = nullptr;
  JobCounters* counters = nullptr;
  std::function<void(const std::string& why)> stuck;  // ranks do not end, see TrainObserver::OnRanksStuck
  std::filesystem::path checkpoint_root;              // a folder for each job below it; empty: nothing is saved
  std::chrono::milliseconds collective_timeout{0};
  std::chrono::milliseconds join_timeout{0};
  FaultInjector* faults = nullptr;
};

// Takes the job from QUEUED through STARTING and RUNNING to the end of an attempt, and gives it as it is then: ended,
// or waiting again if it was to give up its devices. Goes on from the job's newest checkpoint. Blocks meanwhile.
//
// What the store refuses for a while (it is full, or away) is tried again as long as services.patience lasts, the end
// at last without the metrics that the store refuses. ABORTED: a Stop or a Pause was recorded before the attempt began.
// Any other error: its end is not recorded.
absl::StatusOr<v1::Job> RunJob(const JobServices& services, LiveJob* live, const std::vector<int>& device_ids);

}  // namespace lenet

#endif  // LENET_SERVER_JOB_JOB_RUNNER_H_
