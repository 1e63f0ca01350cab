// Trainings on the backend that a test's executable is built for.
#ifndef LENET_TESTS_UNIT_TRAINER_TRAIN_TRAINER_BACKEND_FIXTURE_H_
#define LENET_TESTS_UNIT_TRAINER_TRAIN_TRAINER_BACKEND_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <utility>

#include "tests/support/backend_under_test.h"
#include "tests/support/make_job.h"
#include "tests/support/rank_run.h"
#include "tests/support/recording_observer.h"
#include "trainer/train/trainer.h"

namespace lenet {

struct Outcome {
  TrainResult result;
  Recording recording;
};

class TrainerBackendTest : public ::testing::Test {
 protected:
  void SetUp() override { LENET_USE_BACKEND(backend_, LENET_TEST_BACKEND); }

  // `wanted`, or fewer where each rank must have a device.
  int Ranks(int wanted) const {
    return backend_->oversubscribable() ? wanted : std::min(wanted, static_cast<int>(backend_->devices().size()));
  }

  std::unique_ptr<RankGroup> MakeGroup(int ranks) {
    absl::StatusOr<std::unique_ptr<RankGroup>> group = NewGroupOf(backend_, ranks);
    EXPECT_TRUE(group.ok()) << group.status();
    return *std::move(group);
  }

  Outcome RunJob(const TrainJob& job, const std::function<void(int rank, int64_t steps)>& after_steps = nullptr,
                 StopRequest* stop = nullptr) {
    StopRequest never;
    const std::unique_ptr<RankGroup> group = MakeGroup(job.plan.ranks);
    RecordingObserver observer(job.plan.ranks, job.resume ? job.resume->step : 0);
    observer.after_steps = after_steps;
    Outcome outcome;
    outcome.result = Train(job, group.get(), stop != nullptr ? stop : &never, &observer);
    outcome.recording = observer.Get();
    EXPECT_THAT(outcome.recording.violations, ::testing::IsEmpty());
    if (outcome.result.failure) ADD_FAILURE() << outcome.result.failure->status;
    EXPECT_FALSE(group->aborted());
    return outcome;
  }

  Backend* backend_ = nullptr;
};

struct SetUp {
  const char* name;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  float clip_norm;
};
inline void PrintTo(const SetUp& set_up, std::ostream* out) { *out << set_up.name; }

inline const SetUp kSetUps[] = {
    {"Nesterov", {.momentum = 0.9, .nesterov = true}, {.kind = ScheduleKind::kLinear, .warmup_fraction = 0.2}, 1},
    {"Adam", {.kind = OptimizerKind::kAdam}, {.kind = ScheduleKind::kCosine}, 0},
    {"AdamWOneCycle", {.kind = OptimizerKind::kAdamW, .weight_decay = 0.01}, {.kind = ScheduleKind::kOneCycle}, 0},
};

}  // namespace lenet

#endif  // LENET_TESTS_UNIT_TRAINER_TRAIN_TRAINER_BACKEND_FIXTURE_H_
