#include "trainer/base/heartbeat.h"

#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace lenet {
namespace {

using std::chrono::steady_clock;

TEST(HeartbeatTest, OnlyABeatAfterTheCountIsAProof) {
  Heartbeat heartbeat;
  heartbeat.Beat();
  const uint64_t before = heartbeat.beats();
  EXPECT_FALSE(heartbeat.AwaitMore(before, steady_clock::now() + std::chrono::milliseconds(20)));
  std::thread beating([&heartbeat] { heartbeat.Beat(); });
  EXPECT_TRUE(heartbeat.AwaitMore(before, steady_clock::now() + std::chrono::minutes(1)));
  beating.join();
  EXPECT_EQ(heartbeat.beats(), before + 1);
  EXPECT_TRUE(heartbeat.AwaitMore(before, steady_clock::now()));
}

}  // namespace
}  // namespace lenet
