// What the rank threads of one training share on the host.
#ifndef LENET_TRAINER_TRAIN_RUN_STATE_H_
#define LENET_TRAINER_TRAIN_RUN_STATE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/backend/backend.h"
#include "trainer/base/mutex.h"
#include "trainer/comm/local.h"
#include "trainer/nn/net.h"
#include "trainer/train/chunk_plan.h"
#include "trainer/train/observer.h"
#include "trainer/train/stop_request.h"
#include "trainer/train/trainer.h"
#include "trainer/train/watchdog.h"

namespace lenet {

// What each rank tells all others at a meeting; each meeting uses some of it.
struct RankReport {
  StopMode stop = StopMode::kNone;  // as this rank saw it
  double loss_sum = 0;              // over this rank's steps of the epoch
  EvalResult evaluated;
  bool cut_short = false;  // the evaluation was given up for a stop
  uint64_t checksum = 0;
};

// A loss that is not finite.
struct BadLoss {
  int64_t step = 0;  // from 1
  int rank = 0;
  float value = 0;
};

// Safe from all rank threads and the thread of Train().
class RunState {
 public:
  // All arguments outlive it.
  RunState(const TrainJob& job, const Net& net, RankGroup* group, const StopRequest* stop, TrainObserver* observer);

  const TrainJob& job() const { return job_; }
  const TrainPlan& plan() const { return job_.plan; }
  const Net& net() const { return net_; }
  RankGroup* group() const { return group_; }
  const StopRequest& stop() const { return *stop_; }
  TrainObserver* observer() const { return observer_; }
  int64_t first_step() const { return job_.resume ? job_.resume->step : 0; }
  ChunkPlan& chunks() { return chunks_; }

  // A barrier that gives each rank all ranks' reports, in rank order; they stay until the rank's call after the next.
  // `meeting` counts the rank's own calls from 0. ABORTED once the run is aborted.
  absl::StatusOr<std::span<const RankReport>> Meet(int rank, int64_t meeting, const RankReport& report);

  // The rank has finished, and reported, this many steps of the job; `bad` is the first bad loss among the newest.
  void Progress(int rank, int64_t steps, const std::optional<BadLoss>& bad) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether no further chunk may start: a stop, or a bad loss under NanPolicy::kStop.
  bool halted() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The first bad loss, by step and then by rank, once every rank has finished its step.
  std::optional<BadLoss> SettledBadLoss() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Keeps the failure if it is the first. An ABORTED that no rank gives a reason for counts as one, but gives way to
  // it.
  void Fail(RankFailure failure) ABSL_LOCKS_EXCLUDED(mutex_);
  // Where each rank is, for the watchdog. Cheap: a store that orders nothing.
  void EnterPhase(int rank, Phase phase);
  void Queued(int rank, int64_t steps);  // of the job
  std::vector<RankPosition> positions() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Wakes all ranks from whatever they wait for; the group is lost.
  void Abort(absl::string_view reason);
  // The same for a stop; what fails from now on is not kept.
  void AbortForStop() ABSL_LOCKS_EXCLUDED(mutex_);
  bool aborted() const { return group_->aborted(); }

  // The threads of ranks that have ended, for the thread that joins them.
  void RankEnded() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until all `ranks` have ended or the deadline passes; true if they have.
  bool WaitForEnd(int ranks, std::chrono::steady_clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  // Written by rank 0, read after the ranks were joined.
  TrainResult result;

  std::optional<RankFailure> failure() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<int64_t> rank_steps() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // On its own cache line: each rank writes its own for every chunk.
  struct alignas(64) Place {
    std::atomic<Phase> phase{Phase::kInit};
    std::atomic<int64_t> queued{0};
  };

  const TrainJob& job_;
  const Net& net_;
  RankGroup* const group_;
  const StopRequest* const stop_;
  TrainObserver* const observer_;
  LocalGroup host_;
  ChunkPlan chunks_;
  std::vector<RankReport> reports_[2];  // of even and odd meetings
  std::vector<Place> places_;

  mutable Mutex mutex_;
  CondVar ended_changed_;
  int ended_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<int64_t> steps_ ABSL_GUARDED_BY(mutex_);
  std::optional<BadLoss> bad_loss_ ABSL_GUARDED_BY(mutex_);
  std::optional<RankFailure> failure_ ABSL_GUARDED_BY(mutex_);
  bool aborted_for_stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_RUN_STATE_H_
