#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "tests/support/fake_backend.h"
#include "tests/support/recording_observer.h"
#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"
#include "trainer/train/trainer.h"

namespace lenet {
namespace {

using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kRanks = 3;

TrainJob LongJob() {
  TrainJob job;
  job.dataset = SyntheticDataset(600, 100);
  job.plan = *PlanTraining({.dataset = "synthetic", .batch_size = 10, .epochs = 100'000}, kRanks, *job.dataset);
  return job;
}

std::thread RequestAfter(StopRequest* stop, StopMode mode, Clock::duration delay) {
  return std::thread([=] {
    std::this_thread::sleep_for(delay);
    stop->Request(mode);
  });
}

TEST(StopRequestTest, RisesUntilItIsReset) {
  StopRequest stop;
  EXPECT_EQ(stop.mode(), StopMode::kNone);
  stop.Request(StopMode::kPause);
  EXPECT_EQ(stop.mode(), StopMode::kPause);
  stop.Request(StopMode::kCheckpoint);
  stop.Request(StopMode::kPause);
  EXPECT_EQ(stop.mode(), StopMode::kCheckpoint);
  stop.Request(StopMode::kAbort);
  stop.Request(StopMode::kCheckpoint);
  stop.Request(StopMode::kNone);
  EXPECT_EQ(stop.mode(), StopMode::kAbort);
}

TEST(StopRequestTest, ServesAnotherTrainingAfterAReset) {
  StopRequest stop;
  stop.Request(StopMode::kAbort);
  stop.Reset();
  EXPECT_EQ(stop.mode(), StopMode::kNone);
  stop.Request(StopMode::kPause);
  EXPECT_EQ(stop.mode(), StopMode::kPause);
}

// Steps, evaluations and set-up last so short that moments fall into all phases: counted from the call for half of the
// runs, from the first step for the others.
TEST(TrainerStopTest, AtAnyMomentAllRanksEndAtOneStep) {
  const TempFolder folder;
  std::mt19937 random(11);
  int without_steps = 0;
  for (int i = 0; i < 200; ++i) {
    const bool abort = i % 2 == 1;
    const bool from_call = i % 4 < 2;
    FakeScript script;
    script.step_time = microseconds(50);
    script.evaluate_time = microseconds(200);
    script.warm_up_time = milliseconds(1);
    FakeGroup group(kRanks, script);
    StopRequest stop;
    RecordingObserver observer(kRanks);
    std::promise<void> begun;
    observer.after_steps = [&](int rank, int64_t steps) {
      if (!from_call && rank == 0 && steps == 1) begun.set_value();
    };
    if (from_call) begun.set_value();
    TrainJob job = LongJob();
    job.checkpoint_folder = folder.path();
    const microseconds delay(random() % (from_call ? 2000 : 20000));
    std::thread requester([&] {
      begun.get_future().wait();
      std::this_thread::sleep_for(delay);
      stop.Request(abort ? StopMode::kAbort : StopMode::kCheckpoint);
    });
    const TrainResult result = Train(job, &group, &stop, &observer);
    requester.join();

    ASSERT_EQ(result.end, abort ? TrainEnd::kAborted : TrainEnd::kStopped) << i;
    EXPECT_FALSE(result.failure);
    EXPECT_EQ(result.rank_steps, std::vector<int64_t>(kRanks, result.steps)) << i;
    EXPECT_FALSE(group.aborted()) << i;
    EXPECT_EQ(group.engines(), 0);
    const Recording recording = observer.Get();
    EXPECT_THAT(recording.violations, IsEmpty());
    EXPECT_THAT(recording.warnings, IsEmpty());
    for (const std::vector<float>& losses : recording.losses) {
      EXPECT_EQ(static_cast<int64_t>(losses.size()), result.steps);
    }
    if (result.steps == 0) ++without_steps;
    ASSERT_EQ(recording.checkpoints.size(), !abort && result.steps > 0 ? 1u : 0u);
    for (const CheckpointSaved& saved : recording.checkpoints) EXPECT_EQ(saved.step, result.steps);
    ASSERT_EQ(result.rank_checksums.size(), abort ? 0u : static_cast<size_t>(kRanks));
    for (const uint64_t checksum : result.rank_checksums) EXPECT_EQ(checksum, result.rank_checksums[0]);
  }
  EXPECT_GT(without_steps, 0);
  EXPECT_LE(without_steps, 100);
}

TEST(TrainerStopTest, BeforeTheStart) {
  for (const StopMode mode : {StopMode::kCheckpoint, StopMode::kAbort}) {
    const TempFolder folder;
    FakeGroup group(kRanks);
    StopRequest stop;
    stop.Request(mode);
    RecordingObserver observer(kRanks);
    TrainJob job = LongJob();
    job.checkpoint_folder = folder.path();
    const TrainResult result = Train(job, &group, &stop, &observer);
    EXPECT_EQ(result.end, mode == StopMode::kAbort ? TrainEnd::kAborted : TrainEnd::kStopped);
    EXPECT_EQ(result.steps, 0);
    EXPECT_FALSE(group.aborted());
    EXPECT_THAT(observer.Get().engine, IsEmpty());
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(TrainerStopTest, InAnEvaluationGivesItUp) {
  StopRequest stop;
  FakeScript script;
  script.on_evaluate = [&](int rank, int64_t, int64_t) {
    if (rank == 1) stop.Request(StopMode::kCheckpoint);
  };
  FakeGroup group(kRanks, script);
  RecordingObserver observer(kRanks);
  TrainJob job = LongJob();
  job.dataset = SyntheticDataset(600, 9000);
  const TrainResult result = Train(job, &group, &stop, &observer);
  EXPECT_EQ(result.end, TrainEnd::kStopped);
  EXPECT_EQ(result.steps, 20);
  EXPECT_EQ(result.epochs, 1);
  EXPECT_THAT(observer.Get().evaluations, IsEmpty());
  EXPECT_EQ(observer.Get().epochs.size(), 1u);
}

TEST(TrainerStopTest, InTheLastEvaluationLeavesTheJobStopped) {
  const TempFolder folder;
  StopRequest stop;
  FakeScript script;
  script.on_evaluate = [&](int, int64_t, int64_t) { stop.Request(StopMode::kCheckpoint); };
  FakeGroup group(1, script);
  RecordingObserver observer(1);
  TrainJob job;
  job.dataset = SyntheticDataset(100, 5000);
  job.plan = *PlanTraining({.dataset = "synthetic", .batch_size = 10, .epochs = 1}, 1, *job.dataset);
  job.checkpoint_folder = folder.path();
  const TrainResult result = Train(job, &group, &stop, &observer);
  EXPECT_EQ(result.end, TrainEnd::kStopped);
  EXPECT_EQ(result.steps, 10);
  EXPECT_EQ(observer.Get().checkpoints.size(), 1u);
}

TEST(TrainerStopTest, AfterTheEndChangesNothing) {
  StopRequest stop;
  FakeGroup group(1);
  class StopAtCheckpoint : public RecordingObserver {
   public:
    explicit StopAtCheckpoint(StopRequest* stop) : RecordingObserver(1), stop_(stop) {}
    void OnCheckpoint(const CheckpointSaved& saved) override {
      RecordingObserver::OnCheckpoint(saved);
      stop_->Request(StopMode::kAbort);
    }

   private:
    StopRequest* stop_;
  } observer(&stop);
  const TempFolder folder;
  TrainJob job;
  job.dataset = SyntheticDataset(100, 10);
  job.plan = *PlanTraining({.dataset = "synthetic", .batch_size = 10, .epochs = 1}, 1, *job.dataset);
  job.checkpoint_folder = folder.path();
  EXPECT_EQ(Train(job, &group, &stop, &observer).end, TrainEnd::kCompleted);
}

TEST(TrainerStopTest, TakesEffectWithinAFewChunks) {
  FakeScript script;
  script.step_time = microseconds(300);
  FakeGroup group(kRanks, script);
  StopRequest stop;
  RecordingObserver observer(kRanks);
  std::thread requester = RequestAfter(&stop, StopMode::kCheckpoint, milliseconds(300));
  const Clock::time_point start = Clock::now();
  const TrainResult result = Train(LongJob(), &group, &stop, &observer);
  const Clock::duration took = Clock::now() - start;
  requester.join();
  EXPECT_EQ(result.end, TrainEnd::kStopped);
  // About 30 ms where the machine is idle; what is left is for one that is not.
  EXPECT_LT(took, milliseconds(1300));
}

void AbortsARunThatHangs(FakeCall call) {
  FakeScript script;
  script.faults = {{.call = call, .kind = FakeFault::Kind::kHang, .rank = 1, .step = 7}};
  StopRequest stop;
  Clock::time_point requested;
  script.on_hang = [&] {
    requested = Clock::now();
    stop.Request(StopMode::kAbort);
  };
  FakeGroup group(kRanks, script);
  RecordingObserver observer(kRanks);
  const TrainResult result = Train(LongJob(), &group, &stop, &observer);
  const Clock::duration took = Clock::now() - requested;
  EXPECT_EQ(result.end, TrainEnd::kAborted);
  EXPECT_FALSE(result.failure);
  EXPECT_TRUE(group.aborted());
  EXPECT_GE(took, milliseconds(2000));
  EXPECT_LT(took, milliseconds(5000));
  EXPECT_EQ(group.engines(), 0);
}

TEST(TrainerStopTest, AbortFreesRanksThatHang) {
  std::vector<std::thread> runs;
  for (const FakeCall call : {FakeCall::kNewEngine, FakeCall::kWarmUp, FakeCall::kStep, FakeCall::kEvaluate}) {
    runs.emplace_back(AbortsARunThatHangs, call);
  }
  for (std::thread& run : runs) run.join();
}

}  // namespace
}  // namespace lenet
