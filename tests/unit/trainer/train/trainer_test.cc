#include "trainer/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "tests/support/fake_backend.h"
#include "tests/support/make_job.h"
#include "tests/support/recording_observer.h"
#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"

namespace lenet {
namespace {

using ::testing::IsEmpty;

// Without pixels: the fake engine looks at none.
std::shared_ptr<const Dataset> Counted(int64_t train_count, int64_t test_count) {
  auto dataset = std::make_shared<Dataset>();
  dataset->name = "counted";
  dataset->classes = 10;
  dataset->train = {.shape = {1, 28, 28}, .count = train_count};
  dataset->test = {.shape = {1, 28, 28}, .count = test_count};
  return dataset;
}

TEST(TrainerTest, SevenRanksOverSixtyThousandImagesEndNormally) {
  constexpr int kRanks = 7;
  const TrainJob job = MakeJob({.dataset = "counted", .epochs = 2}, kRanks, Counted(60000, 10000));
  FakeGroup group(kRanks);
  StopRequest stop;
  RecordingObserver observer(kRanks);
  const TrainResult result = Train(job, &group, &stop, &observer);
  EXPECT_EQ(result.end, TrainEnd::kCompleted);
  EXPECT_FALSE(result.failure);
  EXPECT_EQ(result.steps, 2 * 133);
  EXPECT_EQ(result.epochs, 2);
  EXPECT_EQ(result.rank_steps, std::vector<int64_t>(kRanks, 266));
  EXPECT_EQ(result.rank_checksums, std::vector<uint64_t>(kRanks, result.rank_checksums.at(0)));
  EXPECT_EQ(group.engines(), 0);
  EXPECT_FALSE(group.aborted());

  const Recording recording = observer.Get();
  EXPECT_THAT(recording.violations, IsEmpty());
  EXPECT_THAT(recording.warnings, IsEmpty());
  EXPECT_EQ(recording.engine, "fake");
  for (const std::vector<float>& losses : recording.losses) EXPECT_EQ(losses.size(), 266u);
  ASSERT_EQ(recording.epochs.size(), 2u);
  const EpochSummary& epoch = recording.epochs[1];
  EXPECT_EQ(epoch.epoch, 2);
  EXPECT_EQ(epoch.last_step, 266);
  EXPECT_EQ(epoch.images, 133 * 448);
  EXPECT_EQ(epoch.dropped_images, 60000 - 133 * 448);
  EXPECT_GT(epoch.seconds, 0);
  EXPECT_GT(epoch.images_per_second, 0);
  double sum = 0;
  for (const std::vector<float>& losses : recording.losses) {
    sum += std::accumulate(losses.begin() + 133, losses.end(), 0.0);
  }
  EXPECT_NEAR(epoch.mean_loss, sum / (133 * kRanks), 1e-9);
  EXPECT_THAT(recording.checkpoints, IsEmpty());
}

TEST(TrainerTest, EvaluationCountsEachImageOnce) {
  for (const int ranks : {1, 3, 7}) {
    for (const int64_t images : {int64_t{10000}, int64_t{10007}, int64_t{5}}) {
      std::mutex mutex;
      std::map<int64_t, int> seen;
      FakeScript script;
      script.on_evaluate = [&](int, int64_t begin, int64_t end) {
        std::lock_guard lock(mutex);
        for (int64_t i = begin; i < end; ++i) ++seen[i];
      };
      FakeGroup group(ranks, script);
      StopRequest stop;
      RecordingObserver observer(ranks);
      const TrainJob job = MakeJob({.dataset = "counted", .batch_size = 10, .epochs = 1}, ranks, Counted(700, images));
      const TrainResult result = Train(job, &group, &stop, &observer);
      ASSERT_EQ(result.end, TrainEnd::kCompleted);
      ASSERT_TRUE(result.evaluation);
      EXPECT_EQ(result.evaluation->count, images);
      EXPECT_EQ(result.evaluation->correct, (images + 1) / 2);
      EXPECT_EQ(result.evaluation->mean_loss, 0.5);
      EXPECT_EQ(static_cast<int64_t>(seen.size()), images);
      EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](const auto& entry) { return entry.second == 1; }));
      EXPECT_THAT(observer.Get().violations, IsEmpty());
    }
  }
}

TEST(TrainerTest, EvaluatesWhenAskedAndAlwaysAtTheEnd) {
  struct Case {
    int every;
    std::vector<int64_t> steps;
  };
  for (const Case& c : {Case{1, {10, 20, 30, 40, 45}}, {2, {20, 40, 45}}, {3, {30, 45}}, {0, {45}}, {9, {45}}}) {
    TrainSpec spec = {.dataset = "counted", .batch_size = 10, .max_steps = 45};
    spec.evaluate_every_epochs = c.every;
    FakeGroup group(2);
    StopRequest stop;
    RecordingObserver observer(2);
    const TrainResult result = Train(MakeJob(spec, 2, Counted(205, 10)), &group, &stop, &observer);
    ASSERT_EQ(result.end, TrainEnd::kCompleted);
    std::vector<int64_t> steps;
    for (const Evaluation& evaluation : observer.Get().evaluations) steps.push_back(evaluation.step);
    EXPECT_EQ(steps, c.steps) << c.every;
    EXPECT_EQ(result.evaluation->step, 45);
    EXPECT_EQ(result.evaluation->epoch, 5);
  }
}

TEST(TrainerTest, NoSecondEvaluationWhereTheLastEpochEnds) {
  FakeGroup group(1);
  StopRequest stop;
  RecordingObserver observer(1);
  Train(MakeJob({.dataset = "counted", .batch_size = 10, .epochs = 3}, 1, Counted(100, 10)), &group, &stop, &observer);
  EXPECT_EQ(observer.Get().evaluations.size(), 3u);
}

TEST(TrainerTest, MaxStepsEndsWithinAnEpoch) {
  const TrainSpec spec = {.dataset = "counted", .batch_size = 10, .max_steps = 25};
  FakeGroup group(1);
  StopRequest stop;
  RecordingObserver observer(1);
  const TrainResult result = Train(MakeJob(spec, 1, Counted(205, 10)), &group, &stop, &observer);
  EXPECT_EQ(result.end, TrainEnd::kCompleted);
  EXPECT_EQ(result.steps, 25);
  EXPECT_EQ(result.epochs, 1);
  const Recording recording = observer.Get();
  ASSERT_EQ(recording.epochs.size(), 2u);
  EXPECT_EQ(recording.epochs[0].images, 200);
  EXPECT_EQ(recording.epochs[0].dropped_images, 5);
  EXPECT_EQ(recording.epochs[1].epoch, 2);
  EXPECT_EQ(recording.epochs[1].last_step, 25);
  EXPECT_EQ(recording.epochs[1].images, 50);
  EXPECT_EQ(recording.epochs[1].dropped_images, 155);
}

// What each rank was given, by step.
class Indices {
 public:
  void Add(int rank, const StepChunk& chunk, int batch) {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < chunk.learning_rates.size(); ++i) {
      const auto part = chunk.indices.subspan(i * static_cast<size_t>(batch), static_cast<size_t>(batch));
      steps_[{chunk.first_step + static_cast<int64_t>(i), rank}].assign(part.begin(), part.end());
      rates_[chunk.first_step + static_cast<int64_t>(i)] = chunk.learning_rates[i];
    }
  }
  std::vector<uint32_t> Range(int64_t begin, int64_t end) const {
    std::vector<uint32_t> all;
    for (const auto& [key, indices] : steps_) {
      if (key.first >= begin && key.first < end) all.insert(all.end(), indices.begin(), indices.end());
    }
    return all;
  }
  const std::map<int64_t, float>& rates() const { return rates_; }

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, int>, std::vector<uint32_t>> steps_;
  std::map<int64_t, float> rates_;
};

void Collect(const TrainSpec& spec, int ranks, Indices* indices) {
  FakeScript script;
  const int batch = *spec.batch_size;
  script.on_enqueue = [=](int rank, const StepChunk& chunk) { indices->Add(rank, chunk, batch); };
  FakeGroup group(ranks, script);
  StopRequest stop;
  RecordingObserver observer(ranks);
  EXPECT_EQ(Train(MakeJob(spec, ranks, Counted(1030, 10)), &group, &stop, &observer).end, TrainEnd::kCompleted);
}

TEST(TrainerTest, EpochsDifferAndSeedsRepeat) {
  Indices first;
  Indices again;
  Indices other;
  TrainSpec spec = {.dataset = "counted", .batch_size = 10, .epochs = 2, .seed = 5};
  Collect(spec, 2, &first);
  Collect(spec, 2, &again);
  spec.seed = 6;
  Collect(spec, 2, &other);
  const std::vector<uint32_t> one = first.Range(0, 51);
  const std::vector<uint32_t> two = first.Range(51, 102);
  EXPECT_EQ(one.size(), 1020u);
  EXPECT_EQ(std::set<uint32_t>(one.begin(), one.end()).size(), 1020u);
  EXPECT_EQ(std::set<uint32_t>(two.begin(), two.end()).size(), 1020u);
  EXPECT_NE(one, two);
  EXPECT_EQ(again.Range(0, 102), first.Range(0, 102));
  EXPECT_NE(other.Range(0, 51), one);
}

TEST(TrainerTest, RanksShareTheGlobalBatch) {
  Indices one;
  Indices four;
  Collect({.dataset = "counted", .batch_size = 40, .epochs = 1}, 1, &one);
  Collect({.dataset = "counted", .batch_size = 10, .epochs = 1}, 4, &four);
  for (int64_t step = 0; step < 25; ++step) EXPECT_EQ(one.Range(step, step + 1), four.Range(step, step + 1)) << step;
}

TEST(TrainerTest, LearningRatesAreTheSchedules) {
  Indices indices;
  TrainSpec spec = {.dataset = "counted", .learning_rate = 0.1, .batch_size = 10, .epochs = 2};
  Collect(spec, 2, &indices);
  ASSERT_EQ(indices.rates().size(), 102u);
  for (const auto& [step, rate] : indices.rates()) {
    EXPECT_EQ(rate, static_cast<float>(LearningRateAt(spec.schedule, 0.1, step, 102, 51))) << step;
  }
}

TEST(TrainerTest, RanksBeginAlikeAndFinish) {
  const TempFolder folder;
  TrainJob job = MakeJob({.dataset = "counted", .batch_size = 10, .epochs = 1}, 3, Counted(100, 10));
  job.checkpoint_folder = folder.path() / "made" / "here";
  job.environment = {{"device", "fake"}};
  FakeGroup group(3);
  StopRequest stop;
  RecordingObserver observer(3);
  const TrainResult result = Train(job, &group, &stop, &observer);
  ASSERT_EQ(result.end, TrainEnd::kCompleted);
  const Recording recording = observer.Get();
  EXPECT_THAT(recording.violations, IsEmpty());
  ASSERT_EQ(recording.checkpoints.size(), 1u);
  const CheckpointSaved& saved = recording.checkpoints[0];
  EXPECT_EQ(saved.path, job.checkpoint_folder / "step-0000000003.safetensors");
  EXPECT_EQ(saved.step, 3);
  EXPECT_EQ(saved.epoch, 1);
  EXPECT_EQ(saved.bytes, static_cast<int64_t>(std::filesystem::file_size(saved.path)));
  EXPECT_EQ(saved.weights_checksum, result.rank_checksums.at(0));

  absl::StatusOr<Net> net = Net::Create(*PresetNet("lenet", {1, 28, 28}, 10));
  const absl::StatusOr<Checkpoint> loaded = LoadCheckpoint(saved.path, *net, job.plan.spec.optimizer);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(WeightsChecksum(*net, loaded->parameters), saved.weights_checksum);
  EXPECT_EQ(loaded->step, 3);
  for (const char* key :
       {"spec", "net", "seed", "ranks", "engine", "global_batch_size", "steps_per_epoch", "total_steps", "device"}) {
    EXPECT_TRUE(loaded->metadata.contains(key)) << key;
  }
  EXPECT_EQ(loaded->metadata.at("device"), "fake");
  EXPECT_EQ(loaded->metadata.at("ranks"), "3");
}

TEST(TrainerTest, AResumedRunEndsAsAnUninterruptedOne) {
  const TempFolder folder;
  const TrainSpec spec = {.dataset = "counted", .batch_size = 10, .epochs = 3};
  TrainJob job = MakeJob(spec, 2, Counted(1010, 10));
  StopRequest never;
  FakeGroup group(2);
  RecordingObserver whole(2);
  const TrainResult expected = Train(job, &group, &never, &whole);
  ASSERT_EQ(expected.end, TrainEnd::kCompleted);

  for (const int64_t stop_at : {int64_t{1}, int64_t{49}, int64_t{50}, int64_t{77}, int64_t{149}}) {
    job.resume.reset();
    job.checkpoint_folder = folder.path();
    StopRequest stop;
    RecordingObserver before(2);
    before.after_steps = [&](int, int64_t steps) {
      if (steps >= stop_at) stop.Request(StopMode::kCheckpoint);
    };
    FakeGroup first_group(2);
    const TrainResult stopped = Train(job, &first_group, &stop, &before);
    ASSERT_EQ(stopped.end, TrainEnd::kStopped);
    ASSERT_GE(stopped.steps, stop_at);
    ASSERT_EQ(before.Get().checkpoints.size(), 1u);

    absl::StatusOr<Net> net = Net::Create(*PresetNet("lenet", {1, 28, 28}, 10));
    absl::StatusOr<Checkpoint> loaded = LoadCheckpoint(before.Get().checkpoints[0].path, *net, spec.optimizer);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    job.resume = *std::move(loaded);
    RecordingObserver after(2, stopped.steps);
    FakeGroup second_group(2);
    const TrainResult resumed = Train(job, &second_group, &never, &after);
    ASSERT_EQ(resumed.end, TrainEnd::kCompleted);
    EXPECT_EQ(resumed.steps, expected.steps);
    EXPECT_EQ(resumed.epochs, 3);
    EXPECT_EQ(resumed.rank_checksums, expected.rank_checksums);
    EXPECT_THAT(after.Get().violations, IsEmpty());
    for (size_t rank = 0; rank < 2; ++rank) {
      std::vector<float> losses = before.Get().losses[rank];
      const std::vector<float> rest = after.Get().losses[rank];
      losses.insert(losses.end(), rest.begin(), rest.end());
      EXPECT_EQ(losses, whole.Get().losses[rank]);
    }
    for (const EpochSummary& epoch : after.Get().epochs) EXPECT_EQ(epoch.dropped_images, 10);
  }
}

TEST(TrainerTest, ResumingAFinishedRunEvaluatesIt) {
  const TempFolder folder;
  const TrainSpec spec = {.dataset = "counted", .batch_size = 10, .epochs = 1};
  TrainJob job = MakeJob(spec, 1, Counted(100, 10));
  job.checkpoint_folder = folder.path();
  StopRequest stop;
  FakeGroup group(1);
  RecordingObserver observer(1);
  const TrainResult first = Train(job, &group, &stop, &observer);
  absl::StatusOr<Net> net = Net::Create(*PresetNet("lenet", {1, 28, 28}, 10));
  job.resume = *LoadCheckpoint(observer.Get().checkpoints.at(0).path, *net, spec.optimizer);
  FakeGroup next(1);
  RecordingObserver again(1, 10);
  const TrainResult result = Train(job, &next, &stop, &again);
  EXPECT_EQ(result.end, TrainEnd::kCompleted);
  EXPECT_EQ(result.steps, 10);
  EXPECT_EQ(result.rank_checksums, first.rank_checksums);
  EXPECT_EQ(again.Get().evaluations.size(), 1u);
  EXPECT_THAT(again.Get().epochs, IsEmpty());
}

TEST(TrainerTest, RefusesAResumeThatDoesNotFit) {
  TrainJob job = MakeJob({.dataset = "counted", .batch_size = 10, .epochs = 1}, 1, Counted(100, 10));
  absl::StatusOr<Net> net = Net::Create(*PresetNet("lenet", {1, 28, 28}, 10));
  const size_t size = static_cast<size_t>(net->flat_size());
  const Checkpoint good = {
      .step = 5, .epoch = 0, .parameters = std::vector<float>(size), .state = std::vector<float>(size)};
  const auto failure = [&](const Checkpoint& checkpoint) {
    job.resume = checkpoint;
    FakeGroup group(1);
    StopRequest stop;
    RecordingObserver observer(1);
    const TrainResult result = Train(job, &group, &stop, &observer);
    EXPECT_EQ(result.end, TrainEnd::kFailed);
    return result.failure ? std::string(result.failure->status.message()) : "";
  };
  Checkpoint bad = good;
  bad.step = 11;
  EXPECT_EQ(failure(bad), "the checkpoint's step = 11: must be 0 to 10");
  bad = good;
  bad.epoch = 1;
  EXPECT_EQ(failure(bad), "the checkpoint's epoch = 1: must be 0, as 10 steps are an epoch");
  bad = good;
  bad.state.clear();
  EXPECT_EQ(failure(bad), "the checkpoint does not fit the net or the optimizer");
}

TEST(TrainerTest, RefusesAGroupOfAnotherSize) {
  FakeGroup group(3);
  StopRequest stop;
  RecordingObserver observer(2);
  const TrainResult result =
      Train(MakeJob({.dataset = "counted", .epochs = 1}, 2, Counted(1000, 10)), &group, &stop, &observer);
  EXPECT_EQ(result.end, TrainEnd::kFailed);
  EXPECT_EQ(result.failure->status.code(), absl::StatusCode::kInternal);
}

TEST(TrainerTest, JobsFollowOneAnotherOnOneGroup) {
  FakeGroup group(2);
  StopRequest stop;
  std::optional<uint64_t> checksum;
  for (int i = 0; i < 20; ++i) {
    RecordingObserver observer(2);
    const TrainResult result = Train(
        MakeJob({.dataset = "counted", .batch_size = 10, .epochs = 1}, 2, Counted(100, 10)), &group, &stop, &observer);
    ASSERT_EQ(result.end, TrainEnd::kCompleted);
    EXPECT_THAT(observer.Get().violations, IsEmpty());
    EXPECT_EQ(result.rank_checksums.at(0), checksum.value_or(result.rank_checksums.at(0)));
    checksum = result.rank_checksums.at(0);
  }
}

}  // namespace
}  // namespace lenet
