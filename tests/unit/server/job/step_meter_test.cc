#include "server/job/step_meter.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "gtest/gtest.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;

// What is counted in the bucket of these seconds.
uint64_t At(const DurationHistogram& histogram, double seconds) {
  const auto bound = std::lower_bound(histogram.bounds().begin(), histogram.bounds().end(), seconds);
  return histogram.Get().counts[static_cast<size_t>(bound - histogram.bounds().begin())];
}

TEST(StepMeterTest, CountsStepsAndImagesOnTheRanksDevices) {
  JobCounters counters(3);
  StepMeter meter(&counters, {2, 0, 2}, 16);
  const StepMeter::Clock::time_point start = StepMeter::Clock::now();
  meter.StepsFollow(start);
  meter.AddSteps(0, 10, start + milliseconds(10));
  meter.AddSteps(1, 10, start + milliseconds(10));
  meter.AddSteps(2, 5, start + milliseconds(10));
  EXPECT_EQ(counters.devices[0].steps.value(), 10u);
  EXPECT_EQ(counters.devices[1].steps.value(), 0u);
  EXPECT_EQ(counters.devices[2].steps.value(), 15u);
  EXPECT_EQ(counters.devices[0].images.value(), 160u);
  EXPECT_EQ(counters.devices[2].images.value(), 240u);
}

TEST(StepMeterTest, TheTimeOfAChunkIsSharedByItsSteps) {
  JobCounters counters(1);
  StepMeter meter(&counters, {0, 0}, 1);
  const StepMeter::Clock::time_point start = StepMeter::Clock::now();
  meter.StepsFollow(start);
  meter.AddSteps(0, 4, start + milliseconds(12));   // 3 ms each
  meter.AddSteps(1, 4, start + milliseconds(160));  // 40 ms each: a rank's time is its own
  meter.AddSteps(0, 2, start + milliseconds(172));  // 80 ms each
  EXPECT_EQ(At(counters.step, 0.003), 4u);
  EXPECT_EQ(At(counters.step, 0.04), 4u);
  EXPECT_EQ(At(counters.step, 0.08), 2u);
  EXPECT_NEAR(counters.step.Get().sum, 0.012 + 0.160 + 0.160, 1e-6);
}

TEST(StepMeterTest, WhatIsNoStepDoesNotCount) {
  JobCounters counters(1);
  StepMeter meter(&counters, {0}, 1);
  const StepMeter::Clock::time_point start = StepMeter::Clock::now();
  meter.StepsFollow(start);
  meter.AddSteps(0, 1, start + milliseconds(3));
  // An evaluation of two seconds.
  meter.StepsFollow(start + milliseconds(2003));
  meter.AddSteps(0, 1, start + milliseconds(2006));
  EXPECT_EQ(At(counters.step, 0.003), 2u);
  EXPECT_NEAR(counters.step.Get().sum, 0.006, 1e-6);
}

}  // namespace
}  // namespace lenet
