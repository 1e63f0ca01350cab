// One rank's part of a training, on its own thread.
#ifndef LENET_TRAINER_TRAIN_RANK_WORKER_H_
#define LENET_TRAINER_TRAIN_RANK_WORKER_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/backend/backend.h"
#include "trainer/data/sampler.h"
#include "trainer/train/run_state.h"

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
  absl::Status Enqueue(const Chunk& chunk);
  absl::Status WaitOldest();
  absl::Status EndEpoch();
  // False if a stop cut it short, on any rank.
  absl::StatusOr<bool> Evaluate();
  absl::Status Finish();
  void Save(Checkpoint checkpoint, uint64_t checksum);
  // Whether a bad loss ends the run. All ranks must stand at the same step.
  bool Diverged() const;
  void WarnOfBadLoss();

  // RunState::Meet with this rank's view of the stop added; `stop_` becomes the strongest of all ranks'.
  absl::StatusOr<std::span<const RankReport>> Meet(RankReport report);

  RunState* const run_;
  const int rank_;
  const TrainPlan& plan_;
  const EpochSampler sampler_;
  const char* phase_ = "init";
  std::unique_ptr<Engine> engine_;
  int64_t meetings_ = 0;
  StopMode stop_ = StopMode::kNone;  // the same on all ranks
  bool warned_ = false;              // rank 0: of a bad loss

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
