// A job from its acceptance, or the server's start, to its end.
#ifndef LENET_SERVER_JOB_LIVE_JOB_H_
#define LENET_SERVER_JOB_LIVE_JOB_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/job/admission.h"
#include "server/job/job_progress.h"
#include "server/metrics/metrics_log.h"
#include "trainer/base/mutex.h"
#include "trainer/train/stop_request.h"

namespace lenet {

// What becomes of a job that was asked to give up its devices, but not to end.
enum class Yield {
  kNone,
  kRequeue,  // it waits for its turn again
  kPause,    // it waits for Resume
};

// What is in memory beside the store's record of the job. Shared by the manager and the thread that runs it; each part
// is safe from any thread.
struct LiveJob {
  LiveJob(std::string job_id, Admitted job, std::string client_name)
      : id(std::move(job_id)),
        admitted(std::move(job)),
        client(std::move(client_name)),
        progress(admitted.resolved.ranks(), admitted.resolved.global_batch_size(),
                 admitted.resolved.steps_per_epoch()) {}

  const std::string id;
  const Admitted admitted;
  const std::string client;         // as Job.client
  std::shared_ptr<MetricsLog> log;  // set once, before the job is shared
  StopRequest stop;
  JobProgress progress;

  // The log's records cannot be stored: the attempt that runs is to end, and the job to fail with this.
  void FailForLog(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex) {
    {
      MutexLock lock(&mutex);
      log_error = why;
    }
    stop.Request(StopMode::kAbort);
  }
  // The attempt that runs is to end, by a stop of that mode, and the job to wait. A stronger wish stays.
  void AskToYield(Yield wish, absl::string_view reason, StopMode mode) ABSL_LOCKS_EXCLUDED(mutex) {
    {
      MutexLock lock(&mutex);
      if (yield < wish) {
        yield = wish;
        yield_reason = std::string(reason);
      }
    }
    stop.Request(mode);
  }
  // The attempt has ended.
  void ForgetYield() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(&mutex);
    yield = Yield::kNone;
    yield_reason.clear();
    stop.Reset();
  }

  Mutex mutex;
  std::string engine ABSL_GUARDED_BY(mutex);  // as Engine::name(), once the ranks are warm
  absl::Status log_error ABSL_GUARDED_BY(mutex);
  // Set before the stop is requested by which the attempt ends; a stop of the job itself comes first.
  Yield yield ABSL_GUARDED_BY(mutex) = Yield::kNone;
  std::string yield_reason ABSL_GUARDED_BY(mutex);
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_LIVE_JOB_H_
