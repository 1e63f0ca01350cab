// The learning rate as a function of the step.
#ifndef LENET_TRAINER_OPTIM_SCHEDULE_H_
#define LENET_TRAINER_OPTIM_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace lenet {

enum class ScheduleKind {
  kConstant,
  kStep,      // times `gamma` after every `step_epochs` epochs (torch StepLR)
  kCosine,    // half a cosine from the rate to `final_fraction` of it (torch CosineAnnealingLR)
  kLinear,    // a line from the rate to `final_fraction` of it
  kOneCycle,  // torch OneCycleLR, two phases, cosine annealing: rate / initial_divisor up to the rate, then down to
              // rate / initial_divisor / final_divisor; takes no warm-up beside its own
};

// Where a warm-up is given, the rate first rises linearly over that many steps: at step s of W it is
// rate * (s + 1) / (W + 1). The kinds above then run over the steps that are left, kStep's epochs too (as torch
// SequentialLR).
struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::kConstant;
  double warmup_fraction = 0;   // of all steps; in [0, 1)
  double final_fraction = 0;    // kCosine, kLinear; in [0, 1]
  double gamma = 0.1;           // kStep; in (0, 1]
  int step_epochs = 1;          // kStep; >= 1
  double peak_fraction = 0.3;   // kOneCycle: share of the steps that rise; in (0, 1)
  double initial_divisor = 25;  // kOneCycle; >= 1
  double final_divisor = 1e4;   // kOneCycle; >= 1
};

// INVALID_ARGUMENT names the field, the value and the bound.
absl::Status ValidateSchedule(const ScheduleSpec& spec);

// Steps of warm-up: the fraction of all steps, rounded to the nearest number and below `total_steps`.
int64_t WarmupSteps(const ScheduleSpec& spec, int64_t total_steps);

// The rate of `step` of `total_steps`, 0 <= step < total_steps, for a valid spec and steps_per_epoch >= 1. Computed in
// double; a pure function, so that a resumed job goes on exactly.
double LearningRateAt(const ScheduleSpec& spec, double base_rate, int64_t step, int64_t total_steps,
                      int64_t steps_per_epoch);

}  // namespace lenet

#endif  // LENET_TRAINER_OPTIM_SCHEDULE_H_
