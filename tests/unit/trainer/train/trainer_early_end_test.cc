// Trainings that end before their last step, and those that go on from a state before it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/fake_backend.h"
#include "tests/support/recording_observer.h"
#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"
#include "trainer/train/trainer.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRanks = 2;
constexpr char kPatienceReason[] = "patience: no better accuracy than 0.7 (epoch 4) in 3 evaluations";

// By epoch: the best is the fourth, and three that are no better follow it.
double AccuracyAt(int64_t steps) {
  const double accuracies[] = {0, 0.5, 0.6, 0.55, 0.7, 0.65, 0.7, 0.69, 0.9, 0.95};
  return accuracies[std::min<int64_t>(steps / 10, 9)];
}

// Epochs of 10 steps.
TrainJob MakeJob(TrainSpec spec, const std::filesystem::path& folder = "") {
  TrainJob job;
  job.dataset = SyntheticDataset(200, 100);
  spec.dataset = "synthetic";
  spec.batch_size = 10;
  if (!spec.max_steps) spec.epochs = spec.epochs.value_or(12);
  job.plan = *PlanTraining(spec, kRanks, *job.dataset);
  job.checkpoint_folder = folder;
  return job;
}

TrainSpec WithPatience(int patience) {
  TrainSpec spec;
  spec.patience = patience;
  return spec;
}

struct Outcome {
  TrainResult result;
  Recording recording;
};

Outcome RunJob(const TrainJob& job, int64_t stop_at = 0, std::chrono::microseconds step_time = {}) {
  FakeScript script;
  script.accuracy = AccuracyAt;
  script.first_step = job.resume ? job.resume->step : 0;
  script.step_time = step_time;
  FakeGroup group(kRanks, script);
  StopRequest stop;
  RecordingObserver observer(kRanks, script.first_step);
  observer.after_steps = [&](int, int64_t steps) {
    if (stop_at > 0 && steps >= stop_at) stop.Request(StopMode::kCheckpoint);
  };
  Outcome outcome;
  outcome.result = Train(job, &group, &stop, &observer);
  outcome.recording = observer.Get();
  EXPECT_THAT(outcome.recording.violations, IsEmpty());
  EXPECT_THAT(outcome.recording.warnings, IsEmpty());
  EXPECT_FALSE(group.aborted());
  return outcome;
}

Checkpoint Load(const CheckpointSaved& saved) {
  const Net net = *Net::Create(*PresetNet("lenet", {1, 28, 28}, 10));
  absl::StatusOr<Checkpoint> loaded = LoadCheckpoint(saved.path, net, TrainSpec().optimizer);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return *std::move(loaded);
}

TEST(TrainerEarlyEndTest, TargetAccuracy) {
  const TempFolder folder;
  TrainSpec spec;
  spec.target_accuracy = 0.7;
  const Outcome outcome = RunJob(MakeJob(spec, folder.path()));
  ASSERT_EQ(outcome.result.end, TrainEnd::kCompleted);
  EXPECT_EQ(outcome.result.early_end, "target_accuracy 0.7 reached: 0.7 after epoch 4");
  EXPECT_EQ(outcome.result.steps, 40);
  EXPECT_EQ(outcome.result.rank_steps, std::vector<int64_t>(kRanks, 40));
  EXPECT_EQ(outcome.result.evaluation->step, 40);
  EXPECT_EQ(outcome.recording.evaluations.size(), 4u);
  EXPECT_EQ(outcome.recording.epochs.size(), 4u);
  ASSERT_EQ(outcome.recording.checkpoints.size(), 1u);
  EXPECT_EQ(outcome.recording.checkpoints[0].step, 40);
  EXPECT_EQ(outcome.recording.checkpoints[0].accuracy, 0.7);
}

TEST(TrainerEarlyEndTest, NoneWhereAllStepsAreDone) {
  TrainSpec spec;
  spec.target_accuracy = 0.7;
  spec.epochs = 4;
  const Outcome at_the_end = RunJob(MakeJob(spec));
  EXPECT_EQ(at_the_end.result.end, TrainEnd::kCompleted);
  EXPECT_EQ(at_the_end.result.early_end, "");
  EXPECT_EQ(at_the_end.recording.evaluations.size(), 4u);

  spec.target_accuracy = 0.99;
  spec.epochs = 12;
  const Outcome never = RunJob(MakeJob(spec));
  EXPECT_EQ(never.result.steps, 120);
  EXPECT_EQ(never.result.early_end, "");
}

TEST(TrainerEarlyEndTest, Patience) {
  const TempFolder folder;
  TrainSpec spec = WithPatience(3);
  spec.checkpoints.every_epochs = 1;
  const Outcome outcome = RunJob(MakeJob(spec, folder.path()));
  EXPECT_EQ(outcome.result.end, TrainEnd::kCompleted);
  EXPECT_EQ(outcome.result.early_end, kPatienceReason);
  EXPECT_EQ(outcome.result.steps, 70);
  EXPECT_EQ(outcome.recording.evaluations.size(), 7u);
  EXPECT_EQ(outcome.recording.checkpoints.size(), 7u) << "the last state once";

  spec.evaluate_every_epochs = 2;
  const Outcome every_second = RunJob(MakeJob(spec));
  EXPECT_EQ(every_second.result.early_end, "") << "0.6, 0.7, 0.7, 0.9 and 0.95 from then on";
  spec.patience = 1;
  EXPECT_EQ(RunJob(MakeJob(spec)).result.early_end, "patience: no better accuracy than 0.7 (epoch 4) in 1 evaluations");
}

// From each epoch's end, from within each, and from the end itself.
TEST(TrainerEarlyEndTest, AResumedTrainingEndsWhereAnUninterruptedOneDoes) {
  const TempFolder folder;
  TrainSpec spec = WithPatience(3);
  spec.checkpoints.every_steps = 5;
  TrainJob job = MakeJob(spec, folder.path());
  const Outcome whole = RunJob(job);
  ASSERT_EQ(whole.result.early_end, kPatienceReason);
  ASSERT_EQ(whole.recording.checkpoints.size(), 14u);
  job.checkpoint_folder.clear();
  for (const CheckpointSaved& saved : whole.recording.checkpoints) {
    job.resume = Load(saved);
    const Outcome resumed = RunJob(job);
    ASSERT_EQ(resumed.result.end, TrainEnd::kCompleted) << saved.step;
    EXPECT_EQ(resumed.result.early_end, kPatienceReason) << saved.step;
    EXPECT_EQ(resumed.result.steps, 70) << saved.step;
    EXPECT_EQ(resumed.result.rank_checksums, whole.result.rank_checksums) << saved.step;
    EXPECT_EQ(resumed.recording.losses[0].size(), static_cast<size_t>(70 - saved.step));
    // Those that the first run had yet to make; of the end's own state, that of the end again.
    EXPECT_EQ(static_cast<int64_t>(resumed.recording.evaluations.size()), saved.step == 70 ? 1 : 7 - saved.step / 10);
  }
}

// A stop that comes in an epoch's last step leaves out its evaluation, which the resumed training makes up for.
TEST(TrainerEarlyEndTest, AnEvaluationThatAStopCutOutIsMadeOnResume) {
  for (const int64_t stop_at : {20, 40, 70}) {
    const TempFolder folder;
    TrainSpec spec = WithPatience(3);
    TrainJob job = MakeJob(spec, folder.path());
    const Outcome stopped = RunJob(job, stop_at);
    ASSERT_EQ(stopped.result.end, TrainEnd::kStopped);
    EXPECT_EQ(stopped.result.early_end, "");
    ASSERT_EQ(stopped.recording.checkpoints.size(), 1u);
    job.resume = Load(stopped.recording.checkpoints[0]);
    const Outcome resumed = RunJob(job);
    EXPECT_EQ(resumed.result.early_end, kPatienceReason) << stopped.result.steps;
    EXPECT_EQ(resumed.result.steps, 70);
    EXPECT_EQ(stopped.recording.evaluations.size() + resumed.recording.evaluations.size(), 7u);
  }
}

TEST(TrainerEarlyEndTest, RefusesAResumeWithDamagedHistory) {
  const TempFolder folder;
  TrainSpec spec = WithPatience(3);
  TrainJob job = MakeJob(spec, folder.path());
  job.resume = Load(RunJob(job).recording.checkpoints.at(0));
  job.resume->metadata["best_accuracy"] = "high";
  FakeGroup group(kRanks);
  const StopRequest stop;
  RecordingObserver observer(kRanks);
  const TrainResult result = Train(job, &group, &stop, &observer);
  EXPECT_EQ(result.end, TrainEnd::kFailed);
  EXPECT_EQ(result.failure->status,
            absl::FailedPreconditionError("the checkpoint's best_accuracy = \"high\": must be in [0, 1]"));
  EXPECT_FALSE(group.aborted());
}

TEST(TrainerEarlyEndTest, MaxDurationEndsWithinAnEpoch) {
  const TempFolder folder;
  TrainSpec spec;
  spec.max_duration = 0.15;
  spec.epochs = 100'000;
  spec.evaluate_every_epochs = 0;
  const Outcome outcome = RunJob(MakeJob(spec, folder.path()), 0, std::chrono::microseconds(1000));
  ASSERT_EQ(outcome.result.end, TrainEnd::kCompleted);
  EXPECT_EQ(outcome.result.early_end, "max_duration of 0.15 s reached");
  const int64_t steps = outcome.result.steps;
  EXPECT_GE(steps, 3);
  EXPECT_LE(steps, 200);
  EXPECT_EQ(outcome.result.rank_steps, std::vector<int64_t>(kRanks, steps));
  ASSERT_EQ(outcome.recording.evaluations.size(), 1u);
  EXPECT_EQ(outcome.recording.evaluations[0].step, steps);
  ASSERT_EQ(outcome.recording.checkpoints.size(), 1u);
  EXPECT_EQ(outcome.recording.checkpoints[0].step, steps);
  EXPECT_TRUE(outcome.recording.checkpoints[0].accuracy);
  ASSERT_EQ(static_cast<int64_t>(outcome.recording.epochs.size()), (steps + 9) / 10);
  EXPECT_EQ(outcome.recording.epochs.back().last_step, steps);
}

TEST(TrainerEarlyEndTest, EarlierAttemptsCountTowardsMaxDuration) {
  const TempFolder folder;
  TrainSpec spec;
  spec.max_duration = 60;
  TrainJob job = MakeJob(spec, folder.path());
  const Outcome stopped = RunJob(job, 25);
  ASSERT_EQ(stopped.result.end, TrainEnd::kStopped);
  job.resume = Load(stopped.recording.checkpoints.at(0));
  job.seconds_before = 59;
  EXPECT_EQ(RunJob(job).result.early_end, "");
  job.seconds_before = 60.5;
  const Outcome over = RunJob(job);
  EXPECT_EQ(over.result.end, TrainEnd::kCompleted);
  EXPECT_EQ(over.result.early_end, "max_duration of 60 s reached");
  EXPECT_EQ(over.result.steps, stopped.result.steps);
  EXPECT_EQ(over.recording.evaluations.size(), 1u);
  EXPECT_THAT(over.recording.epochs, IsEmpty());
  ASSERT_EQ(over.recording.checkpoints.size(), 1u);
  EXPECT_EQ(over.recording.checkpoints[0].weights_checksum, stopped.recording.checkpoints[0].weights_checksum);
}

}  // namespace
}  // namespace lenet
