// Ranks that hang, throw or find no memory, by a script; the watchdog; ranks that cannot be joined.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/support/fake_backend.h"
#include "tests/support/recording_observer.h"
#include "tests/support/scripted_faults.h"
#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"
#include "trainer/train/trainer.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Action = ScriptedFault::Action;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTimeout(300);
// What a hang may cost beyond the timeout on a machine that has other work.
constexpr milliseconds kSlack(1000);

// Epochs of 10 steps.
TrainJob MakeJob(int ranks) {
  TrainJob job;
  job.dataset = SyntheticDataset(100 * ranks, 20);
  job.plan = *PlanTraining({.dataset = "synthetic", .batch_size = 10, .epochs = 4}, ranks, *job.dataset);
  job.collective_timeout = kTimeout;
  return job;
}

struct Outcome {
  TrainResult result;
  Recording recording;
  bool aborted = false;
  Clock::duration took{};
};

Outcome RunJob(const TrainJob& job, FakeScript script = {}, StopRequest* stop = nullptr) {
  StopRequest never;
  FakeGroup group(job.plan.ranks, std::move(script));
  RecordingObserver observer(job.plan.ranks);
  Outcome outcome;
  const Clock::time_point start = Clock::now();
  outcome.result = Train(job, &group, stop != nullptr ? stop : &never, &observer);
  outcome.took = Clock::now() - start;
  outcome.recording = observer.Get();
  outcome.aborted = group.aborted();
  EXPECT_EQ(group.engines(), 0);
  EXPECT_THAT(outcome.recording.violations, IsEmpty());
  EXPECT_THAT(outcome.recording.stuck, IsEmpty());
  return outcome;
}

Outcome RunWith(std::vector<ScriptedFault> script, TrainJob job, StopRequest* stop = nullptr) {
  ScriptedFaults faults(std::move(script));
  job.faults = &faults;
  return RunJob(job, {}, stop);
}

TEST(TrainerFaultTest, ARankThatHangsIsNamedWithinTheTimeout) {
  struct Case {
    int ranks;
    int rank;
    int64_t step;
    const char* message;
  };
  const Case cases[] = {
      {2, 1, 27, "rank 1 has not entered step 27's all-reduce within 0.3 s; rank 0 waits for it"},
      {3, 1, 21, "rank 1 has not entered step 21's all-reduce within 0.3 s; ranks 0, 2 wait for it"},
      {2, 0, 1, "rank 0 has not entered step 1's all-reduce within 0.3 s; rank 1 waits for it"},
  };
  for (const Case& c : cases) {
    const Outcome outcome = RunWith({{.rank = c.rank, .step = c.step, .action = Action::kHang}}, MakeJob(c.ranks));
    ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
    ASSERT_TRUE(outcome.result.failure);
    EXPECT_EQ(outcome.result.failure->rank, c.rank);
    EXPECT_EQ(outcome.result.failure->step, c.step - 1);
    EXPECT_EQ(outcome.result.failure->phase, "step");
    EXPECT_EQ(outcome.result.failure->status, absl::DeadlineExceededError(c.message));
    EXPECT_GE(outcome.took, kTimeout);
    EXPECT_LT(outcome.took, kTimeout + kSlack);
    EXPECT_TRUE(outcome.aborted);
    EXPECT_EQ(outcome.result.rank_steps, std::vector<int64_t>(static_cast<size_t>(c.ranks), c.step - 1));
    // The next job, on a fresh group.
    EXPECT_EQ(RunJob(MakeJob(c.ranks)).result.end, TrainEnd::kCompleted);
  }
}

// Each rank on its device, where the trainer cannot tell who is late.
TEST(TrainerFaultTest, AHangWithinACollectiveFailsTheJobToo) {
  struct Case {
    FakeCall call;
    const char* phase;
    const char* message;
  };
  for (const Case& c : {Case{FakeCall::kBroadcast, "broadcast", "no rank finished the broadcast within 0.3 s"},
                        {FakeCall::kWarmUp, "warm-up", "no rank finished the warm-up within 0.3 s"}}) {
    FakeScript script;
    script.faults = {{.call = c.call, .kind = FakeFault::Kind::kHang, .rank = 1}};
    const Outcome outcome = RunJob(MakeJob(2), script);
    ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
    EXPECT_EQ(outcome.result.failure->phase, c.phase);
    EXPECT_EQ(outcome.result.failure->status, absl::DeadlineExceededError(c.message));
    EXPECT_LT(outcome.took, kTimeout + kSlack);
  }
}

TEST(TrainerFaultTest, AStopDoesNotHideAHang) {
  StopRequest stop;
  TrainJob job = MakeJob(2);
  FakeScript script;
  script.faults = {{.kind = FakeFault::Kind::kHang, .rank = 1, .step = 26}};
  script.on_hang = [&] { stop.Request(StopMode::kCheckpoint); };
  const Outcome outcome = RunJob(job, script, &stop);
  ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
  EXPECT_EQ(outcome.result.failure->status.code(), absl::StatusCode::kDeadlineExceeded);
}

// Sleeps in the evaluation and while the state is saved, longer than the timeout.
TEST(TrainerFaultTest, EvaluatingAndSavingDoNotCountTowardsTheTimeout) {
  class SlowObserver : public RecordingObserver {
   public:
    SlowObserver() : RecordingObserver(2) {}
    void OnCheckpoint(const CheckpointSaved& saved) override {
      RecordingObserver::OnCheckpoint(saved);
      std::this_thread::sleep_for(kTimeout + milliseconds(150));
    }
  };
  const TempFolder folder;
  TrainJob job = MakeJob(2);
  job.plan.spec.evaluate_every_epochs = 2;
  job.plan.spec.checkpoints.every_steps = 33;
  job.plan.total_steps = 36;
  job.checkpoint_folder = folder.path();
  FakeScript script;
  script.on_evaluate = [](int rank, int64_t, int64_t) {
    if (rank == 1) std::this_thread::sleep_for(kTimeout + milliseconds(150));
  };
  FakeGroup group(2, script);
  const StopRequest stop;
  SlowObserver observer;
  const TrainResult result = Train(job, &group, &stop, &observer);
  EXPECT_EQ(result.end, TrainEnd::kCompleted);
  EXPECT_FALSE(result.failure);
  EXPECT_EQ(observer.Get().checkpoints.size(), 2u);
  EXPECT_EQ(observer.Get().evaluations.size(), 2u);
}

TEST(TrainerFaultTest, ARankFailsOrThrowsAtTheVeryStep) {
  for (const int64_t step : {1, 2, 10, 11, 38, 40}) {
    for (const int rank : {0, 2}) {
      const Outcome failed =
          RunWith({{.rank = rank, .step = step, .status = absl::UnavailableError("link down")}}, MakeJob(3));
      ASSERT_EQ(failed.result.end, TrainEnd::kFailed);
      EXPECT_EQ(failed.result.failure->rank, rank);
      EXPECT_EQ(failed.result.failure->step, step - 1);
      EXPECT_EQ(failed.result.failure->phase, "step");
      EXPECT_EQ(failed.result.failure->status, absl::UnavailableError("link down"));
      EXPECT_EQ(failed.result.rank_steps[static_cast<size_t>(rank)], step - 1);
      EXPECT_TRUE(failed.aborted);

      const Outcome thrown = RunWith(
          {{.rank = rank, .step = step, .action = Action::kThrow, .status = absl::InternalError("boom")}}, MakeJob(3));
      ASSERT_EQ(thrown.result.end, TrainEnd::kFailed);
      EXPECT_EQ(thrown.result.failure->rank, rank);
      EXPECT_EQ(thrown.result.failure->step, step - 1);
      EXPECT_EQ(thrown.result.failure->status, absl::InternalError("boom"));
    }
  }
}

TEST(TrainerFaultTest, NoMemoryAtInit) {
  const absl::Status none = absl::ResourceExhaustedError("out of device memory");
  const Outcome outcome = RunWith({{.point = FaultPoint::kEngine, .rank = 1, .status = none}}, MakeJob(3));
  ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
  EXPECT_EQ(outcome.result.failure->rank, 1);
  EXPECT_EQ(outcome.result.failure->phase, "init");
  EXPECT_EQ(outcome.result.failure->status, none);
  EXPECT_THAT(outcome.recording.engine, IsEmpty());
}

TEST(TrainerFaultTest, AThrowInASaveFailsRankZero) {
  const TempFolder folder;
  TrainJob job = MakeJob(2);
  job.plan.spec.checkpoints.every_steps = 15;
  job.checkpoint_folder = folder.path();
  const Outcome outcome = RunWith({{.point = FaultPoint::kSave, .step = 30, .action = Action::kThrow}}, job);
  ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
  EXPECT_EQ(outcome.result.failure->rank, 0);
  EXPECT_EQ(outcome.result.failure->step, 30);
  EXPECT_EQ(outcome.result.failure->phase, "checkpoint");
  ASSERT_EQ(outcome.recording.checkpoints.size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(outcome.recording.checkpoints[0].path));
}

TEST(TrainerFaultTest, RanksThatCannotBeJoinedAreReportedOnce) {
  ScriptedFaults faults({{.rank = 1, .step = 12, .action = Action::kHangUntilReleased}});
  TrainJob job = MakeJob(3);
  job.faults = &faults;
  job.join_timeout = milliseconds(150);
  FakeGroup group(3);
  const StopRequest stop;
  RecordingObserver observer(3);
  std::thread releaser;
  // Long enough for a second report, if there were one.
  observer.after_stuck = [&] {
    releaser = std::thread([&] {
      std::this_thread::sleep_for(milliseconds(250));
      faults.Release();
    });
  };
  const TrainResult result = Train(job, &group, &stop, &observer);
  if (releaser.joinable()) releaser.join();
  EXPECT_EQ(result.end, TrainEnd::kFailed);
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->rank, 1);
  EXPECT_EQ(result.failure->status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(observer.Get().stuck, ElementsAre("rank 1 did not end within 0.15 s after the training was aborted"));
  EXPECT_EQ(group.engines(), 0);
}

}  // namespace
}  // namespace lenet
