#include "trainer/train/chunk_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "trainer/backend/backend.h"

namespace lenet {
namespace {

TEST(ChunkPlanTest, CoversEveryStepOnceAndNeverCrossesAnEpoch) {
  constexpr int64_t kFirst = 37;
  constexpr int64_t kTotal = 1234;
  constexpr int64_t kEpoch = 100;
  ChunkPlan plan(1, kFirst, kTotal, kEpoch);
  std::mt19937 random(3);
  int64_t next = kFirst;
  for (Chunk chunk = plan.Next(0, false); chunk.count > 0; chunk = plan.Next(0, false)) {
    EXPECT_EQ(chunk.first_step, next);
    const int64_t last = next + chunk.count - 1;
    EXPECT_EQ(next / kEpoch, last / kEpoch);
    EXPECT_EQ(chunk.ends_epoch, (last + 1) % kEpoch == 0 || last + 1 == kTotal);
    next = last + 1;
    plan.Measured(chunk.count, chunk.count * 1e-5 * (1 + random() % 1000));
  }
  EXPECT_EQ(next, kTotal);
  EXPECT_EQ(plan.Next(0, false).count, 0);
}

TEST(ChunkPlanTest, SizesFollowTheTimeOfAStep) {
  struct Case {
    double step_seconds;
    int steady;
  };
  for (const Case& c : {Case{1e-6, Engine::kMaxChunkSteps}, {142e-6, 70}, {1.6e-3, 6}, {9e-3, 1}, {0.5, 1}}) {
    ChunkPlan plan(1, 0, 1 << 20, 1 << 20);
    Chunk chunk = plan.Next(0, false);
    EXPECT_EQ(chunk.count, 1);
    for (int i = 0; i < 20; ++i) {
      plan.Measured(chunk.count, chunk.count * c.step_seconds);
      const Chunk next = plan.Next(0, false);
      EXPECT_LE(next.count, ChunkPlan::kMaxGrowth * chunk.count);
      chunk = next;
    }
    EXPECT_NEAR(chunk.count, c.steady, 1) << c.step_seconds;
  }
}

TEST(ChunkPlanTest, SizesFollowAStepThatSlowsDown) {
  ChunkPlan plan(1, 0, 1 << 20, 1 << 20);
  Chunk chunk = plan.Next(0, false);
  for (int i = 0; i < 20; ++i) {
    plan.Measured(chunk.count, chunk.count * 1e-4);
    chunk = plan.Next(0, false);
  }
  EXPECT_NEAR(chunk.count, 100, 1);
  for (int i = 0; i < 10; ++i) {
    plan.Measured(chunk.count, chunk.count * 2e-3);
    chunk = plan.Next(0, false);
  }
  EXPECT_LE(chunk.count, 6);
}

TEST(ChunkPlanTest, AShortEpochEndDoesNotShrinkTheNextChunk) {
  ChunkPlan plan(1, 0, 1 << 20, 101);
  Chunk chunk = plan.Next(0, false);
  for (int i = 0; i < 40; ++i) {
    plan.Measured(chunk.count, chunk.count * 2e-4);
    const Chunk before = chunk;
    chunk = plan.Next(0, false);
    if (before.ends_epoch && before.first_step > 202) {
      EXPECT_GE(chunk.count, 49);
    }
  }
}

TEST(ChunkPlanTest, AHaltIsTheSameForAllRanks) {
  ChunkPlan plan(2, 0, 1000, 100);
  EXPECT_EQ(plan.Next(0, false).count, 1);
  EXPECT_EQ(plan.Next(0, true).count, 0);
  EXPECT_EQ(plan.Next(0, false).count, 0);
  // Rank 1 saw no halt, and rank 0 alone decided the second chunk.
  EXPECT_EQ(plan.Next(1, true).count, 1);
  EXPECT_EQ(plan.Next(1, false).count, 0);
}

TEST(ChunkPlanTest, NothingIsLeftAfterTheLastStep) {
  ChunkPlan plan(1, 50, 50, 10);
  EXPECT_EQ(plan.Next(0, false).count, 0);
}

TEST(ChunkPlanTest, RanksAtTheirOwnPaceGetTheSameChunks) {
  constexpr int kRanks = 4;
  constexpr int64_t kTotal = 5000;
  ChunkPlan plan(kRanks, 0, kTotal, 500);
  std::vector<std::vector<std::pair<int64_t, int>>> taken(kRanks);
  std::vector<std::thread> threads;
  threads.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (Chunk chunk = plan.Next(rank, false); chunk.count > 0; chunk = plan.Next(rank, false)) {
        taken[static_cast<size_t>(rank)].emplace_back(chunk.first_step, chunk.count);
        plan.Measured(chunk.count, chunk.count * 1e-4 * (rank + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(taken[static_cast<size_t>(rank)], taken[0]);
  EXPECT_EQ(taken[0].back().first + taken[0].back().second, kTotal);
}

}  // namespace
}  // namespace lenet
