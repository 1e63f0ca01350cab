// What a training reports while it runs.
#ifndef LENET_TRAINER_TRAIN_OBSERVER_H_
#define LENET_TRAINER_TRAIN_OBSERVER_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace lenet {

// Of an epoch that has ended, or that max_steps or max_duration has cut short; one in which a stop came is not
// reported. After a resume in its midst: of the steps since.
struct EpochSummary {
  int64_t epoch = 0;             // from 1
  int64_t last_step = 0;         // steps done in the job when it ended
  double mean_loss = 0;          // over all ranks and steps of the epoch
  double learning_rate = 0;      // of its last step
  double seconds = 0;            // wall clock, evaluation and saves left out
  double images_per_second = 0;  // all ranks together
  int64_t images = 0;            // trained on
  int64_t dropped_images = 0;    // of the training set, not visited in this epoch
};

struct Evaluation {
  int64_t epoch = 0;  // epochs begun
  int64_t step = 0;   // steps done
  int64_t count = 0;  // images
  int64_t correct = 0;
  double mean_loss = 0;
  double seconds = 0;

  double accuracy() const { return count > 0 ? static_cast<double>(correct) / static_cast<double>(count) : 0; }
};

struct CheckpointSaved {
  int64_t step = 0;
  int64_t epoch = 0;
  std::filesystem::path path;
  int64_t bytes = 0;
  uint64_t weights_checksum = 0;   // equal on all ranks
  std::optional<double> accuracy;  // of an evaluation made at this very step
};

// Calls come from the rank threads: OnSteps from each rank's own, in the order of its steps; the others from rank 0's,
// after every OnSteps of the steps that they speak of, of all ranks; OnRanksStuck from the thread of Train().
// Implementations return quickly, never block on a reader, and must not throw.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;

  // All ranks are warm; the first step comes next. `engine` as Engine::name().
  virtual void OnRunning(absl::string_view engine) = 0;
  // losses[i] is the mean loss of rank's batch at step first_step + i; steps count from 1 here and in all reports.
  virtual void OnSteps(int rank, int64_t first_step, std::span<const float> losses) = 0;
  virtual void OnEpoch(const EpochSummary& summary) = 0;
  virtual void OnEvaluation(const Evaluation& evaluation) = 0;
  virtual void OnCheckpoint(const CheckpointSaved& saved) = 0;
  virtual void OnWarning(absl::string_view message) = 0;
  // Once, if ranks have not ended TrainJob::join_timeout after an abort. Train() goes on waiting for them, maybe for
  // ever: all that is left is to end the process.
  virtual void OnRanksStuck(const std::string& message) = 0;
};

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_OBSERVER_H_
