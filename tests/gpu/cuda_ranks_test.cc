// Ranks on two GPUs: aborts, groups beside each other, and many jobs in a row.

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/cuda_driver.h"
#include "tests/gpu/cuda_engine_fixture.h"
#include "tests/support/rank_threads.h"
#include "tests/support/relative_error.h"
#include "trainer/backend/plugin.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;

constexpr int kChunk = 100;

class CudaRanksTest : public CudaEngineTest, public ::testing::WithParamInterface<EngineKind> {
 protected:
  void SetUp() override {
    CudaEngineTest::SetUp();
    if (backend_ == nullptr) return;
    if (backend_->devices().size() < 2) GTEST_SKIP() << "needs 2 GPUs, there is " << backend_->devices().size();
    const absl::Status served = backend_->CheckEngine(GetParam(), *net_, Precision::kFp32);
    if (!served.ok()) GTEST_SKIP() << served;
  }

  absl::StatusOr<std::unique_ptr<Engine>> WarmEngine(RankGroup* group, int rank) {
    LENET_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, group->NewEngine(rank, {.net = net_.get(),
                                                                                   .dataset = dataset_,
                                                                                   .batch_size = kBatch,
                                                                                   .optimizer = optimizer_,
                                                                                   .clip_norm = clip_norm_,
                                                                                   .engine = GetParam()}));
    LENET_RETURN_IF_ERROR(engine->WriteParameters(parameters_));
    LENET_RETURN_IF_ERROR(engine->Broadcast());
    LENET_RETURN_IF_ERROR(engine->WarmUp());
    return engine;
  }

  // Chunks of kChunk steps, two in flight, then the parameters.
  absl::Status RunChunks(Engine* engine, int rank, int chunks, std::vector<float>* parameters) {
    std::vector<uint32_t> indices(kChunk * kBatch);
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<uint32_t>((i * 7 + rank * 500) % 1000);
    const std::vector<float> rates(kChunk, rate_);
    std::vector<float> losses(kChunk);
    for (int i = 0; i <= chunks; ++i) {
      if (i < chunks) {
        LENET_RETURN_IF_ERROR(
            engine->Enqueue({.first_step = int64_t{i} * kChunk, .indices = indices, .learning_rates = rates}));
      }
      if (i > 0) LENET_RETURN_IF_ERROR(engine->Wait(losses));
    }
    parameters->resize(parameters_.size());
    return engine->ReadParameters(*parameters);
  }

  absl::Status Train(RankGroup* group, int chunks, std::vector<std::vector<float>>* parameters) {
    parameters->resize(group->size());
    return RunRanks(group->size(), [&](int rank) -> absl::Status {
      LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, WarmEngine(group, rank));
      return RunChunks(engine.get(), rank, chunks, &(*parameters)[rank]);
    });
  }

  std::unique_ptr<RankGroup> NewGroup(const std::vector<int>& devices) { return NewGroup(backend_, devices); }

  static std::unique_ptr<RankGroup> NewGroup(Backend* backend, const std::vector<int>& devices) {
    absl::StatusOr<std::unique_ptr<RankGroup>> group = backend->NewGroup(devices);
    EXPECT_TRUE(group.ok()) << group.status();
    return group.ok() ? *std::move(group) : nullptr;
  }

  OptimizerSpec optimizer_ = {.momentum = 0.9, .nesterov = true};
  float clip_norm_ = 0;
  float rate_ = 0.02f;
};

// Two values have one sum in any order; of more, every path has its own, which all ranks must share.
TEST_P(CudaRanksTest, SumsInsideKernelsAreThoseOfNccl) {
  absl::StatusOr<std::unique_ptr<Backend>> nccl = LoadTuned("sums=nccl");
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  std::vector<int> devices(backend_->devices().size());
  std::iota(devices.begin(), devices.end(), 0);
  // Rates at which 100 steps do not blow rounding up.
  const std::pair<OptimizerSpec, float> optimizers[] = {{{.momentum = 0}, 0.02f},
                                                        {{.momentum = 0.9, .nesterov = true}, 0.005f},
                                                        {{.kind = OptimizerKind::kAdamW, .momentum = 0}, 0.0005f}};
  for (const auto& [optimizer, rate] : optimizers) {
    for (const float clip_norm : {0.0f, 0.5f}) {
      SCOPED_TRACE(absl::StrCat("optimiser ", static_cast<int>(optimizer.kind), ", momentum ", optimizer.momentum,
                                ", clipping at ", clip_norm));
      optimizer_ = optimizer;
      rate_ = rate;
      clip_norm_ = clip_norm;
      for (int ranks = 2; ranks <= static_cast<int>(devices.size()); ++ranks) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
        const std::vector<int> some(devices.begin(), devices.begin() + ranks);
        std::vector<std::vector<float>> wanted;
        std::vector<std::vector<float>> sums;
        std::vector<std::vector<float>> again;
        absl::Status status = Train(NewGroup(nccl->get(), some).get(), 1, &wanted);
        ASSERT_TRUE(status.ok()) << status;
        status = Train(NewGroup(some).get(), 1, &sums);
        ASSERT_TRUE(status.ok()) << status;
        status = Train(NewGroup(some).get(), 1, &again);
        ASSERT_TRUE(status.ok()) << status;
        for (int rank = 1; rank < ranks; ++rank) EXPECT_EQ(sums[rank], sums[0]) << "rank " << rank;
        EXPECT_EQ(again[0], sums[0]);
        if (ranks == 2) {
          EXPECT_EQ(sums[0], wanted[0]);
        } else {
          EXPECT_LT(RelativeError(sums[0], wanted[0]), 1e-3);
        }
      }
    }
  }
}

TEST_P(CudaRanksTest, TheEnginesNameTellsHowSumsAreMade) {
  absl::StatusOr<std::unique_ptr<Backend>> nccl = LoadTuned("sums=nccl");
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  absl::StatusOr<std::unique_ptr<Backend>> peers = LoadTuned("sums=peers");
  ASSERT_TRUE(peers.ok()) << peers.status();
  const auto name = [this](RankGroup* group) {
    absl::StatusOr<std::unique_ptr<Engine>> engine =
        group->NewEngine(0, {.net = net_.get(), .dataset = dataset_, .batch_size = kBatch, .engine = GetParam()});
    return engine.ok() ? std::string((*engine)->name()) : engine.status().ToString();
  };
  const std::string by_nccl = name(NewGroup(nccl->get(), {0, 1}).get());
  const std::string by_peers = name(NewGroup(peers->get(), {0, 1}).get());
  EXPECT_THAT(by_nccl, HasSubstr(" sums=nccl"));
  EXPECT_EQ(by_nccl, by_peers + " sums=nccl");
}

TEST_P(CudaRanksTest, TwentyJobsInARowGiveTheSameBitsInFlatMemory) {
  std::unique_ptr<RankGroup> group = NewGroup({0, 1});
  std::vector<std::vector<float>> first;
  int64_t free[2] = {};
  for (int job = 0; job < 20; ++job) {
    std::vector<std::vector<float>> parameters;
    const absl::Status status = Train(group.get(), 2, &parameters);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(parameters[0], parameters[1]) << "job " << job;
    if (job == 0) first = parameters;
    ASSERT_EQ(parameters[0], first[0]) << "job " << job;
    for (int device = 0; device < 2; ++device) {
      const absl::StatusOr<int64_t> now = FreeDeviceMemory(device);
      ASSERT_TRUE(now.ok()) << now.status();
      if (job == 2) free[device] = *now;
      if (job > 2) {
        EXPECT_GE(*now, free[device]) << "job " << job << ", device " << device;
      }
    }
  }
}

// The second rank's device is not rank 1's: ranks are not devices.
TEST_P(CudaRanksTest, AnyOrderOfDevicesGivesTheSameBits) {
  std::vector<std::vector<float>> forward;
  std::vector<std::vector<float>> backward;
  ASSERT_TRUE(Train(NewGroup({0, 1}).get(), 1, &forward).ok());
  ASSERT_TRUE(Train(NewGroup({1, 0}).get(), 1, &backward).ok());
  EXPECT_EQ(forward[0], backward[0]);
}

TEST_P(CudaRanksTest, GroupsOnDifferentDevicesTrainBesideEachOther) {
  std::vector<std::vector<float>> alone;
  ASSERT_TRUE(Train(NewGroup({0}).get(), 3, &alone).ok());
  std::vector<std::vector<float>> together[2];
  const absl::Status status =
      RunRanks(2, [&](int device) { return Train(NewGroup({device}).get(), 3, &together[device]); });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(together[0][0], alone[0]);
  EXPECT_EQ(together[1][0], alone[0]);
}

TEST_P(CudaRanksTest, AnAbortAtAnyMomentEndsEveryRankAndTheNextGroupTrains) {
  std::vector<std::vector<float>> wanted;
  ASSERT_TRUE(Train(NewGroup({0, 1}).get(), 2, &wanted).ok());
  std::mt19937 random(1);
  for (int i = 0; i < 8; ++i) {
    std::unique_ptr<RankGroup> group = NewGroup({0, 1});
    const auto delay = std::chrono::microseconds(std::uniform_int_distribution<int>(0, 400000)(random));
    std::thread aborter([&] {
      std::this_thread::sleep_for(delay);
      group->Abort("enough");
    });
    std::atomic<int> aborted{0};
    const absl::Status status = RunRanks(2, [&](int rank) {
      std::vector<std::vector<float>> unused(2);
      const auto run = [&]() -> absl::Status {
        LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, WarmEngine(group.get(), rank));
        return RunChunks(engine.get(), rank, /*chunks=*/1000, &unused[rank]);
      };
      absl::Status ended = run();
      aborted += ended.code() == absl::StatusCode::kAborted;
      return ended;
    });
    aborter.join();
    EXPECT_EQ(aborted.load(), 2) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("enough"));
    EXPECT_EQ(group->NewEngine(0, {}).status().code(), absl::StatusCode::kAborted);
  }
  std::vector<std::vector<float>> after;
  ASSERT_TRUE(Train(NewGroup({0, 1}).get(), 2, &after).ok());
  EXPECT_EQ(after, wanted);
}

// Rank 1 has no engine: rank 0 waits for it in its first collective, and in its warm-up.
TEST_P(CudaRanksTest, AnAbortFreesARankThatWaitsForOneThatNeverCame) {
  std::unique_ptr<RankGroup> group = NewGroup({0, 1});
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    group->Abort("rank 1 never came");
  });
  std::thread rank([&] {
    const absl::Status status = WarmEngine(group.get(), 0).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 never came"));
  });
  rank.join();
  aborter.join();
}

// One rank stops stepping in the middle, with much queued on the other.
TEST_P(CudaRanksTest, AnAbortFreesARankWithAFullQueue) {
  std::unique_ptr<RankGroup> group = NewGroup({0, 1});
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = RunRanks(2, [&](int rank) -> absl::Status {
    LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, WarmEngine(group.get(), rank));
    std::vector<float> parameters;
    if (rank == 0) return RunChunks(engine.get(), rank, 50, &parameters);
    LENET_RETURN_IF_ERROR(RunChunks(engine.get(), rank, 2, &parameters));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    group->Abort("rank 1 stopped");
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

INSTANTIATE_TEST_SUITE_P(Engines, CudaRanksTest, ::testing::Values(EngineKind::kLayered, EngineKind::kFused),
                         [](const auto& info) { return info.param == EngineKind::kFused ? "fused" : "layered"; });

}  // namespace
}  // namespace lenet
