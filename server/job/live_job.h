// A job from its acceptance to its end.
#ifndef LENET_SERVER_JOB_LIVE_JOB_H_
#define LENET_SERVER_JOB_LIVE_JOB_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/job/admission.h"
#include "server/job/job_progress.h"
#include "server/metrics/metrics_log.h"
#include "trainer/base/mutex.h"
#include "trainer/train/stop_request.h"

namespace lenet {

// What is in memory beside the store's record of the job. Shared by the manager and the thread that runs it; each part
// is safe from any thread.
struct LiveJob {
  LiveJob(std::string job_id, Admitted job)
      : id(std::move(job_id)),
        admitted(std::move(job)),
        progress(admitted.resolved.ranks(), admitted.resolved.global_batch_size()) {}

  const std::string id;
  const Admitted admitted;
  std::shared_ptr<MetricsLog> log;  // set once, before the job is shared
  StopRequest stop;
  JobProgress progress;

  Mutex mutex;
  std::string engine ABSL_GUARDED_BY(mutex);  // as Engine::name(), once the ranks are warm
  // The log's records cannot be stored: the job fails with this.
  absl::Status log_error ABSL_GUARDED_BY(mutex);
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_LIVE_JOB_H_
