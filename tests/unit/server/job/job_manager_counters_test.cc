// What the manager counts, and what it tells of the jobs that run.
#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/job/job_manager.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

uint64_t Count(const DurationHistogram& histogram) {
  const std::vector<uint64_t> counts = histogram.Get().counts;
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

TEST(JobManagerCountersTest, CountStepsImagesAndWaits) {
  ServerUnderTest server;
  const JobCounters& counters = server.manager().counters();
  ASSERT_EQ(counters.devices.size(), 2u);
  for (int i = 0; i < 3; ++i) {
    const std::string id = server.manager().Start(ServerUnderTest::Request(10, 2)).value().id();
    ASSERT_EQ(server.AwaitState(id, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  }
  for (const JobCounters::Device& device : counters.devices) {
    EXPECT_EQ(device.steps.value(), 30u);
    EXPECT_EQ(device.images.value(), 30u * 16);
  }
  EXPECT_EQ(Count(counters.step), 60u);
  EXPECT_EQ(Count(counters.queue_wait), 3u);
}

TEST(JobManagerCountersTest, AJobThatWaitsIsTimedWhenItGetsItsDevices) {
  ServerUnderTest server(Paced(1));
  JobManager& manager = server.manager();
  const std::string first = manager.Start(ServerUnderTest::Request(0)).value().id();
  const std::string second = manager.Start(ServerUnderTest::Request(5)).value().id();
  server.AwaitStep(first, 1);
  EXPECT_EQ(Count(manager.counters().queue_wait), 1u);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(manager.Stop(first, StopMode::kCheckpoint).ok());
  ASSERT_EQ(server.AwaitState(second, v1::SUCCEEDED).state(), v1::SUCCEEDED);
  EXPECT_EQ(Count(manager.counters().queue_wait), 2u);
  EXPECT_GE(manager.counters().queue_wait.Get().sum, 0.02);
}

TEST(JobManagerCountersTest, RunningTellsTheLossOfEveryRankUntilTheJobEnds) {
  ServerUnderTest server(Paced());
  JobManager& manager = server.manager();
  EXPECT_TRUE(manager.Running().empty());
  const std::string id = manager.Start(ServerUnderTest::Request(0, 2)).value().id();
  const std::string waiting = manager.Start(ServerUnderTest::Request(0, 2)).value().id();
  server.AwaitStep(id, 3);
  const std::vector<RunningJob> running = manager.Running();
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].id, id);
  EXPECT_GE(running[0].progress.step(), 3);
  ASSERT_EQ(running[0].ranks.size(), 2u);
  for (const JobProgress::Rank& rank : running[0].ranks) {
    EXPECT_TRUE(rank.reported);
    EXPECT_GE(rank.step, 3);
    EXPECT_GT(rank.loss, 0);
  }
  ASSERT_TRUE(manager.Stop(waiting, StopMode::kCheckpoint).ok());
  ASSERT_TRUE(manager.Stop(id, StopMode::kCheckpoint).ok());
  EXPECT_TRUE(Eventually([&] { return manager.Running().empty(); }));
}

}  // namespace
}  // namespace lenet
