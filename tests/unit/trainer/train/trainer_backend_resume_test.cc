// Trainings that go on from each state that an earlier one saved, and ranks that hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/scripted_faults.h"
#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/trainer/train/trainer_backend_fixture.h"
#include "trainer/train/checkpoint.h"

namespace lenet {
namespace {

class TrainerResumeTest : public TrainerBackendTest, public ::testing::WithParamInterface<SetUp> {
 protected:
  void SetUp() override {
    TrainerBackendTest::SetUp();
    absl::StatusOr<Net> net = Net::Create(*PresetNet("lenet", {1, 28, 28}, 10));
    ASSERT_TRUE(net.ok()) << net.status();
    net_ = std::make_unique<Net>(*std::move(net));
  }

  // Three epochs of 10 steps, saved after steps 4, 8, 10, 12, 16, 20, 24, 28 and 30.
  TrainJob SavingJob(int ranks, const std::filesystem::path& folder) const {
    TrainSpec spec = {.dataset = "synthetic", .optimizer = GetParam().optimizer, .schedule = GetParam().schedule};
    spec.global_batch_size = 16;
    spec.epochs = 3;
    spec.clip_norm = GetParam().clip_norm;
    spec.checkpoints = {.every_epochs = 1, .every_steps = 4};
    TrainJob job = MakeJob(spec, ranks, SyntheticDataset(165, 50));
    job.checkpoint_folder = folder;
    return job;
  }

  Checkpoint Load(const CheckpointSaved& saved) const {
    absl::StatusOr<Checkpoint> loaded = LoadCheckpoint(saved.path, *net_, GetParam().optimizer);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  }

  std::unique_ptr<Net> net_;
};

TEST_P(TrainerResumeTest, FromEachStateTheEndHasTheSameBits) {
  const TempFolder folder;
  TrainJob job = SavingJob(Ranks(2), folder / "whole");
  const Outcome whole = RunJob(job);
  ASSERT_EQ(whole.result.end, TrainEnd::kCompleted);
  ASSERT_EQ(whole.recording.checkpoints.size(), 9u);
  const Checkpoint whole_end = Load(whole.recording.checkpoints.back());
  job.checkpoint_folder = folder / "resumed";
  for (const CheckpointSaved& saved : whole.recording.checkpoints) {
    job.resume = Load(saved);
    const Outcome resumed = RunJob(job);
    ASSERT_EQ(resumed.result.end, TrainEnd::kCompleted);
    EXPECT_EQ(resumed.result.rank_checksums, whole.result.rank_checksums) << saved.step;
    EXPECT_EQ(resumed.result.evaluation->mean_loss, whole.result.evaluation->mean_loss) << saved.step;
    const Checkpoint end = Load(resumed.recording.checkpoints.back());
    EXPECT_EQ(end.parameters, whole_end.parameters) << saved.step;
    EXPECT_EQ(end.state, whole_end.state) << saved.step;
    EXPECT_EQ(end.metadata, whole_end.metadata) << saved.step;
    for (size_t rank = 0; rank < whole.recording.losses.size(); ++rank) {
      const std::vector<float>& losses = whole.recording.losses[rank];
      EXPECT_EQ(resumed.recording.losses[rank], std::vector<float>(losses.begin() + saved.step, losses.end()));
    }
  }
}

// Sums are added in another order, and nothing else changes.
TEST_P(TrainerResumeTest, OnAnotherNumberOfRanksItIsTheSameButForRounding) {
  if (Ranks(2) < 2) GTEST_SKIP() << "needs 2 devices, there is " << Ranks(2);
  const TempFolder folder;
  const Outcome whole = RunJob(SavingJob(2, folder / "whole"));
  ASSERT_EQ(whole.recording.checkpoints.size(), 9u);
  const Checkpoint whole_end = Load(whole.recording.checkpoints.back());
  for (const int ranks : {1, 4}) {
    if (Ranks(ranks) < ranks) continue;
    TrainJob job = SavingJob(ranks, folder / "resumed");
    for (const size_t i : {2u, 6u}) {
      job.resume = Load(whole.recording.checkpoints[i]);
      const Outcome resumed = RunJob(job);
      ASSERT_EQ(resumed.result.end, TrainEnd::kCompleted);
      const Checkpoint end = Load(resumed.recording.checkpoints.back());
      EXPECT_EQ(end.step, 30);
      ASSERT_EQ(end.parameters.size(), whole_end.parameters.size());
      float largest = 0;
      for (size_t k = 0; k < end.parameters.size(); ++k) {
        largest = std::max(largest, std::abs(end.parameters[k] - whole_end.parameters[k]));
      }
      EXPECT_LE(largest, 1e-5f) << ranks << " ranks from step " << job.resume->step;
      EXPECT_NEAR(resumed.result.evaluation->mean_loss, whole.result.evaluation->mean_loss, 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(SetUps, TrainerResumeTest, ::testing::ValuesIn(kSetUps),
                         [](const auto& info) { return info.param.name; });

TEST_F(TrainerBackendTest, ARankThatHangsFailsTheJobAndTheNextGroupTrains) {
  if (Ranks(2) < 2) GTEST_SKIP() << "needs 2 devices, there is " << Ranks(2);
  constexpr std::chrono::milliseconds kTimeout(1000);
  TrainJob job = MakeJob({.dataset = "synthetic", .batch_size = 8, .epochs = 2}, 2, SyntheticDataset(400, 50));
  const StopRequest stop;
  const std::unique_ptr<RankGroup> group = MakeGroup(2);
  // What a process does once on a device may take longer than the timeout.
  RecordingObserver first(2);
  ASSERT_EQ(Train(job, group.get(), &stop, &first).end, TrainEnd::kCompleted);

  ScriptedFaults faults({{.rank = 1, .step = 25, .action = ScriptedFault::Action::kHang}});
  job.faults = &faults;
  job.collective_timeout = kTimeout;
  std::chrono::steady_clock::time_point hung;
  RecordingObserver observer(2);
  observer.after_steps = [&](int rank, int64_t steps) {
    if (rank == 1 && steps == 24) hung = std::chrono::steady_clock::now();
  };
  const TrainResult result = Train(job, group.get(), &stop, &observer);
  const auto took = std::chrono::steady_clock::now() - hung;
  ASSERT_EQ(result.end, TrainEnd::kFailed);
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->rank, 1);
  EXPECT_EQ(result.failure->step, 24);
  EXPECT_EQ(result.failure->phase, "step");
  EXPECT_EQ(result.failure->status,
            absl::DeadlineExceededError("rank 1 has not entered step 25's all-reduce within 1 s; rank 0 waits for it"));
  EXPECT_LT(took, kTimeout + std::chrono::seconds(1));
  EXPECT_TRUE(group->aborted());

  job.faults = nullptr;
  EXPECT_EQ(RunJob(job).result.end, TrainEnd::kCompleted);
}

}  // namespace
}  // namespace lenet
