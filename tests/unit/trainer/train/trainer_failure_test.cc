#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <limits>
#include <thread>

#include "tests/support/fake_backend.h"
#include "tests/support/recording_observer.h"
#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"
#include "trainer/nn/net.h"
#include "trainer/train/run_state.h"
#include "trainer/train/trainer.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRanks = 4;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TrainJob MakeJob(NanPolicy nan_policy = NanPolicy::kStop) {
  TrainJob job;
  job.dataset = SyntheticDataset(1200, 100);
  TrainSpec spec = {.dataset = "synthetic", .batch_size = 10, .epochs = 4};
  spec.nan_policy = nan_policy;
  job.plan = *PlanTraining(spec, kRanks, *job.dataset);
  return job;
}

struct Outcome {
  TrainResult result;
  Recording recording;
  bool aborted = false;
  int engines = 0;
};

Outcome RunJob(const std::vector<FakeFault>& faults, const TrainJob& job = MakeJob()) {
  FakeScript script;
  script.faults = faults;
  FakeGroup group(kRanks, script);
  StopRequest stop;
  RecordingObserver observer(kRanks);
  Outcome outcome;
  outcome.result = Train(job, &group, &stop, &observer);
  outcome.recording = observer.Get();
  outcome.aborted = group.aborted();
  outcome.engines = group.engines();
  return outcome;
}

TEST(TrainerFailureTest, TheFirstErrorOfAnyPhaseIsKeptAndAllRanksEnd) {
  struct Case {
    FakeCall call;
    const char* phase;
    int64_t step;
  };
  const Case cases[] = {{FakeCall::kNewEngine, "init", 0},       {FakeCall::kBroadcast, "broadcast", 0},
                        {FakeCall::kWarmUp, "warm-up", 0},       {FakeCall::kStep, "step", 45},
                        {FakeCall::kEvaluate, "evaluation", 30}, {FakeCall::kReadParameters, "checkpoint", 120}};
  for (const Case& c : cases) {
    for (const int rank : {0, 2, 3}) {
      const absl::Status status = absl::ResourceExhaustedError("out of device memory");
      const Outcome outcome = RunJob({{.call = c.call, .rank = rank, .step = 45, .status = status}});
      SCOPED_TRACE(testing::Message() << c.phase << " rank " << rank);
      ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
      ASSERT_TRUE(outcome.result.failure);
      EXPECT_EQ(outcome.result.failure->rank, rank);
      EXPECT_EQ(outcome.result.failure->phase, c.phase);
      EXPECT_EQ(outcome.result.failure->status, status);
      EXPECT_LE(outcome.result.failure->step, c.step);
      EXPECT_GE(outcome.result.failure->step, c.call == FakeCall::kStep ? 30 : c.step);
      EXPECT_TRUE(outcome.aborted);
      EXPECT_EQ(outcome.engines, 0);
      EXPECT_THAT(outcome.result.rank_checksums, IsEmpty());
      EXPECT_THAT(outcome.recording.violations, IsEmpty());
      for (size_t r = 0; r < kRanks; ++r) {
        EXPECT_EQ(static_cast<int64_t>(outcome.recording.losses[r].size()), outcome.result.rank_steps[r]);
      }
    }
  }
}

// What a rank meets because another has failed is not the cause, whichever is reported first.
TEST(TrainerFailureTest, AnAbortIsReplacedByTheCauseAndTheFirstCauseStays) {
  const TrainJob job = MakeJob();
  absl::StatusOr<NetSpec> spec = PresetNet("lenet", job.dataset->train.shape, job.dataset->classes);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const absl::StatusOr<Net> net = Net::Create(*std::move(spec));
  ASSERT_TRUE(net.ok()) << net.status();
  FakeGroup group(kRanks);
  const StopRequest stop;
  RecordingObserver observer(kRanks);
  RunState run(job, *net, &group, &stop, &observer);
  run.Fail({.rank = 0, .step = 33, .phase = "step", .status = absl::AbortedError("a peer is gone")});
  EXPECT_EQ(run.failure()->rank, 0);
  run.Fail({.rank = 1, .step = 33, .phase = "step", .status = absl::AbortedError("me too")});
  EXPECT_EQ(run.failure()->rank, 0);
  run.Fail({.rank = 3, .step = 33, .phase = "step", .status = absl::InternalError("the cause")});
  EXPECT_EQ(run.failure()->rank, 3);
  run.Fail({.rank = 2, .step = 33, .phase = "step", .status = absl::InternalError("another")});
  EXPECT_EQ(run.failure()->rank, 3);
}

TEST(TrainerFailureTest, AHangingRankIsFreedWhenAnotherFails) {
  const Outcome outcome = RunJob({{.kind = FakeFault::Kind::kHang, .rank = 1, .step = 50},
                                  {.rank = 2, .step = 50, .status = absl::UnavailableError("link down")}});
  ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
  EXPECT_EQ(outcome.result.failure->rank, 2);
  EXPECT_EQ(outcome.result.failure->status.message(), "link down");
}

TEST(TrainerFailureTest, AnAbortFromOutsideFailsTheJob) {
  FakeScript script;
  script.faults = {{.kind = FakeFault::Kind::kHang, .rank = 1, .step = 7}};
  FakeGroup group(kRanks, script);
  StopRequest stop;
  RecordingObserver observer(kRanks);
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    group.Abort("the device was lost");
  });
  const TrainResult result = Train(MakeJob(), &group, &stop, &observer);
  aborter.join();
  EXPECT_EQ(result.end, TrainEnd::kFailed);
  ASSERT_TRUE(result.failure);
  EXPECT_THAT(std::string(result.failure->status.message()), HasSubstr("the device was lost"));

  // A group that is lost fails the next job at once.
  RecordingObserver next(kRanks);
  const TrainResult second = Train(MakeJob(), &group, &stop, &next);
  EXPECT_EQ(second.end, TrainEnd::kFailed);
  EXPECT_EQ(second.failure->phase, "init");
}

TEST(TrainerFailureTest, ABadLossEndsAllRanksAtOneStepAndKeepsTheGroup) {
  const TempFolder folder;
  TrainJob job = MakeJob();
  job.checkpoint_folder = folder.path();
  // The lowest step comes first, and within it the lowest rank, whichever thread is faster.
  for (int i = 0; i < 20; ++i) {
    const Outcome outcome = RunJob({{.kind = FakeFault::Kind::kLoss, .rank = 1, .step = 48, .loss = kNan},
                                    {.kind = FakeFault::Kind::kLoss, .rank = 3, .step = 47, .loss = kInfinity},
                                    {.kind = FakeFault::Kind::kLoss, .rank = 2, .step = 47, .loss = kNan}},
                                   job);
    ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
    ASSERT_TRUE(outcome.result.failure);
    EXPECT_EQ(outcome.result.failure->rank, 2);
    EXPECT_EQ(outcome.result.failure->step, 48);
    EXPECT_EQ(outcome.result.failure->phase, "step");
    EXPECT_EQ(outcome.result.failure->status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(outcome.result.failure->status.message(),
              "rank 2: the loss of step 48 is nan: must be finite (nan_policy is stop)");
    EXPECT_EQ(outcome.result.rank_steps, std::vector<int64_t>(kRanks, outcome.result.steps));
    EXPECT_GE(outcome.result.steps, 48);
    EXPECT_FALSE(outcome.aborted);
    EXPECT_THAT(outcome.recording.violations, IsEmpty());
    EXPECT_THAT(outcome.recording.checkpoints, IsEmpty());
    EXPECT_EQ(outcome.recording.evaluations.size(), 1u);
  }
}

TEST(TrainerFailureTest, ABadLossInTheLastStepFailsTheJob) {
  const Outcome outcome = RunJob({{.kind = FakeFault::Kind::kLoss, .rank = 3, .step = 119, .loss = kInfinity}});
  ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
  EXPECT_EQ(outcome.result.failure->rank, 3);
  EXPECT_EQ(outcome.result.failure->step, 120);
  EXPECT_THAT(std::string(outcome.result.failure->status.message()), HasSubstr("is inf"));
}

TEST(TrainerFailureTest, UnderContinueABadLossIsOneWarning) {
  const Outcome outcome = RunJob({{.kind = FakeFault::Kind::kLoss, .rank = 1, .step = 48, .loss = kNan},
                                  {.kind = FakeFault::Kind::kLoss, .rank = 0, .step = 60, .loss = kNan}},
                                 MakeJob(NanPolicy::kContinue));
  EXPECT_EQ(outcome.result.end, TrainEnd::kCompleted);
  EXPECT_EQ(outcome.result.steps, 120);
  EXPECT_THAT(outcome.recording.warnings,
              ElementsAre("rank 1: the loss of step 49 is nan; training goes on (nan_policy is continue)"));
  EXPECT_THAT(outcome.recording.violations, IsEmpty());
  EXPECT_TRUE(std::isnan(outcome.recording.losses[1][48]));
  EXPECT_EQ(outcome.recording.evaluations.size(), 4u);
}

TEST(TrainerFailureTest, WeightsThatDifferAreFound) {
  const TempFolder folder;
  TrainJob job = MakeJob();
  job.checkpoint_folder = folder.path();
  const Outcome outcome = RunJob({{.kind = FakeFault::Kind::kCorrupt, .rank = 1, .step = 119},
                                  {.kind = FakeFault::Kind::kCorrupt, .rank = 3, .step = 119}},
                                 job);
  ASSERT_EQ(outcome.result.end, TrainEnd::kFailed);
  EXPECT_EQ(outcome.result.failure->rank, 1);
  EXPECT_EQ(outcome.result.failure->phase, "checkpoint");
  EXPECT_EQ(outcome.result.failure->status.message(), "after step 120 the weights of rank 1, 3 differ from rank 0's");
  EXPECT_FALSE(outcome.aborted);
  EXPECT_THAT(outcome.recording.checkpoints, IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TrainerFailureTest, ASaveThatFailsIsAWarning) {
  const TempFolder folder;
  std::ofstream(folder.path() / "file") << "in the way";
  TrainJob job = MakeJob();
  job.checkpoint_folder = folder.path() / "file" / "below";
  const Outcome outcome = RunJob({}, job);
  EXPECT_EQ(outcome.result.end, TrainEnd::kCompleted);
  ASSERT_EQ(outcome.recording.warnings.size(), 1u);
  EXPECT_THAT(outcome.recording.warnings[0], HasSubstr("the checkpoint of step 120 was not saved: "));
  EXPECT_FALSE(outcome.result.save.ok());
  EXPECT_THAT(outcome.recording.warnings[0], HasSubstr("file"));
  EXPECT_THAT(outcome.recording.checkpoints, IsEmpty());
}

}  // namespace
}  // namespace lenet
