#include "server/telemetry/instruments.h"

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;

constexpr double kBounds[] = {0.001, 0.01, 1};

TEST(DurationHistogramTest, ABoundBelongsToWhatIsBelowIt) {
  DurationHistogram histogram(kBounds);
  for (const double seconds : {0.0, 0.001, 0.0011, 0.01, 1.0, 1.5, 100.0}) histogram.Observe(seconds);
  const DurationHistogram::Snapshot snapshot = histogram.Get();
  EXPECT_THAT(snapshot.counts, ElementsAre(2, 2, 1, 2));
  EXPECT_NEAR(snapshot.sum, 102.5121, 1e-6);
}

TEST(DurationHistogramTest, CountsSeveralAtOnceAndNothingBelowZero) {
  DurationHistogram histogram(kBounds);
  histogram.Observe(0.005, 256);
  histogram.Observe(-3, 2);
  const DurationHistogram::Snapshot snapshot = histogram.Get();
  EXPECT_THAT(snapshot.counts, ElementsAre(2, 256, 0, 0));
  EXPECT_NEAR(snapshot.sum, 1.28, 1e-6);
}

TEST(InstrumentsTest, ThreadsLoseNothing) {
  Counter counter;
  DurationHistogram histogram(kBounds);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 10'000; ++n) {
        counter.Add(2);
        histogram.Observe(0.5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 80'000u);
  EXPECT_THAT(histogram.Get().counts, ElementsAre(0, 0, 40'000, 0));
  EXPECT_NEAR(histogram.Get().sum, 20'000, 1e-3);
}

}  // namespace
}  // namespace lenet
