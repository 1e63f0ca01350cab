#include "server/job/job_progress.h"

#include <chrono>
#include <cmath>

#include "gtest/gtest.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;

class JobProgressTest : public ::testing::Test {
 protected:
  JobProgressTest() { progress_.Begin(10, start_); }

  JobProgress progress_{/*ranks=*/2, /*global_batch_size=*/128, /*steps_per_epoch=*/10};
  const JobProgress::Clock::time_point start_ = JobProgress::Clock::time_point(std::chrono::hours(1));
};

TEST_F(JobProgressTest, AStepCountsWhenAllRanksHaveDoneIt) {
  EXPECT_EQ(progress_.Get().step(), 0);
  progress_.AddSteps(0, 10, 2.0f, start_ + milliseconds(10));
  EXPECT_EQ(progress_.Get().step(), 0);
  progress_.AddSteps(1, 7, 1.0f, start_ + milliseconds(10));
  EXPECT_EQ(progress_.Get().step(), 7);
  EXPECT_EQ(progress_.Get().loss(), 1.5);
  progress_.AddSteps(1, 10, std::nanf(""), start_ + milliseconds(12));
  EXPECT_EQ(progress_.Get().step(), 10);
  EXPECT_TRUE(std::isnan(progress_.Get().loss()));
}

TEST_F(JobProgressTest, TheRateIsThatOfTheLastSecondOrSo) {
  int64_t step = 0;
  milliseconds at(0);
  const auto run = [&](int64_t steps, milliseconds each) {
    for (int64_t i = 0; i < steps; ++i) {
      ++step;
      at += each;
      for (int rank : {0, 1}) progress_.AddSteps(rank, step, 1, start_ + at);
    }
  };
  run(10, milliseconds(10));
  EXPECT_NEAR(progress_.Get().images_per_second(), 128 * 100, 1);  // there is one before the first second is over
  run(300, milliseconds(10));
  EXPECT_NEAR(progress_.Get().images_per_second(), 128 * 100, 1);
  run(100, milliseconds(100));
  EXPECT_NEAR(progress_.Get().images_per_second(), 128 * 10, 1);
}

TEST_F(JobProgressTest, AnEpochCountsWhenAllRanksHaveDoneItsSteps) {
  EXPECT_EQ(progress_.Get().epoch(), 0);
  progress_.AddSteps(0, 31, 1.0f, start_ + milliseconds(10));
  progress_.AddSteps(1, 29, 1.0f, start_ + milliseconds(10));
  EXPECT_EQ(progress_.Get().epoch(), 2);
  progress_.AddSteps(1, 30, 1.0f, start_ + milliseconds(12));
  EXPECT_EQ(progress_.Get().epoch(), 3);
}

TEST(DamagedProgressTest, AJobOfNoRanksHasDoneNothing) {
  const JobProgress progress(/*ranks=*/0, /*global_batch_size=*/0, /*steps_per_epoch=*/0);
  EXPECT_EQ(progress.Get().step(), 0);
  EXPECT_EQ(progress.Get().loss(), 0);
}

TEST_F(JobProgressTest, Evaluations) {
  EXPECT_FALSE(progress_.Get().evaluated());
  progress_.AddEvaluation({.count = 200, .correct = 150});
  const v1::Progress progress = progress_.Get();
  EXPECT_TRUE(progress.evaluated());
  EXPECT_EQ(progress.accuracy(), 0.75);
}

}  // namespace
}  // namespace lenet
