// What to train, and what it comes to on given data and ranks.
#ifndef LENET_TRAINER_TRAIN_TRAIN_SPEC_H_
#define LENET_TRAINER_TRAIN_TRAIN_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/backend/backend.h"
#include "trainer/nn/init.h"
#include "trainer/nn/net.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/schedule.h"

namespace lenet {

inline constexpr int kMaxRanks = 1024;
inline constexpr int64_t kMaxSteps = int64_t{1} << 40;

enum class NanPolicy {
  kStop,      // a loss that is not finite fails the job: all ranks end at one step, at most a few chunks on
  kContinue,  // it is reported as it is
};

// When a training saves its state besides its end: at any of these. 0: not by this.
struct CheckpointPolicy {
  int every_epochs = 0;      // at the end of each n-th epoch, after its evaluation
  int64_t every_steps = 0;   // after each n-th step of the job
  double every_seconds = 0;  // at the next chunk's end when so long has passed since the last save, or the start
};

// As asked for; a field that is not set takes the default given beside it.
struct TrainSpec {
  std::string dataset;
  std::string net = "lenet";  // a preset's name
  InitSpec init;
  OptimizerSpec optimizer = {.momentum = 0.9, .nesterov = true};
  ScheduleSpec schedule = {.kind = ScheduleKind::kLinear, .warmup_fraction = 0.2};
  std::optional<double> learning_rate;   // DefaultLearningRate
  int ranks = 0;                         // 0: one on every device
  std::optional<int> batch_size;         // of a rank: 64
  std::optional<int> global_batch_size;  // instead of batch_size; a multiple of the ranks
  std::optional<int> epochs;             // 10, unless max_steps is given
  std::optional<int64_t> max_steps;      // in place of epochs; epochs are begun as needed
  uint64_t seed = 1;
  float clip_norm = 1;  // of the gradient's 2-norm; 0: off. Without it large batches need a lower rate
  NanPolicy nan_policy = NanPolicy::kStop;
  Precision precision = Precision::kFp32;
  EngineKind engine = EngineKind::kAuto;
  int evaluate_every_epochs = 1;  // on the test set; 0: at the end alone
  CheckpointPolicy checkpoints;
  // What ends the job before its last step, as a success. The last two look at the evaluations of epochs, so
  // evaluate_every_epochs must not be 0.
  double max_duration = 0;                // seconds of training, all attempts together; 0: no limit
  std::optional<double> target_accuracy;  // in (0, 1]
  int patience = 0;                       // evaluations in a row without a better accuracy; 0: off
};

// The peak rate when none is given: SGD min(0.3, 0.7 * (1 - momentum)), which is 0.07 at momentum 0.9, Adam and AdamW
// 0.002, each times min(8, (global_batch / 64)^(2/3)).
double DefaultLearningRate(const OptimizerSpec& optimizer, int global_batch);

// Checks every field that can be checked without the data. INVALID_ARGUMENT names the field, the value and the bound.
absl::Status ValidateTrainSpec(const TrainSpec& spec);

// The spec as one JSON object, for a checkpoint's metadata; what is not set is left out.
std::string TrainSpecJson(const TrainSpec& spec);

// A spec with every choice made.
struct TrainPlan {
  TrainSpec spec;  // all optionals set, but for the length and batch form not used
  int ranks = 0;
  int batch_size = 0;
  int global_batch_size = 0;
  double learning_rate = 0;
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;
  int64_t dropped_per_epoch = 0;  // training images not visited in an epoch
  int classes = 0;
};

// `ranks` > 0 is the number of ranks that will run. Errors as ValidateTrainSpec, and: a batch larger than the training
// set, a global batch that the ranks do not divide, more steps than kMaxSteps.
absl::StatusOr<TrainPlan> PlanTraining(const TrainSpec& spec, int ranks, const Dataset& dataset);

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_TRAIN_SPEC_H_
