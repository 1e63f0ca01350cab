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

std::vector<int64_t> SavedSteps(ChunkPlan* plan, int64_t epoch) {
  std::vector<int64_t> saved;
  for (Chunk chunk = plan->Next(0, false); chunk.count > 0; chunk = plan->Next(0, false)) {
    const int64_t end = chunk.first_step + chunk.count;
    EXPECT_EQ(chunk.first_step / epoch, (end - 1) / epoch);
    if (chunk.saves) saved.push_back(end);
    plan->Measured(chunk.count, chunk.count * 1e-5);
  }
  return saved;
}

TEST(ChunkPlanTest, SavesAfterTheStepsAskedForButTheLast) {
  struct Case {
    CheckpointPolicy policy;
    int64_t first;
    std::vector<int64_t> saved;
  };
  const Case cases[] = {
      {{}, 0, {}},
      {{.every_epochs = 1}, 0, {100, 200}},
      {{.every_epochs = 2}, 0, {200}},
      {{.every_steps = 70}, 0, {70, 140, 210, 280}},
      {{.every_steps = 70}, 70, {140, 210, 280}},
      {{.every_steps = 300}, 0, {}},
      {{.every_epochs = 1, .every_steps = 50}, 120, {150, 200, 250}},
      {{.every_epochs = 1, .every_steps = 150}, 0, {100, 150, 200}},
  };
  for (const Case& c : cases) {
    ChunkPlan plan(1, c.first, 300, 100, {.saves = c.policy});
    EXPECT_EQ(SavedSteps(&plan, 100), c.saved) << c.policy.every_epochs << " " << c.policy.every_steps;
  }
}

TEST(ChunkPlanTest, EpochsCutShortByTheLastStepAreNoEpochs) {
  ChunkPlan plan(1, 0, 250, 100, {.saves = {.every_epochs = 1}});
  EXPECT_EQ(SavedSteps(&plan, 100), (std::vector<int64_t>{100, 200}));
}

TEST(ChunkPlanTest, SavesWhenTheSecondsHavePassedSinceTheLastSave) {
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
  ChunkPlan plan(1, 0, 1 << 20, 1 << 20, {.saves = {.every_seconds = 0.02}});
  EXPECT_FALSE(plan.Next(0, false).saves);
  pause();
  EXPECT_TRUE(plan.Next(0, false).saves);
  pause();
  EXPECT_FALSE(plan.Next(0, false).saves) << "one is under way";
  plan.Saved();
  EXPECT_FALSE(plan.Next(0, false).saves);
  pause();
  EXPECT_TRUE(plan.Next(0, false).saves);
}

TEST(ChunkPlanTest, EndsWhenTheTimeIsUpOnAllRanksAlike) {
  ChunkPlan plan(2, 0, 1 << 20, 1 << 20, {.max_seconds = 0.02});
  EXPECT_EQ(plan.Next(0, false).count, 1);
  EXPECT_GE(plan.Next(0, false).count, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(plan.Next(1, false).count, 1);
  EXPECT_GE(plan.Next(1, false).count, 1);
  for (const int rank : {1, 0, 0, 1}) {
    const Chunk chunk = plan.Next(rank, false);
    EXPECT_EQ(chunk.count, 0);
    EXPECT_TRUE(chunk.out_of_time);
  }

  ChunkPlan none(1, 5, 10, 10, {.max_seconds = -1});
  EXPECT_EQ(none.Next(0, false).first_step, 5);
  ChunkPlan stopped(1, 5, 10, 10, {.max_seconds = -1});
  EXPECT_FALSE(stopped.Next(0, true).out_of_time);
}

// A fault every 37 steps.
class Every37 : public FaultInjector {
 public:
  absl::Status At(const FaultSite&, const std::function<bool()>&) override { return absl::OkStatus(); }
  int64_t NextStep(int64_t done) const override { return (done / 37 + 1) * 37; }
};

TEST(ChunkPlanTest, BeginsAChunkWithEachFaultsStep) {
  const Every37 faults;
  ChunkPlan plan(1, 0, 1000, 100, {.faults = &faults});
  int begun = 0;
  for (Chunk chunk = plan.Next(0, false); chunk.count > 0; chunk = plan.Next(0, false)) {
    const int64_t first = chunk.first_step + 1;
    begun += first % 37 == 0;
    EXPECT_EQ((first + chunk.count - 1) / 37, first / 37);
    plan.Measured(chunk.count, chunk.count * 1e-6);
  }
  EXPECT_EQ(begun, 27);
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
