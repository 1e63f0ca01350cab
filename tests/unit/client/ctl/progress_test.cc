#include "client/ctl/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "client/ctl/text.h"
#include "tests/unit/client/fake_server.h"

namespace lenet::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

v1::Job ResolvedJob(int ranks, int64_t steps_per_epoch, int64_t total_steps) {
  v1::Job job;
  job.set_id("a");
  job.set_state(v1::RUNNING);
  v1::ResolvedSpec* resolved = job.mutable_resolved();
  resolved->set_ranks(ranks);
  resolved->set_batch_size(64);
  resolved->set_global_batch_size(64 * ranks);
  resolved->set_steps_per_epoch(steps_per_epoch);
  resolved->set_total_steps(total_steps);
  return job;
}

// A job of two ranks that has made 400 of 1,000 steps in four seconds, 12,800 images a second.
JobProgress TwoRanks() {
  JobProgress progress;
  progress.SetJob(ResolvedJob(2, 100, 1000));
  progress.Add(StateRecord(v1::STARTING, v1::RUNNING, 1000));
  for (int step = 10; step <= 400; step += 10) progress.Add(StepRecord(step, {0.25f, 0.5f}, 1000 + step * 0.01));
  return progress;
}

TEST(JobProgressTest, CountsStepsEpochsSpeedAndTimeLeft) {
  const JobProgress progress = TwoRanks();
  EXPECT_EQ(progress.state(), v1::RUNNING);
  EXPECT_EQ(progress.step(), 400);
  EXPECT_EQ(progress.epoch(), 4);
  EXPECT_EQ(progress.total_epochs(), 10);
  EXPECT_NEAR(progress.images_per_second(), 12800, 1);
  EXPECT_NEAR(progress.seconds_left(), 6, 0.01);
  EXPECT_THAT(progress.losses(), ElementsAre(std::pair(0, 0.25f), std::pair(1, 0.5f)));
}

TEST(JobProgressTest, TheStepIsThatOfTheSlowestRank) {
  JobProgress progress;
  v1::MetricRecord record = StepRecord(7, {0.25f});
  record.mutable_step_losses()->add_steps(5);
  record.mutable_step_losses()->add_ranks(1);
  record.mutable_step_losses()->add_losses(0.5f);
  progress.Add(record);
  EXPECT_EQ(progress.step(), 5);
}

TEST(JobProgressTest, NothingIsKnownAtFirst) {
  JobProgress progress;
  EXPECT_EQ(progress.step(), 0);
  EXPECT_EQ(progress.epoch(), 0);
  EXPECT_EQ(progress.total_epochs(), 0);
  EXPECT_LT(progress.seconds_left(), 0);
  EXPECT_EQ(progress.images_per_second(), 0);
  // Lengths that differ and an empty record must not confuse it.
  v1::MetricRecord record = StepRecord(1, {});
  record.mutable_step_losses();
  progress.Add(record);
  record.mutable_step_losses()->add_steps(3);
  progress.Add(record);
  EXPECT_EQ(progress.step(), 0);
}

TEST(JobProgressTest, SpeedFollowsTheLastSecondsAndLeavesEvaluationsOut) {
  JobProgress progress = TwoRanks();
  v1::MetricRecord evaluation;
  evaluation.mutable_evaluation()->set_step(400);
  evaluation.mutable_time()->set_seconds(1014);  // ten seconds later
  progress.Add(evaluation);
  EXPECT_NEAR(progress.images_per_second(), 12800, 1);
  for (int step = 410; step <= 500; step += 10) {
    progress.Add(StepRecord(step, {0.25f, 0.5f}, 1014 + (step - 400) * 0.01));
  }
  EXPECT_NEAR(progress.images_per_second(), 12800, 10);
  // The time left counts them: 500 steps took 15 seconds.
  EXPECT_NEAR(progress.seconds_left(), 15, 0.1);
  // From here on ten times slower; after a few seconds the old speed is forgotten.
  for (int step = 501; step <= 550; ++step) {
    progress.Add(StepRecord(step, {0.25f, 0.5f}, 1015 + (step - 500) * 0.1));
  }
  EXPECT_NEAR(progress.images_per_second(), 1280, 10);
}

TEST(JobProgressTest, AJobThatGoesOnFromAnotherHasNotDoneItsSteps) {
  JobProgress progress;
  v1::Job job = ResolvedJob(2, 100, 1000);
  job.mutable_resumed_from()->set_step(500);
  progress.SetJob(job);
  v1::MetricRecord running = StateRecord(v1::STARTING, v1::RUNNING, 1000);
  running.set_attempt(1);
  progress.Add(running);
  for (int step = 501; step <= 600; ++step) {
    v1::MetricRecord record = StepRecord(step, {0.25f, 0.5f}, 1000 + (step - 500) * 0.01);
    record.set_attempt(1);
    progress.Add(record);
  }
  EXPECT_NEAR(progress.seconds_left(), 4, 0.01);
}

TEST(JobProgressTest, AJobThatWaitsOnceMoreHasNoKnownPlace) {
  JobProgress progress;
  v1::Job job = ResolvedJob(2, 100, 1000);
  job.set_state(v1::QUEUED);
  job.set_queue_position(3);
  progress.SetJob(job);
  progress.Add(StateRecord(v1::JOB_STATE_UNSPECIFIED, v1::QUEUED));
  EXPECT_EQ(progress.queue_position(), 3);
  progress.Add(StateRecord(v1::RUNNING, v1::PAUSED));
  EXPECT_THAT(RenderProgress(progress, "", 79), ElementsAre("paused"));
  progress.Add(StateRecord(v1::PAUSED, v1::QUEUED));
  EXPECT_THAT(RenderProgress(progress, "", 79), ElementsAre("queued"));
}

TEST(JobProgressTest, LostRecordsLeaveNoTraceInTheSpeed) {
  JobProgress progress = TwoRanks();
  v1::MetricRecord rewound;
  rewound.set_attempt(1);
  rewound.mutable_rewound()->set_first_sequence(20);
  progress.Add(rewound);
  EXPECT_LT(progress.seconds_left(), 0);
  for (int step = 201; step <= 300; ++step) {
    progress.Add(StepRecord(step, {0.25f, 0.5f}, 2000 + (step - 200) * 0.01));
  }
  EXPECT_EQ(progress.step(), 300);
  EXPECT_NEAR(progress.images_per_second(), 12800, 1);
  EXPECT_NEAR(progress.seconds_left(), 7, 0.1);
}

TEST(JobProgressTest, AnotherAttemptStartsAnew) {
  JobProgress progress = TwoRanks();
  v1::MetricRecord record = StepRecord(301, {0.75f}, 2000);
  record.set_attempt(2);
  progress.Add(record);
  EXPECT_EQ(progress.step(), 301);
  EXPECT_THAT(progress.losses(), SizeIs(1));
  record = StepRecord(401, {0.75f}, 2010);
  record.set_attempt(2);
  progress.Add(record);
  EXPECT_NEAR(progress.seconds_left(), 59.9, 0.2);
}

TEST(RenderProgressTest, FullWidth) {
  EXPECT_THAT(RenderProgress(TwoRanks(), "", 110),
              ElementsAre("epoch 4/10  [==============>                       ]   40 %  step   400/1,000  "
                          "12,800 images/s  ETA 0:06",
                          "loss  rank 0: 0.2500  rank 1: 0.5000"));
}

TEST(RenderProgressTest, LeavesTheLeastImportantOutAsItGetsNarrow) {
  const JobProgress progress = TwoRanks();
  EXPECT_EQ(RenderProgress(progress, "", 75)[0],
            "epoch 4/10  [==>      ]   40 %  step   400/1,000  12,800 images/s  ETA 0:06");
  EXPECT_EQ(RenderProgress(progress, "", 70)[0],
            "epoch 4/10  [=======>             ]   40 %  step   400/1,000  ETA 0:06");
  EXPECT_EQ(RenderProgress(progress, "", 50)[0], "epoch 4/10  [======>            ]   40 %  ETA 0:06");
  EXPECT_EQ(RenderProgress(progress, "", 30)[0], "epoch 4/10   40 %  ETA 0:06");
  EXPECT_EQ(RenderProgress(progress, "", 20)[0], " 40 %  ETA 0:06");
  EXPECT_EQ(RenderProgress(progress, "", 10)[0], " 40 %");
}

TEST(RenderProgressTest, NoWidthIsEverExceeded) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int ranks : {1, 2, 8, 100}) {
    for (v1::JobState state : {v1::JOB_STATE_UNSPECIFIED, v1::QUEUED, v1::STARTING, v1::RUNNING, v1::STOPPING}) {
      for (int64_t total : {int64_t{0}, int64_t{10}, int64_t{1} << 40}) {
        JobProgress progress;
        v1::Job job = ResolvedJob(ranks, 7, total);
        job.set_state(state);
        job.set_queue_position(3);
        progress.SetJob(job);
        std::vector<float> losses(ranks, 1e-7f);
        losses[ranks / 2] = nan;
        for (int step = 1; step <= 10; ++step) progress.Add(StepRecord(step, losses, step));
        for (const std::string note : {"", "connection lost, reconnecting"}) {
          for (int width = 1; width <= 240; ++width) {
            const std::vector<std::string> lines = RenderProgress(progress, note, width);
            ASSERT_THAT(lines, SizeIs(2));
            for (const std::string& line : lines) {
              ASSERT_LE(DisplayWidth(line), width) << ranks << " ranks, width " << width << ": " << line;
              ASSERT_EQ(line, Printable(line));
            }
          }
        }
      }
    }
  }
}

TEST(RenderProgressTest, ManyRanksBecomeMeanAndExtremes) {
  JobProgress progress;
  progress.SetJob(ResolvedJob(16, 100, 1000));
  std::vector<float> losses(16, 0.5f);
  losses[3] = 0.25f;
  losses[11] = 0.75f;
  progress.Add(StepRecord(1, losses));
  EXPECT_EQ(RenderProgress(progress, "", 100)[1],
            "loss of 16 ranks  mean 0.5000  min 0.2500 (rank 3)  max 0.7500 (rank 11)");
  EXPECT_EQ(RenderProgress(progress, "", 60)[1], "mean 0.5000  min 0.2500 (rank 3)  max 0.7500 (rank 11)");
  EXPECT_EQ(RenderProgress(progress, "", 40)[1], "mean 0.5000  max 0.7500 (rank 11)");
  EXPECT_EQ(RenderProgress(progress, "", 12)[1], "mean 0.5000");
  EXPECT_THAT(RenderProgress(progress, "", 300)[1], HasSubstr("rank 15: 0.5000"));
  losses[7] = std::numeric_limits<float>::quiet_NaN();
  progress.Add(StepRecord(2, losses));
  EXPECT_EQ(RenderProgress(progress, "", 100)[1], "loss of 16 ranks  mean nan  min 0.2500 (rank 3)  max nan (rank 7)");
}

TEST(RenderProgressTest, StatesBeforeTheFirstStep) {
  JobProgress progress;
  v1::Job job;
  job.set_state(v1::QUEUED);
  job.set_queue_position(2);
  progress.SetJob(job);
  EXPECT_THAT(RenderProgress(progress, "", 79), ElementsAre("queued, position 2"));
  progress.Add(StateRecord(v1::QUEUED, v1::STARTING));
  EXPECT_THAT(RenderProgress(progress, "", 79), ElementsAre("starting"));
  EXPECT_THAT(RenderProgress(progress, "connection lost", 79), ElementsAre("connection lost  starting"));
}

TEST(RenderProgressTest, TheLineDoesNotJumpAsTheStepGrows) {
  JobProgress progress;
  progress.SetJob(ResolvedJob(1, 100000, 100000));
  size_t length = 0;
  for (int64_t step : {1, 10, 1000, 99999, 100000}) {
    progress.Add(StepRecord(step, {0.5f}));
    const std::string line = RenderProgress(progress, "", 60)[0];
    if (length == 0) length = line.size();
    EXPECT_EQ(line.size(), length) << line;
    EXPECT_THAT(line, HasSubstr("/100,000"));
  }
  EXPECT_THAT(RenderProgress(progress, "", 60)[0], HasSubstr("====]  100 %"));
}

}  // namespace
}  // namespace lenet::ctl
