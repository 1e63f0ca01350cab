// The fused engine against the layered one.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/cuda_engine_fixture.h"
#include "tests/support/relative_error.h"
#include "trainer/optim/optimizer.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class FusedEngineTest : public CudaEngineTest {
 protected:
  void SetUp() override {
    CudaEngineTest::SetUp();
    if (backend_ == nullptr) return;
    const absl::Status served = backend_->CheckEngine(EngineKind::kFused, *net_, Precision::kFp32);
    if (!served.ok()) GTEST_SKIP() << served;
  }

  EngineOptions With(EngineKind engine, int batch = kBatch) const {
    EngineOptions options = Options();
    options.engine = engine;
    options.batch_size = batch;
    return options;
  }

  // Among many windows, rounding moves the maximum of some, and their gradient with it.
  void ExpectSameGradient(int batch, double tolerance = 1e-5) {
    const double difference = RelativeError(GradientOf(backend_, With(EngineKind::kFused, batch)),
                                            GradientOf(backend_, With(EngineKind::kLayered, batch)));
    EXPECT_LT(difference, tolerance) << "batch " << batch;
  }
};

TEST_F(FusedEngineTest, IsTakenWhereItServes) {
  std::unique_ptr<RankGroup> group = NewGroup(backend_);
  EXPECT_EQ(NewEngine(group.get(), With(EngineKind::kAuto))->name(), "cuda-fused");
  EXPECT_EQ(NewEngine(group.get(), With(EngineKind::kFused))->name(), "cuda-fused");
  EXPECT_THAT(std::string(NewEngine(group.get(), With(EngineKind::kLayered))->name()), StartsWith("cuda-graph"));
}

// Below, at and above the multiprocessors' number and its multiples, at which other kernels take over.
TEST_F(FusedEngineTest, GradientAgreesAtEveryBatch) {
  dataset_ = SyntheticDataset(/*train_count=*/1100, /*test_count=*/10);
  for (const int batch : {1, 2, 7, 64, 100, 131, 132, 133, 256, 257, 264, 265, 777, 1000}) ExpectSameGradient(batch);
}

TEST_F(FusedEngineTest, GradientAgreesAtLargeBatches) {
  dataset_ = NoiseDataset({1, 28, 28}, 10, 60003, 10);
  for (const int batch : {4096, 60000}) ExpectSameGradient(batch, 5e-4);
}

TEST_F(FusedEngineTest, GradientAgreesAtEveryNumberOfClasses) {
  for (const int classes : {2, 10, 26, 47, 62, 64}) {
    SCOPED_TRACE(classes);
    UsePreset("lenet", {1, 28, 28}, classes);
    dataset_ = NoiseDataset({1, 28, 28}, classes, 400, 10);
    for (const int batch : {5, 300}) ExpectSameGradient(batch);
  }
}

// In the kernels of small and in those of large batches: each step's update must reach all of the next one's.
TEST_F(FusedEngineTest, AHundredStepsAgree) {
  // Rates at which 100 steps do not blow rounding up.
  const OptimizerSpec sgd = {.momentum = 0.9, .nesterov = true};
  const OptimizerSpec adamw = {.kind = OptimizerKind::kAdamW, .momentum = 0};
  for (const int batch : {64, 300}) {
    for (const auto& [optimizer, rate] : {std::pair{sgd, 0.005f}, {adamw, 0.0005f}}) {
      for (const float clip_norm : {0.0f, 0.5f}) {
        SCOPED_TRACE(absl::StrCat("batch ", batch, ", rate ", rate, ", clipped at ", clip_norm));
        std::vector<std::vector<float>> losses;
        std::vector<std::vector<float>> parameters;
        for (const EngineKind kind : {EngineKind::kFused, EngineKind::kLayered}) {
          EngineOptions options = With(kind, batch);
          options.optimizer = optimizer;
          options.clip_norm = clip_norm;
          std::unique_ptr<RankGroup> group = NewGroup(backend_);
          std::unique_ptr<Engine> engine = NewEngine(group.get(), options);
          ASSERT_TRUE(engine->WarmUp().ok());
          losses.push_back(RunSteps(engine.get(), /*chunks=*/4, /*steps=*/25, rate, batch));
          ASSERT_TRUE(engine->ReadParameters(parameters.emplace_back(net_->flat_size())).ok());
        }
        EXPECT_LT(losses[0].back(), losses[0].front());
        EXPECT_LT(RelativeError(losses[0], losses[1]), 1e-4);
        EXPECT_LT(RelativeError(parameters[0], parameters[1]), 1e-3);
      }
    }
  }
}

TEST_F(FusedEngineTest, WhatOneEngineSavesGoesOnInTheOther) {
  std::vector<std::vector<float>> ends;
  for (const auto& [first, second] : {std::pair{EngineKind::kLayered, EngineKind::kLayered},
                                      {EngineKind::kFused, EngineKind::kLayered},
                                      {EngineKind::kLayered, EngineKind::kFused}}) {
    std::vector<float> parameters = parameters_;
    std::vector<float> state(net_->flat_size() * StateSlots(Options().optimizer));
    for (const EngineKind kind : {first, second}) {
      std::unique_ptr<RankGroup> group = NewGroup(backend_);
      std::unique_ptr<Engine> engine = NewEngine(group.get(), With(kind));
      ASSERT_TRUE(engine->WriteParameters(parameters).ok());
      ASSERT_TRUE(engine->WriteState(state).ok());
      ASSERT_TRUE(engine->WarmUp().ok());
      RunSteps(engine.get(), /*chunks=*/2, /*steps=*/20, 0.005f);
      ASSERT_TRUE(engine->ReadParameters(parameters).ok());
      ASSERT_TRUE(engine->ReadState(state).ok());
    }
    ends.push_back(parameters);
  }
  EXPECT_LT(RelativeError(ends[1], ends[0]), 1e-3);
  EXPECT_LT(RelativeError(ends[2], ends[0]), 1e-3);
}

TEST_F(FusedEngineTest, EvaluationAgrees) {
  std::unique_ptr<RankGroup> group = NewGroup(backend_);
  std::vector<EvalResult> results;
  for (const EngineKind kind : {EngineKind::kFused, EngineKind::kLayered}) {
    std::unique_ptr<Engine> engine = NewEngine(group.get(), With(kind));
    for (const auto& [begin, end] : {std::pair{0, 1500}, {0, 1}, {3, 10}, {700, 1499}, {5, 5}}) {
      absl::StatusOr<EvalResult> result = engine->Evaluate(SplitKind::kTest, begin, end);
      ASSERT_TRUE(result.ok()) << result.status();
      results.push_back(*result);
    }
  }
  for (size_t i = 0; i < results.size() / 2; ++i) {
    const EvalResult& fused = results[i];
    const EvalResult& layered = results[results.size() / 2 + i];
    EXPECT_EQ(fused.count, layered.count);
    EXPECT_NEAR(static_cast<double>(fused.correct), static_cast<double>(layered.correct), 1);  // a tie may fall
    EXPECT_NEAR(fused.loss_sum, layered.loss_sum, 1e-5 * layered.loss_sum);
  }
}

// More images than one launch takes.
TEST_F(FusedEngineTest, EvaluationOfALargeSplitAgrees) {
  dataset_ = NoiseDataset({1, 28, 28}, 10, 40000, 10);
  std::unique_ptr<RankGroup> group = NewGroup(backend_);
  const absl::StatusOr<EvalResult> fused =
      NewEngine(group.get(), With(EngineKind::kFused))->Evaluate(SplitKind::kTrain, 1, 40000);
  const absl::StatusOr<EvalResult> layered =
      NewEngine(group.get(), With(EngineKind::kLayered))->Evaluate(SplitKind::kTrain, 1, 40000);
  ASSERT_TRUE(fused.ok() && layered.ok()) << fused.status() << layered.status();
  EXPECT_EQ(fused->count, 39999);
  EXPECT_EQ(layered->count, 39999);
  EXPECT_NEAR(static_cast<double>(fused->correct), static_cast<double>(layered->correct), 4);  // ties may fall
  EXPECT_NEAR(fused->loss_sum, layered->loss_sum, 1e-5 * layered->loss_sum);
}

TEST_F(FusedEngineTest, ANanReachesTheLoss) {
  parameters_[0] = std::numeric_limits<float>::quiet_NaN();
  for (const int batch : {64, 300}) {
    std::unique_ptr<RankGroup> group = NewGroup(backend_);
    std::unique_ptr<Engine> engine = NewEngine(group.get(), With(EngineKind::kFused, batch));
    ASSERT_TRUE(engine->WarmUp().ok());
    for (const float loss : RunSteps(engine.get(), 1, 3, 0.02f, batch)) EXPECT_TRUE(std::isnan(loss)) << batch;
  }
}

TEST_F(FusedEngineTest, OtherJobsAreLayered) {
  struct Case {
    std::string preset;
    ImageShape input;
    int classes;
    Precision precision;
    std::string why;
  };
  std::unique_ptr<RankGroup> group = NewGroup(backend_);
  for (const Case& other : {Case{"lenet", {1, 32, 32}, 10, Precision::kFp32, "1x32x32"},
                            Case{"lenet", {3, 28, 28}, 10, Precision::kFp32, "3x28x28"},
                            Case{"lenet", {1, 28, 28}, 65, Precision::kFp32, "65 classes"},
                            Case{"lenet", {1, 28, 28}, 10, Precision::kTf32, "precision"},
                            Case{"lenet-caffe", {1, 28, 28}, 10, Precision::kFp32, "preset"}}) {
    SCOPED_TRACE(other.why);
    UsePreset(other.preset, other.input, other.classes);
    EngineOptions options = With(EngineKind::kAuto, 7);
    options.dataset = NoiseDataset(other.input, other.classes, 200, 10);
    options.precision = other.precision;
    EXPECT_THAT(std::string(NewEngine(group.get(), options)->name()), StartsWith("cuda-graph"));
    options.engine = EngineKind::kFused;
    const absl::Status refused = group->NewEngine(0, options).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), ::testing::AllOf(HasSubstr("engine = fused"), HasSubstr(other.why)));
    EXPECT_EQ(backend_->CheckEngine(EngineKind::kFused, *net_, other.precision), refused);
  }
}

}  // namespace
}  // namespace lenet
