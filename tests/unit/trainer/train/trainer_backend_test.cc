// Trainings on a backend, as the daemon runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/trainer/train/trainer_backend_fixture.h"
#include "trainer/data/catalog.h"

namespace lenet {
namespace {

using ::testing::IsEmpty;

TEST_F(TrainerBackendTest, Learns) {
  const Outcome outcome =
      RunJob(MakeJob({.dataset = "synthetic", .batch_size = 8, .epochs = 4}, Ranks(2), SyntheticDataset(800, 300)));
  ASSERT_EQ(outcome.result.end, TrainEnd::kCompleted);
  ASSERT_EQ(outcome.recording.epochs.size(), 4u);
  EXPECT_GT(outcome.recording.epochs[0].mean_loss, outcome.recording.epochs[3].mean_loss);
  EXPECT_GE(outcome.result.evaluation->accuracy(), 0.99);
  for (const uint64_t checksum : outcome.result.rank_checksums) {
    EXPECT_EQ(checksum, outcome.result.rank_checksums[0]);
  }
}

// On as many ranks as the parameter says; skips where each must have a device and there are too few.
class TrainerRanksTest : public TrainerBackendTest, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    TrainerBackendTest::SetUp();
    if (backend_ != nullptr && Ranks(GetParam()) < GetParam()) {
      GTEST_SKIP() << "needs " << GetParam() << " devices, there are " << backend_->devices().size();
    }
  }
};

TEST_P(TrainerRanksTest, EvaluationCountsTenThousand) {
  const int ranks = GetParam();
  const Outcome outcome =
      RunJob(MakeJob({.dataset = "synthetic", .batch_size = 16, .epochs = 1}, ranks, SyntheticDataset(560, 10000)));
  ASSERT_TRUE(outcome.result.evaluation);
  EXPECT_EQ(outcome.result.evaluation->count, 10000);
  EXPECT_EQ(outcome.result.rank_steps, std::vector<int64_t>(static_cast<size_t>(ranks), 560 / 16 / ranks));
}

INSTANTIATE_TEST_SUITE_P(Ranks, TrainerRanksTest, ::testing::Values(1, 3, 7));

class SharedBatchTest : public TrainerRanksTest {};

TEST_P(SharedBatchTest, TrainsAsOneRank) {
  const std::shared_ptr<const Dataset> dataset = SyntheticDataset(640, 200);
  const auto losses = [&](int ranks) {
    TrainSpec spec = {.dataset = "synthetic", .learning_rate = 0.02, .max_steps = 20};
    spec.global_batch_size = 32;
    const Outcome outcome = RunJob(MakeJob(spec, ranks, dataset));
    std::vector<double> means(20);
    for (const std::vector<float>& of_rank : outcome.recording.losses) {
      for (size_t i = 0; i < 20; ++i) means[i] += static_cast<double>(of_rank[i]) / ranks;
    }
    return means;
  };
  const std::vector<double> one = losses(1);
  const std::vector<double> many = losses(GetParam());
  for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(many[i], one[i], 1e-4) << i;
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedBatchTest, ::testing::Values(2, 4));

class TrainerSetUpTest : public TrainerBackendTest, public ::testing::WithParamInterface<SetUp> {
 protected:
  void SetUp() override {
    TrainerBackendTest::SetUp();
    if (backend_ == nullptr) return;
    TrainSpec spec = {.dataset = "synthetic", .optimizer = GetParam().optimizer, .schedule = GetParam().schedule};
    spec.batch_size = 8;
    spec.epochs = 3;
    spec.clip_norm = GetParam().clip_norm;
    job_ = MakeJob(spec, Ranks(2), SyntheticDataset(85 * Ranks(2), 50));
  }
  TrainJob job_;  // three epochs of 10 steps
};

// The pace of the observer changes the sizes of the chunks, and nothing else.
TEST_P(TrainerSetUpTest, OneSeedGivesTheSameBits) {
  const Outcome first = RunJob(job_);
  const Outcome again = RunJob(job_);
  const Outcome slow = RunJob(job_, [](int rank, int64_t steps) {
    if (steps % 7 == rank) std::this_thread::sleep_for(std::chrono::milliseconds(4));
  });
  ASSERT_EQ(first.result.end, TrainEnd::kCompleted);
  EXPECT_EQ(again.result.rank_checksums, first.result.rank_checksums);
  EXPECT_EQ(again.recording.losses, first.recording.losses);
  EXPECT_EQ(slow.result.rank_checksums, first.result.rank_checksums);
  EXPECT_EQ(slow.recording.losses, first.recording.losses);
  EXPECT_EQ(slow.result.evaluation->mean_loss, first.result.evaluation->mean_loss);
  job_.plan.spec.seed = 2;
  EXPECT_NE(RunJob(job_).result.rank_checksums, first.result.rank_checksums);
}

TEST_P(TrainerSetUpTest, AStopAndAResumeChangeNoBit) {
  const TempFolder folder;
  const absl::StatusOr<Net> net = Net::Create(*PresetNet("lenet", {1, 28, 28}, 10));
  const auto load = [&](const Outcome& outcome) {
    EXPECT_EQ(outcome.recording.checkpoints.size(), 1u);
    absl::StatusOr<Checkpoint> loaded =
        LoadCheckpoint(outcome.recording.checkpoints.at(0).path, *net, job_.plan.spec.optimizer);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  };
  job_.checkpoint_folder = folder.path() / "whole";
  const Outcome whole = RunJob(job_);
  const Checkpoint whole_end = load(whole);
  for (const int64_t stop_at : {3, 10, 16}) {
    StopRequest stop;
    TrainJob job = job_;
    job.checkpoint_folder = folder.path();
    const Outcome before = RunJob(
        job,
        [&](int, int64_t steps) {
          if (steps >= stop_at) stop.Request(StopMode::kCheckpoint);
        },
        &stop);
    ASSERT_EQ(before.result.end, TrainEnd::kStopped);
    job.resume = load(before);
    const Outcome after = RunJob(job);
    ASSERT_EQ(after.result.end, TrainEnd::kCompleted);
    EXPECT_EQ(after.result.rank_checksums, whole.result.rank_checksums) << "stopped after " << before.result.steps;
    EXPECT_EQ(after.result.evaluation->mean_loss, whole.result.evaluation->mean_loss);
    const Checkpoint end = load(after);
    EXPECT_EQ(end.parameters, whole_end.parameters);
    EXPECT_EQ(end.state, whole_end.state);
  }
}

INSTANTIATE_TEST_SUITE_P(SetUps, TrainerSetUpTest, ::testing::ValuesIn(kSetUps),
                         [](const auto& info) { return info.param.name; });

TEST_F(TrainerBackendTest, StopsAtAnyMomentOnOneGroup) {
  const int ranks = Ranks(3);
  const std::unique_ptr<RankGroup> group = MakeGroup(ranks);
  const TrainJob job =
      MakeJob({.dataset = "synthetic", .batch_size = 8, .epochs = 100'000}, ranks, SyntheticDataset(330, 50));
  std::mt19937 random(5);
  for (int i = 0; i < 50; ++i) {
    StopRequest stop;
    RecordingObserver observer(ranks);
    const auto delay = std::chrono::microseconds(random() % 60000);
    std::thread requester([&] {
      std::this_thread::sleep_for(delay);
      stop.Request(i % 2 == 0 ? StopMode::kCheckpoint : StopMode::kAbort);
    });
    const TrainResult result = Train(job, group.get(), &stop, &observer);
    requester.join();
    ASSERT_EQ(result.end, i % 2 == 0 ? TrainEnd::kStopped : TrainEnd::kAborted);
    EXPECT_EQ(result.rank_steps, std::vector<int64_t>(static_cast<size_t>(ranks), result.steps));
    EXPECT_THAT(observer.Get().violations, IsEmpty());
    ASSERT_FALSE(group->aborted());
  }
}

TEST_F(TrainerBackendTest, ADivergedRunFailsAndTheGroupServesTheNext) {
  const int ranks = Ranks(2);
  const std::unique_ptr<RankGroup> group = MakeGroup(ranks);
  const StopRequest stop;
  const std::shared_ptr<const Dataset> dataset = SyntheticDataset(330, 50);
  // Products of such weights are beyond float32, and their sums are no numbers.
  TrainSpec spec = {.dataset = "synthetic", .batch_size = 8, .epochs = 50};
  spec.init = {.kind = InitKind::kUniform, .low = -1e30f, .high = 1e30f};
  RecordingObserver observer(ranks);
  const TrainResult diverged = Train(MakeJob(spec, ranks, dataset), group.get(), &stop, &observer);
  EXPECT_EQ(diverged.end, TrainEnd::kFailed);
  ASSERT_TRUE(diverged.failure);
  EXPECT_EQ(diverged.failure->status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(diverged.failure->phase, "step");
  EXPECT_EQ(diverged.failure->rank, 0);
  EXPECT_EQ(diverged.failure->step, 1);
  EXPECT_FALSE(group->aborted());

  spec = {.dataset = "synthetic", .batch_size = 8, .epochs = 1};
  RecordingObserver next(ranks);
  EXPECT_EQ(Train(MakeJob(spec, ranks, dataset), group.get(), &stop, &next).end, TrainEnd::kCompleted);
}

// Two ranks with batches of 8, plain gradient descent, weights of uniform(-0.05, 0.05): a net that knows nothing stays
// near ln 10 for its first steps.
TEST_F(TrainerBackendTest, TenStepsOfPlainGradientDescent) {
  DatasetCatalog catalog({LENET_TEST_DATA "/../../build/data", "/usr/share/datasets"});
  bool found = false;
  for (const char* name : {"mnist", "fashion-mnist"}) {
    const absl::StatusOr<std::shared_ptr<const Dataset>> dataset = catalog.Load(name);
    if (absl::IsNotFound(dataset.status())) continue;
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    found = true;
    TrainSpec spec = {.dataset = name};
    spec.init = {.kind = InitKind::kUniform, .low = -0.05f, .high = 0.05f};
    spec.optimizer = {};
    spec.schedule = {};
    spec.learning_rate = 0.1;
    spec.clip_norm = 0;
    spec.batch_size = 8;
    spec.max_steps = 10;
    const Outcome outcome = RunJob(MakeJob(spec, Ranks(2), *dataset));
    ASSERT_EQ(outcome.result.end, TrainEnd::kCompleted);
    for (const std::vector<float>& losses : outcome.recording.losses) {
      EXPECT_EQ(losses.size(), 10u);
      for (const float loss : losses) {
        EXPECT_GE(loss, 2.2f);
        EXPECT_LE(loss, 2.45f);
      }
    }
    EXPECT_EQ(outcome.result.evaluation->count, 10000);
  }
  if (!found) GTEST_SKIP() << "there is neither mnist nor fashion-mnist";
}

}  // namespace
}  // namespace lenet
