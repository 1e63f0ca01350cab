// When a training saves its state, and what becomes of it if that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_format.h"
#include "tests/support/fake_backend.h"
#include "tests/support/recording_observer.h"
#include "tests/support/scripted_faults.h"
#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"
#include "trainer/train/trainer.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kRanks = 3;

// Epochs of 10 steps.
TrainJob MakeJob(const CheckpointPolicy& checkpoints, const std::filesystem::path& folder, int epochs = 4) {
  TrainJob job;
  job.dataset = SyntheticDataset(300, 20);
  TrainSpec spec = {.dataset = "synthetic", .batch_size = 10, .epochs = epochs};
  spec.checkpoints = checkpoints;
  job.plan = *PlanTraining(spec, kRanks, *job.dataset);
  job.checkpoint_folder = folder;
  return job;
}

struct Outcome {
  TrainResult result;
  Recording recording;
  bool aborted = false;
};

Outcome RunJob(const TrainJob& job, FakeScript script = {}) {
  FakeGroup group(kRanks, std::move(script));
  const StopRequest stop;
  RecordingObserver observer(kRanks);
  Outcome outcome;
  outcome.result = Train(job, &group, &stop, &observer);
  outcome.recording = observer.Get();
  outcome.aborted = group.aborted();
  EXPECT_THAT(outcome.recording.violations, IsEmpty());
  return outcome;
}

std::vector<int64_t> SavedSteps(const Recording& recording) {
  std::vector<int64_t> steps;
  for (const CheckpointSaved& saved : recording.checkpoints) steps.push_back(saved.step);
  return steps;
}

std::filesystem::path FileOf(const std::filesystem::path& folder, int64_t step) {
  return folder / absl::StrFormat("step-%010d.safetensors", step);
}

Net LeNet() { return *Net::Create(*PresetNet("lenet", {1, 28, 28}, 10)); }

TEST(TrainerCheckpointTest, SavesByEachPeriodAndEachStepOnce) {
  struct Case {
    CheckpointPolicy policy;
    std::vector<int64_t> steps;
  };
  const Case cases[] = {
      {{}, {40}},
      {{.every_epochs = 1}, {10, 20, 30, 40}},
      {{.every_epochs = 3}, {30, 40}},
      {{.every_steps = 7}, {7, 14, 21, 28, 35, 40}},
      {{.every_steps = 40}, {40}},
      {{.every_epochs = 1, .every_steps = 5}, {5, 10, 15, 20, 25, 30, 35, 40}},
      {{.every_epochs = 2, .every_steps = 15}, {15, 20, 30, 40}},
      {{.every_seconds = 1e6}, {40}},
  };
  const uint64_t unsaved = RunJob(MakeJob({}, "")).result.rank_checksums.at(0);
  const Net net = LeNet();
  for (const Case& c : cases) {
    const TempFolder folder;
    const TrainJob job = MakeJob(c.policy, folder.path());
    const Outcome outcome = RunJob(job);
    ASSERT_EQ(outcome.result.end, TrainEnd::kCompleted);
    EXPECT_EQ(outcome.result.rank_checksums, std::vector<uint64_t>(kRanks, unsaved));
    EXPECT_THAT(outcome.recording.warnings, IsEmpty());
    ASSERT_EQ(SavedSteps(outcome.recording), c.steps);
    for (const CheckpointSaved& saved : outcome.recording.checkpoints) {
      EXPECT_EQ(saved.path, FileOf(folder.path(), saved.step));
      EXPECT_EQ(saved.epoch, saved.step / 10);
      EXPECT_EQ(saved.bytes, static_cast<int64_t>(std::filesystem::file_size(saved.path)));
      const absl::StatusOr<Checkpoint> loaded = LoadCheckpoint(saved.path, net, job.plan.spec.optimizer);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      EXPECT_EQ(loaded->step, saved.step);
      EXPECT_EQ(WeightsChecksum(net, loaded->parameters), saved.weights_checksum);
      // Every epoch is evaluated, before it is saved.
      ASSERT_EQ(saved.accuracy.has_value(), saved.step % 10 == 0) << saved.step;
      EXPECT_EQ(saved.accuracy.value_or(0.5), 0.5);
      EXPECT_EQ(loaded->metadata.contains("accuracy"), saved.step % 10 == 0);
    }
    EXPECT_EQ(outcome.recording.checkpoints.back().weights_checksum, unsaved);
    EXPECT_EQ(outcome.recording.evaluations.size(), 4u);
  }
}

TEST(TrainerCheckpointTest, SavesNothingWithoutAFolder) {
  const Outcome outcome = RunJob(MakeJob({.every_epochs = 1, .every_steps = 1, .every_seconds = 1e-6}, ""));
  EXPECT_EQ(outcome.result.end, TrainEnd::kCompleted);
  EXPECT_TRUE(outcome.result.save.ok());
  EXPECT_THAT(outcome.recording.checkpoints, IsEmpty());
  EXPECT_THAT(outcome.recording.warnings, IsEmpty());
}

// Notes when each state was saved.
class TimingObserver : public RecordingObserver {
 public:
  TimingObserver() : RecordingObserver(kRanks) {}
  void OnCheckpoint(const CheckpointSaved& saved) override {
    RecordingObserver::OnCheckpoint(saved);
    times.push_back(Clock::now());
  }
  std::vector<Clock::time_point> times;  // by rank 0's thread
};

TEST(TrainerCheckpointTest, SavesEverySoManySeconds) {
  const TempFolder folder;
  FakeScript script;
  script.step_time = std::chrono::microseconds(1000);
  FakeGroup group(kRanks, script);
  const StopRequest stop;
  TimingObserver observer;
  const TrainResult result = Train(MakeJob({.every_seconds = 0.06}, folder.path(), 30), &group, &stop, &observer);
  ASSERT_EQ(result.end, TrainEnd::kCompleted);
  EXPECT_THAT(observer.Get().violations, IsEmpty());
  // 300 steps of 1 ms and more; the last save is the end's.
  ASSERT_GE(observer.times.size(), 3u);
  EXPECT_LE(observer.times.size(), 300u / 2);
  for (size_t i = 1; i + 1 < observer.times.size(); ++i) {
    EXPECT_GE(observer.times[i] - observer.times[i - 1], milliseconds(60));
  }
  const std::vector<int64_t> steps = SavedSteps(observer.Get());
  EXPECT_EQ(std::set<int64_t>(steps.begin(), steps.end()).size(), steps.size());
  EXPECT_EQ(steps.back(), 300);
}

TEST(TrainerCheckpointTest, ASaveThatFailsLeavesTheEarlierOnesAndTheJobGoesOn) {
  const TempFolder folder;
  TrainJob job = MakeJob({.every_epochs = 1}, folder.path());
  ScriptedFaults faults(
      {{.point = FaultPoint::kSave, .step = 20, .status = absl::ResourceExhaustedError("disk full")}});
  job.faults = &faults;
  const Outcome outcome = RunJob(job);
  EXPECT_EQ(outcome.result.end, TrainEnd::kCompleted);
  EXPECT_TRUE(outcome.result.save.ok());
  EXPECT_THAT(SavedSteps(outcome.recording), ElementsAre(10, 30, 40));
  EXPECT_THAT(
      outcome.recording.warnings,
      ElementsAre("the checkpoint of step 20 was not saved: " + FileOf(folder.path(), 20).string() + ": disk full"));
  EXPECT_TRUE(std::filesystem::exists(FileOf(folder.path(), 10)));
  EXPECT_FALSE(std::filesystem::exists(FileOf(folder.path(), 20)));
}

TEST(TrainerCheckpointTest, AFolderInAFilesPlaceFailsThatSaveAlone) {
  const TempFolder folder;
  for (const int64_t step : {20, 40}) {
    ASSERT_TRUE(std::filesystem::create_directories(FileOf(folder.path(), step) / "in the way"));
  }
  const Outcome outcome = RunJob(MakeJob({.every_epochs = 1}, folder.path()));
  EXPECT_EQ(outcome.result.end, TrainEnd::kCompleted);
  EXPECT_FALSE(outcome.result.save.ok());
  EXPECT_THAT(SavedSteps(outcome.recording), ElementsAre(10, 30));
  ASSERT_EQ(outcome.recording.warnings.size(), 2u);
  EXPECT_THAT(outcome.recording.warnings[1],
              HasSubstr("the checkpoint of step 40 was not saved: " + FileOf(folder.path(), 40).string() + ": "));
  const Net net = LeNet();
  EXPECT_TRUE(LoadCheckpoint(FileOf(folder.path(), 10), net, {.momentum = 0.9}).ok());
  // Neither a temporary file nor anything else is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 4);
}

TEST(TrainerCheckpointTest, EachSaveThatFailsIsAWarning) {
  const TempFolder folder;
  TrainJob job = MakeJob({.every_steps = 16}, folder.path());
  ScriptedFaults faults({{.point = FaultPoint::kSave, .status = absl::PermissionDeniedError("read-only")}});
  job.faults = &faults;
  const Outcome outcome = RunJob(job);
  EXPECT_EQ(outcome.result.end, TrainEnd::kCompleted);
  EXPECT_EQ(outcome.result.save, absl::PermissionDeniedError("read-only"));
  EXPECT_EQ(outcome.recording.warnings.size(), 3u);
  EXPECT_THAT(outcome.recording.checkpoints, IsEmpty());
}

TEST(TrainerCheckpointTest, WeightsThatDifferFailTheJobAtTheNextSave) {
  const TempFolder folder;
  FakeScript script;
  script.faults = {{.kind = FakeFault::Kind::kCorrupt, .rank = 2, .step = 11}};
  const Outcome outcome = RunJob(MakeJob({.every_steps = 5}, folder.path()), script);
  ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
  EXPECT_EQ(outcome.result.failure->rank, 2);
  EXPECT_EQ(outcome.result.failure->step, 15);
  EXPECT_EQ(outcome.result.failure->phase, "checkpoint");
  EXPECT_EQ(outcome.result.failure->status.message(), "after step 15 the weights of rank 2 differ from rank 0's");
  EXPECT_EQ(outcome.result.rank_steps, std::vector<int64_t>(kRanks, 15));
  EXPECT_FALSE(outcome.aborted);
  EXPECT_THAT(SavedSteps(outcome.recording), ElementsAre(5, 10));
}

TEST(TrainerCheckpointTest, ABadLossIsNotSaved) {
  const TempFolder folder;
  FakeScript script;
  script.faults = {
      {.kind = FakeFault::Kind::kLoss, .rank = 1, .step = 14, .loss = std::numeric_limits<float>::quiet_NaN()}};
  const Outcome outcome = RunJob(MakeJob({.every_steps = 5}, folder.path()), script);
  ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
  EXPECT_EQ(outcome.result.failure->step, 15);
  EXPECT_EQ(outcome.result.steps, 15);
  EXPECT_THAT(SavedSteps(outcome.recording), ElementsAre(5, 10));
}

class StopAtCheckpoint : public RecordingObserver {
 public:
  StopAtCheckpoint(StopRequest* stop, StopMode mode) : RecordingObserver(kRanks), stop_(stop), mode_(mode) {}
  void OnCheckpoint(const CheckpointSaved& saved) override {
    RecordingObserver::OnCheckpoint(saved);
    stop_->Request(mode_);
  }

 private:
  StopRequest* const stop_;
  const StopMode mode_;
};

// The ranks that do not save may be two chunks ahead, and rank 0 then joins them.
TEST(TrainerCheckpointTest, AStopInASaveEndsTheJobSoonAfter) {
  for (const StopMode mode : {StopMode::kPause, StopMode::kCheckpoint, StopMode::kAbort}) {
    const TempFolder folder;
    StopRequest stop;
    FakeGroup group(kRanks);
    StopAtCheckpoint observer(&stop, mode);
    const TrainResult result =
        Train(MakeJob({.every_epochs = 1, .every_steps = 4}, folder.path(), 1000), &group, &stop, &observer);
    const bool abort = mode == StopMode::kAbort;
    EXPECT_EQ(result.end, abort ? TrainEnd::kAborted : TrainEnd::kStopped);
    EXPECT_EQ(result.rank_steps, std::vector<int64_t>(kRanks, result.steps));
    EXPECT_LE(result.steps, 12);
    EXPECT_FALSE(group.aborted());
    const Recording recording = observer.Get();
    EXPECT_THAT(recording.violations, IsEmpty());
    const std::vector<int64_t> saved = SavedSteps(recording);
    EXPECT_EQ(saved.front(), 4);
    EXPECT_EQ(saved.size(), abort || result.steps == 4 ? 1u : 2u);
    if (!abort) {
      EXPECT_EQ(saved.back(), result.steps);
    }
  }
}

TEST(TrainerCheckpointTest, AnAbortFreesASaveThatHangs) {
  const TempFolder folder;
  TrainJob job = MakeJob({.every_steps = 4}, folder.path());
  ScriptedFaults faults({{.point = FaultPoint::kSave, .step = 8, .action = ScriptedFault::Action::kHang}});
  job.faults = &faults;
  StopRequest stop;
  FakeGroup group(kRanks);
  RecordingObserver observer(kRanks);
  std::thread aborter([&] {
    while (faults.hung() == 0) std::this_thread::sleep_for(milliseconds(1));
    stop.Request(StopMode::kAbort);
  });
  const TrainResult result = Train(job, &group, &stop, &observer);
  aborter.join();
  EXPECT_EQ(result.end, TrainEnd::kAborted);
  EXPECT_FALSE(result.failure);
  EXPECT_TRUE(group.aborted());
  EXPECT_EQ(group.engines(), 0);
  EXPECT_THAT(SavedSteps(observer.Get()), ElementsAre(4));
}

TEST(TrainerCheckpointTest, StopsAtAnyMomentBetweenManySaves) {
  std::mt19937 random(23);
  for (int i = 0; i < 40; ++i) {
    const TempFolder folder;
    const StopMode mode = i % 3 == 0 ? StopMode::kAbort : i % 3 == 1 ? StopMode::kCheckpoint : StopMode::kPause;
    FakeScript script;
    script.step_time = std::chrono::microseconds(20);
    script.evaluate_time = std::chrono::microseconds(50);
    FakeGroup group(kRanks, script);
    StopRequest stop;
    RecordingObserver observer(kRanks);
    const std::chrono::microseconds delay(random() % 8000);
    std::thread requester([&] {
      std::this_thread::sleep_for(delay);
      stop.Request(mode);
    });
    const TrainResult result =
        Train(MakeJob({.every_epochs = 1, .every_steps = 3}, folder.path(), 100'000), &group, &stop, &observer);
    requester.join();
    ASSERT_EQ(result.end, mode == StopMode::kAbort ? TrainEnd::kAborted : TrainEnd::kStopped) << i;
    EXPECT_EQ(result.rank_steps, std::vector<int64_t>(kRanks, result.steps));
    EXPECT_FALSE(group.aborted());
    const Recording recording = observer.Get();
    EXPECT_THAT(recording.violations, IsEmpty());
    EXPECT_THAT(recording.warnings, IsEmpty());
    std::vector<int64_t> saved = SavedSteps(recording);
    if (mode != StopMode::kAbort && result.steps > 0) {
      ASSERT_FALSE(saved.empty());
      EXPECT_EQ(saved.back(), result.steps);
      saved.pop_back();
    }
    for (const int64_t step : saved) {
      EXPECT_TRUE(step % 3 == 0 || step % 10 == 0) << step;
      EXPECT_LT(step, result.steps + (mode == StopMode::kAbort ? 1 : 0));
    }
    EXPECT_EQ(std::set<int64_t>(saved.begin(), saved.end()).size(), saved.size());
  }
}

}  // namespace
}  // namespace lenet
