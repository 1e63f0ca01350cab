// How far a running job is.
#ifndef LENET_SERVER_JOB_JOB_PROGRESS_H_
#define LENET_SERVER_JOB_JOB_PROGRESS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "lenet/v1/job.pb.h"
#include "trainer/base/mutex.h"
#include "trainer/train/observer.h"

namespace lenet {

// Safe from any thread.
class JobProgress {
 public:
  using Clock = std::chrono::steady_clock;

  struct Rank {
    int64_t step = 0;
    float loss = 0;         // of that step, if it is known
    bool reported = false;  // by AddSteps, since this was made
  };

  JobProgress(int ranks, int global_batch_size, int64_t steps_per_epoch)
      : global_batch_(global_batch_size),
        ranks_(static_cast<size_t>(std::max(ranks, 1))),
        steps_per_epoch_(std::max<int64_t>(steps_per_epoch, 1)) {}

  // As it was known by an earlier server, or is after an attempt.
  void Restore(const v1::Progress& progress) ABSL_LOCKS_EXCLUDED(mutex_);
  // An attempt goes on from this step.
  void MoveTo(int64_t step) ABSL_LOCKS_EXCLUDED(mutex_);
  // The first step comes next; the rate of images counts from here.
  void Begin(int64_t steps_per_epoch, Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);
  // The rank has done `step` steps, the newest with this loss.
  void AddSteps(int rank, int64_t step, float loss, Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);
  void AddEvaluation(const Evaluation& evaluation) ABSL_LOCKS_EXCLUDED(mutex_);

  v1::Progress Get() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Rank> ranks() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return ranks_;
  }

 private:
  int64_t StepOfAll() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const double global_batch_;
  mutable Mutex mutex_;
  std::vector<Rank> ranks_ ABSL_GUARDED_BY(mutex_);
  int64_t steps_per_epoch_ ABSL_GUARDED_BY(mutex_);
  v1::Progress progress_ ABSL_GUARDED_BY(mutex_);  // without what ranks_ tells
  // The stretch of about a second over which the rate is taken.
  Clock::time_point since_ ABSL_GUARDED_BY(mutex_);
  int64_t since_step_ ABSL_GUARDED_BY(mutex_) = 0;
  bool first_stretch_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_JOB_PROGRESS_H_
