#include "server/progress_watch.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using std::chrono::milliseconds;
using Clock = ProgressWatch::Clock;
using Part = ProgressWatch::Part;

Part Moving(std::atomic<int>* asked) {
  return {"moving", [asked](Clock::time_point) {
            ++*asked;
            return true;
          }};
}

TEST(ProgressWatchTest, AsksEveryPartAgainAndAgain) {
  std::atomic<int> first{0};
  std::atomic<int> second{0};
  const ProgressWatch watch({Moving(&first), Moving(&second)}, milliseconds(1));
  EXPECT_TRUE(Eventually([&] { return first >= 5 && second >= 5; }));
  EXPECT_FALSE(watch.Find(milliseconds(10'000)).has_value());
}

TEST(ProgressWatchTest, APartThatNeverAnswersIsNamedWhileItDoesNot) {
  std::atomic<int> asked{0};
  Gate gate;
  const ProgressWatch watch({Moving(&asked),
                             {"stuck",
                              [&gate](Clock::time_point) {
                                gate.Wait();
                                return true;
                              }}},
                            milliseconds(1));
  EXPECT_TRUE(Eventually([&] { return watch.Find(milliseconds(20)).has_value(); }));
  const auto found = watch.Find(milliseconds(20));
  EXPECT_EQ(found->part, "stuck");
  EXPECT_GE(found->duration, milliseconds(20));
  EXPECT_FALSE(watch.Find(milliseconds(60'000)).has_value());
  EXPECT_EQ(asked, 1);
  gate.Open();
  EXPECT_TRUE(Eventually([&] { return asked >= 3; }));
  EXPECT_FALSE(watch.Find(milliseconds(10'000)).has_value());
}

TEST(ProgressWatchTest, APartThatHasNotMovedByTheDeadlineIsAskedAgain) {
  std::atomic<int> asked{0};
  std::atomic<bool> moves{false};
  std::atomic<int> after{0};
  const ProgressWatch watch({{"slow",
                              [&](Clock::time_point deadline) {
                                EXPECT_GT(deadline, Clock::now() - milliseconds(100));
                                ++asked;
                                return moves.load();
                              }},
                             Moving(&after)},
                            milliseconds(1));
  EXPECT_TRUE(Eventually([&] { return asked >= 3 && watch.Find(milliseconds(20)).has_value(); }));
  EXPECT_EQ(watch.Find(milliseconds(20))->part, "slow");
  EXPECT_EQ(after, 0);
  moves = true;
  EXPECT_TRUE(Eventually([&] { return after > 0; }));
}

TEST(ProgressWatchTest, AnExceptionIsAnAnswer) {
  std::atomic<int> after{0};
  const ProgressWatch watch(
      {{"broken", [](Clock::time_point) -> bool { throw std::runtime_error("bad"); }}, Moving(&after)},
      milliseconds(1));
  EXPECT_TRUE(Eventually([&] { return after >= 2; }));
}

TEST(ProgressWatchTest, AStopEndsTheQuestionsAndTheirFindings) {
  std::atomic<int> asked{0};
  ProgressWatch watch({{"slow",
                        [&asked](Clock::time_point) {
                          ++asked;
                          return false;
                        }}},
                      milliseconds(1));
  EXPECT_TRUE(Eventually([&] { return watch.Find(milliseconds(5)).has_value(); }));
  watch.Stop();
  EXPECT_FALSE(watch.Find(milliseconds(0)).has_value());
}

}  // namespace
}  // namespace lenet
