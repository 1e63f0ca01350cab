#include "trainer/train/watchdog.h"

#include <gtest/gtest.h>

namespace lenet {
namespace {

using std::chrono::milliseconds;
using Ranks = std::vector<RankPosition>;

constexpr milliseconds kTimeout(2500);

// What it says of ranks that stay at one place for the timeout.
std::optional<RankFailure> Verdict(const Ranks& ranks) {
  Watchdog watchdog(kTimeout);
  const Watchdog::Clock::time_point start = Watchdog::Clock::now();
  EXPECT_FALSE(watchdog.Look(ranks, start));
  EXPECT_FALSE(watchdog.Look(ranks, start + kTimeout - milliseconds(1)));
  return watchdog.Look(ranks, start + kTimeout);
}

TEST(WatchdogTest, NamesTheRankThatIsFurthestBehind) {
  const std::optional<RankFailure> failure =
      Verdict({{Phase::kStep, 120, 90}, {Phase::kStep, 100, 100}, {Phase::kStep, 110, 90}});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->step, 100);
  EXPECT_EQ(failure->phase, "step");
  EXPECT_EQ(failure->status, absl::DeadlineExceededError(
                                 "rank 1 has not entered step 101's all-reduce within 2.5 s; ranks 0, 2 wait for it"));
}

TEST(WatchdogTest, TheLowestOfEquals) {
  const std::optional<RankFailure> failure =
      Verdict({{Phase::kStep, 120, 90}, {Phase::kStep, 100, 90}, {Phase::kStep, 100, 90}, {Phase::kEnded, 100, 90}});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->status.message(),
            "rank 1 has not entered step 101's all-reduce within 2.5 s; ranks 0, 3 wait for it");

  const std::optional<RankFailure> all = Verdict({{Phase::kStep, 100, 90}, {Phase::kStep, 100, 90}});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->rank, 0);
  EXPECT_EQ(all->step, 90);
  EXPECT_EQ(all->status.message(), "no rank finished step 91 within 2.5 s");
}

TEST(WatchdogTest, NamesThePhaseBeforeTheSteps) {
  const std::optional<RankFailure> broadcast = Verdict({{Phase::kWarmUp, 0, 0}, {Phase::kBroadcast, 0, 0}});
  ASSERT_TRUE(broadcast);
  EXPECT_EQ(broadcast->rank, 1);
  EXPECT_EQ(broadcast->phase, "broadcast");
  EXPECT_EQ(broadcast->status.message(), "rank 1 has not finished the broadcast within 2.5 s; rank 0 waits for it");
  EXPECT_EQ(Verdict({{Phase::kWarmUp, 0, 0}, {Phase::kWarmUp, 0, 0}})->status.message(),
            "no rank finished the warm-up within 2.5 s");
}

TEST(WatchdogTest, RanksThatTakeTheirTimeElsewhereAreNoFault) {
  for (const Phase phase : {Phase::kInit, Phase::kEvaluation, Phase::kCheckpoint}) {
    EXPECT_FALSE(Verdict({{Phase::kStep, 100, 100}, {phase, 100, 100}}));
  }
  EXPECT_FALSE(Verdict({{Phase::kEnded, 100, 100}, {Phase::kEnded, 100, 100}}));
}

// Whatever moves on any rank, and the end of an evaluation.
TEST(WatchdogTest, EachMoveBeginsTheTimeoutAnew) {
  Watchdog watchdog(kTimeout);
  Watchdog::Clock::time_point now = Watchdog::Clock::now();
  Ranks ranks = {{Phase::kStep, 100, 90}, {Phase::kStep, 100, 90}};
  const auto look = [&](milliseconds after) {
    now += after;
    return watchdog.Look(ranks, now).has_value();
  };
  const milliseconds almost = kTimeout - milliseconds(1);
  EXPECT_FALSE(look(almost));
  ranks[0].finished = 100;
  EXPECT_FALSE(look(almost));
  ranks[1].queued = 110;
  EXPECT_FALSE(look(almost));
  ranks[1].phase = Phase::kEvaluation;
  EXPECT_FALSE(look(almost));
  EXPECT_FALSE(look(10 * kTimeout));
  ranks[1].phase = Phase::kStep;
  EXPECT_FALSE(look(almost));
  EXPECT_FALSE(look(almost));
  EXPECT_TRUE(look(milliseconds(1)));
}

TEST(WatchdogTest, IsOffWithoutATimeout) {
  Watchdog watchdog(milliseconds(0));
  const Ranks ranks = {{Phase::kStep, 100, 90}, {Phase::kStep, 100, 90}};
  const Watchdog::Clock::time_point start = Watchdog::Clock::now();
  EXPECT_FALSE(watchdog.Look(ranks, start));
  EXPECT_FALSE(watchdog.Look(ranks, start + std::chrono::hours(24)));
}

}  // namespace
}  // namespace lenet
