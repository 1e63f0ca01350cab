// What must not depend on the number of ranks, on the run, or on how steps are handed over.

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/backend_under_test.h"
#include "tests/support/rank_run.h"
#include "tests/support/rank_threads.h"
#include "tests/support/relative_error.h"
#include "tests/support/synthetic_data.h"
#include "trainer/base/status.h"
#include "trainer/nn/init.h"
#include "trainer/nn/net.h"

namespace lenet {
namespace {

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class ParallelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LENET_USE_BACKEND(backend_, LENET_TEST_BACKEND);
    dataset_ = SyntheticDataset(/*train_count=*/500, /*test_count=*/1000);
    absl::StatusOr<NetSpec> spec = PresetNet("lenet", dataset_->train.shape, dataset_->classes);
    ASSERT_TRUE(spec.ok()) << spec.status();
    absl::StatusOr<Net> net = Net::Create(*std::move(spec));
    ASSERT_TRUE(net.ok()) << net.status();
    net_ = std::make_unique<Net>(*std::move(net));
  }

  bool Fits(int ranks) const {
    return backend_->oversubscribable() || ranks <= static_cast<int>(backend_->devices().size());
  }

  // Trains a global batch of 32 for `steps` steps, on the same images for any number of ranks.
  RankRunResult Train(int ranks, int steps, OptimizerSpec optimizer, int chunk = 3, float clip_norm = 0) {
    std::vector<float> parameters(net_->flat_size());
    Initialize(*net_, {}, /*seed=*/4, parameters);
    absl::StatusOr<RankRunResult> result =
        RunOnRanks(backend_, {.net = net_.get(),
                              .dataset = dataset_,
                              .ranks = ranks,
                              .batch_size = 32 / ranks,
                              .optimizer = optimizer,
                              .clip_norm = clip_norm,
                              .parameters = parameters,
                              .learning_rates = std::vector<float>(steps, 0.05f),
                              .chunk = chunk,
                              .images = [](int64_t step) {
                                std::vector<uint32_t> images;
                                for (uint32_t i = 0; i < 32; ++i) {
                                  images.push_back((static_cast<uint32_t>(step) * 37 + i * 11) % 500);
                                }
                                return images;
                              }});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : RankRunResult();
  }

  Backend* backend_ = nullptr;
  std::shared_ptr<const Dataset> dataset_;
  std::unique_ptr<Net> net_;
};

// Skips where each rank must have a device and there are too few.
class RanksTest : public ParallelTest, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    ParallelTest::SetUp();
    if (backend_ != nullptr && !Fits(GetParam())) {
      GTEST_SKIP() << "needs " << GetParam() << " devices, there are " << backend_->devices().size();
    }
  }
};
constexpr OptimizerSpec kNesterov = {.momentum = 0.9, .nesterov = true};
constexpr OptimizerSpec kAdamW = {.kind = OptimizerKind::kAdamW, .weight_decay = 0.01};

class ManyRanksTest : public RanksTest {};

TEST_P(ManyRanksTest, AgreeWithOneOnTheSameImages) {
  constexpr int kSteps = 8;
  const int ranks = GetParam();
  const RankRunResult one = Train(1, kSteps, kNesterov);
  const RankRunResult many = Train(ranks, kSteps, kNesterov);
  ASSERT_EQ(one.losses.size(), 1u);
  ASSERT_EQ(many.losses.size(), static_cast<size_t>(ranks));
  EXPECT_LE(RelativeError(many.parameters[0], one.parameters[0]), 2e-6);
  EXPECT_LE(RelativeError(many.state[0], one.state[0]), 2e-5);
  for (int step = 0; step < kSteps; ++step) {
    double mean = 0;
    for (int rank = 0; rank < ranks; ++rank) mean += many.losses[rank][step] / ranks;
    EXPECT_NEAR(mean, one.losses[0][step], 1e-5 * one.losses[0][step]) << "step " << step;
  }
  for (int rank = 1; rank < ranks; ++rank) {
    EXPECT_TRUE(SameBits(many.parameters[0], many.parameters[rank])) << "rank " << rank;
    EXPECT_TRUE(SameBits(many.state[0], many.state[rank])) << "rank " << rank;
    EXPECT_FALSE(SameBits(many.losses[0], many.losses[rank])) << "ranks trained on the same images";
  }
}

TEST_P(RanksTest, TwoRunsGiveTheSameBits) {
  const int ranks = GetParam();
  for (const OptimizerSpec& optimizer : {kNesterov, kAdamW}) {
    const RankRunResult first = Train(ranks, 20, optimizer);
    const RankRunResult second = Train(ranks, 20, optimizer);
    ASSERT_EQ(first.losses.size(), static_cast<size_t>(ranks));
    ASSERT_EQ(second.losses.size(), static_cast<size_t>(ranks));
    EXPECT_TRUE(SameBits(first.parameters[0], second.parameters[0]));
    EXPECT_TRUE(SameBits(first.state[0], second.state[0]));
    for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(SameBits(first.losses[rank], second.losses[rank]));
  }
}

TEST_F(ParallelTest, TheSizeOfTheChunksChangesNothing) {
  const RankRunResult single = Train(1, 12, kNesterov, /*chunk=*/1);
  const RankRunResult uneven = Train(1, 12, kNesterov, /*chunk=*/5);
  const RankRunResult whole = Train(1, 12, kNesterov, /*chunk=*/12);
  ASSERT_EQ(whole.losses.size(), 1u);
  EXPECT_TRUE(SameBits(single.parameters[0], uneven.parameters[0]));
  EXPECT_TRUE(SameBits(single.parameters[0], whole.parameters[0]));
  EXPECT_TRUE(SameBits(single.losses[0], uneven.losses[0]));
  EXPECT_TRUE(SameBits(single.losses[0], whole.losses[0]));
}

TEST_F(ParallelTest, TrainingLowersTheLoss) {
  const RankRunResult result = Train(1, 60, kNesterov);
  ASSERT_EQ(result.losses.size(), 1u);
  EXPECT_NEAR(result.losses[0].front(), std::log(10.0), 0.3);
  EXPECT_LT(result.losses[0].back(), 0.5);
}

// With plain SGD a step moves the weights by rate * min(norm, clip_norm).
TEST_P(RanksTest, ClipsTheNormOfTheGlobalGradient) {
  std::vector<float> start(net_->flat_size());
  Initialize(*net_, {}, /*seed=*/4, start);
  const auto moved = [&](const RankRunResult& result) {
    double sum = 0;
    for (size_t i = 0; i < start.size(); ++i) sum += std::pow(double{result.parameters[0][i]} - start[i], 2);
    return std::sqrt(sum);
  };
  const double norm = moved(Train(1, 1, {})) / 0.05;
  ASSERT_GT(norm, 0.01);
  const float clip = static_cast<float>(norm / 3);
  EXPECT_NEAR(moved(Train(GetParam(), 1, {}, 1, clip)), 0.05 * clip, 1e-4 * 0.05 * clip);
  const float loose = static_cast<float>(norm * 2);
  EXPECT_NEAR(moved(Train(GetParam(), 1, {}, 1, loose)), 0.05 * norm, 1e-4 * 0.05 * norm);
}

TEST_P(RanksTest, AllReduceGivesTheSumsToAll) {
  absl::StatusOr<std::unique_ptr<RankGroup>> group = NewGroupOf(backend_, GetParam());
  ASSERT_TRUE(group.ok()) << group.status();
  const size_t count = static_cast<size_t>(net_->flat_size());
  const absl::Status status = RunRanks(GetParam(), [&](int rank) -> absl::Status {
    LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                           (*group)->NewEngine(rank, {.net = net_.get(), .dataset = dataset_, .batch_size = 8}));
    for (const size_t size : {count, size_t{1}, size_t{0}}) {
      std::vector<float> values(size);
      for (size_t i = 0; i < size; ++i) values[i] = static_cast<float>((rank + 1) * static_cast<int>(i % 1000));
      LENET_RETURN_IF_ERROR(engine->AllReduceSum(values));
      const int factor = GetParam() * (GetParam() + 1) / 2;
      for (size_t i = 0; i < size; ++i) {
        EXPECT_EQ(values[i], static_cast<float>(factor * static_cast<int>(i % 1000))) << "rank " << rank;
      }
    }
    std::vector<float> too_many(count + 1);
    EXPECT_EQ(engine->AllReduceSum(too_many).code(), absl::StatusCode::kInvalidArgument);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

class EvaluationTest : public RanksTest {
 protected:
  // Each rank's part of the test set, added up.
  EvalResult Evaluate(int ranks) {
    std::vector<float> parameters(net_->flat_size());
    Initialize(*net_, {}, /*seed=*/4, parameters);
    absl::StatusOr<std::unique_ptr<RankGroup>> group = NewGroupOf(backend_, ranks);
    EXPECT_TRUE(group.ok()) << group.status();
    EvalResult total;
    if (!group.ok()) return total;
    std::vector<EvalResult> parts(ranks);
    const absl::Status status = RunRanks(ranks, [&](int rank) -> absl::Status {
      LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                             (*group)->NewEngine(rank, {.net = net_.get(), .dataset = dataset_, .batch_size = 16}));
      LENET_RETURN_IF_ERROR(engine->WriteParameters(parameters));
      const int64_t count = dataset_->test.count;
      LENET_ASSIGN_OR_RETURN(parts[rank],
                             engine->Evaluate(SplitKind::kTest, count * rank / ranks, count * (rank + 1) / ranks));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    for (const EvalResult& part : parts) {
      total.count += part.count;
      total.correct += part.correct;
      total.loss_sum += part.loss_sum;
    }
    return total;
  }
};

TEST_P(EvaluationTest, CountsEachImageOnce) {
  const EvalResult one = Evaluate(1);
  const EvalResult many = Evaluate(GetParam());
  EXPECT_EQ(one.count, 1000);
  EXPECT_EQ(many.count, 1000);
  EXPECT_EQ(many.correct, one.correct);
  EXPECT_NEAR(many.loss_sum, one.loss_sum, 1e-6 * one.loss_sum);
}

constexpr auto kName = [](const auto& info) { return std::to_string(info.param) + LENET_TEST_BACKEND; };
INSTANTIATE_TEST_SUITE_P(Ranks, RanksTest, ::testing::Values(1, 2), kName);
INSTANTIATE_TEST_SUITE_P(Ranks, ManyRanksTest, ::testing::Values(2, 4), kName);
INSTANTIATE_TEST_SUITE_P(Ranks, EvaluationTest, ::testing::Values(2, 3, 7), kName);

}  // namespace
}  // namespace lenet
