// One rank's part of a training, on its own thread.
#ifndef LENET_TRAINER_TRAIN_RANK_WORKER_H_
#define LENET_TRAINER_TRAIN_RANK_WORKER_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/backend/backend.h"
#include "trainer/data/sampler.h"
#include "trainer/train/checkpoint.h"
#include "trainer/train/early_end.h"
#include "trainer/train/run_state.h"
#include "trainer/train/watchdog.h"

namespace lenet {

class RankWorker {
 public:
  // `run` outlives it.
  RankWorker(RunState* run, int rank);

  // All of it, from the engine's making to its end. The first error of any rank ends the run on all of them. Throws
  // nothing.
  void Run();

 private:
  using Clock = std::chrono::steady_clock;

  absl::Status Train();
  absl::Status Start();
  absl::Status Steps();
  absl::Status CatchUp();
  absl::Status Enqueue(const Chunk& chunk);
  // Waits until no more than `left` chunks are in flight.
  absl::Status Drain(size_t left);
  absl::Status WaitOldest();
  absl::Status EndEpoch();
  // False if a stop cut it short, on any rank.
  absl::StatusOr<bool> Evaluate();
  absl::Status SaveAndGoOn();
  absl::Status Finish();
  // All ranks' checksums, in rank order, and this rank's state, with the optimiser's if it is to be saved. Nothing if
  // the ranks' weights differ: then the run has failed and is over, on all of them.
  struct Snapshot {
    Checkpoint checkpoint;
    std::vector<uint64_t> checksums;
  };
  absl::StatusOr<std::optional<Snapshot>> TakeSnapshot(bool with_state);
  // What fails is a warning too.
  absl::Status Save(Snapshot snapshot);
  absl::StatusOr<int64_t> WriteCheckpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);
  // Whether a bad loss ends the run. All ranks must stand at the same step.
  bool Diverged() const;
  void WarnOfBadLoss();

  void EnterPhase(Phase phase);
  // The next fault that is due at this point, if the run has an injector.
  absl::Status Fault(FaultPoint point, int64_t step, int count);

  // RunState::Meet with this rank's view of the stop added; `stop_` becomes the strongest of all ranks'.
  absl::StatusOr<std::span<const RankReport>> Meet(RankReport report);

  RunState* const run_;
  const int rank_;
  const TrainPlan& plan_;
  const EpochSampler sampler_;
  Phase phase_ = Phase::kInit;
  std::unique_ptr<Engine> engine_;
  int64_t meetings_ = 0;
  StopMode stop_ = StopMode::kNone;  // the same on all ranks
  bool warned_ = false;              // rank 0: of a bad loss
  EarlyEnd early_end_;               // the same on all ranks, as are the next two
  std::string end_reason_;           // why no more steps follow, if not the last is done
  bool over_ = false;                // the run has failed, and the group is sound
  int64_t evaluated_step_ = -1;      // of this run's last evaluation
  int64_t saved_step_ = -1;          // rank 0: of this run's last save

  int64_t steps_;  // finished
  std::deque<Chunk> in_flight_;
  std::vector<uint32_t> indices_;
  std::array<float, Engine::kMaxChunkSteps> rates_;
  std::array<float, Engine::kMaxChunkSteps> losses_;
  Clock::time_point last_wait_;  // or, with nothing in flight, when the next chunk was queued

  int64_t epoch_first_step_;  // of the epoch, or of this run if that is later
  Clock::time_point epoch_start_;
  double epoch_loss_ = 0;
};

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_RANK_WORKER_H_
