// What is particular to the CUDA backend on one GPU: its memory, its precisions, its two kinds of convolution.

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/cuda_driver.h"
#include "tests/gpu/cuda_engine_fixture.h"
#include "tests/support/backend_under_test.h"
#include "tests/support/rank_run.h"
#include "tests/support/relative_error.h"
#include "tests/support/synthetic_data.h"
#include "trainer/nn/init.h"
#include "trainer/nn/net.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;

TEST_F(CudaEngineTest, NamesItsDevicesAndLibraries) {
  EXPECT_THAT(backend_->devices()[0].kind, HasSubstr("cuda sm_"));
  EXPECT_GT(backend_->devices()[0].memory_bytes, int64_t{1} << 30);
  std::vector<std::string> names;
  for (const auto& [name, version] : backend_->versions()) {
    names.push_back(name);
    EXPECT_THAT(version, ::testing::MatchesRegex("[0-9]+\\.[0-9.]+")) << name;
  }
  EXPECT_THAT(names, ::testing::ElementsAre("cuda driver", "cuda runtime", "cudnn", "cublas", "nccl"));
}

TEST_F(CudaEngineTest, StepsAllocateNoDeviceMemory) {
  std::unique_ptr<RankGroup> group = NewGroup(backend_);
  std::unique_ptr<Engine> engine = NewEngine(group.get(), Options());
  ASSERT_TRUE(engine->WarmUp().ok());
  const int64_t before = FreeMemory();
  const std::vector<float> losses = RunSteps(engine.get(), /*chunks=*/6, /*steps=*/50);
  ASSERT_TRUE(engine->Evaluate(SplitKind::kTest, 0, 1500).ok());
  EXPECT_EQ(FreeMemory(), before);
  EXPECT_LT(losses.back(), 0.5f * losses.front());
}

TEST_F(CudaEngineTest, TwentyEnginesInARowLeaveMemoryFlat) {
  std::unique_ptr<RankGroup> group = NewGroup(backend_);
  int64_t after_second = 0;
  std::vector<float> first;
  for (int i = 0; i < 20; ++i) {
    std::unique_ptr<Engine> engine = NewEngine(group.get(), Options());
    ASSERT_TRUE(engine->WarmUp().ok());
    const std::vector<float> losses = RunSteps(engine.get(), 2, 20);
    if (i == 0) first = losses;
    ASSERT_EQ(losses, first) << "engine " << i;
    engine.reset();
    if (i == 1) after_second = FreeMemory();
  }
  EXPECT_EQ(FreeMemory(), after_second);
}

TEST_F(CudaEngineTest, ADataSetIsUploadedOnceAndGoesWithTheNext) {
  constexpr int64_t kImages = 400000;  // 314 MB
  std::unique_ptr<RankGroup> group = NewGroup(backend_);
  NewEngine(group.get(), Options()).reset();
  const int64_t small = FreeMemory();
  EngineOptions large = Options();
  large.dataset = NoiseDataset({1, 28, 28}, 10, kImages, 1000);
  NewEngine(group.get(), large).reset();
  const int64_t held = FreeMemory();
  EXPECT_GE(small - held, kImages * 700);
  NewEngine(group.get(), large).reset();
  EXPECT_EQ(FreeMemory(), held);
  NewEngine(group.get(), Options()).reset();
  EXPECT_GE(FreeMemory(), small - (int64_t{8} << 20));
}

TEST_F(CudaEngineTest, MoreMemoryThanThereIsIsResourceExhausted) {
  std::unique_ptr<RankGroup> group = NewGroup(backend_);
  absl::StatusOr<NetSpec> spec = PresetNet("lenet", {1, 28, 28}, 10);
  ASSERT_TRUE(spec.ok());
  // Activations of 2 * 24 * 24 * 300,000 floats each, many times over: above a terabyte.
  spec->layers.clear();
  spec->layers.push_back({.kind = LayerKind::kConv2D, .name = "conv", .outputs = 256, .kernel = 3, .padding = 1});
  for (int i = 0; i < 8; ++i) spec->layers.push_back({.kind = LayerKind::kTanh});
  spec->layers.push_back({.kind = LayerKind::kFlatten});
  spec->layers.push_back({.kind = LayerKind::kLinear, .name = "fc", .outputs = 10});
  absl::StatusOr<Net> net = Net::Create(*std::move(spec));
  ASSERT_TRUE(net.ok()) << net.status();
  EngineOptions options = Options();
  options.net = &*net;
  options.dataset = NoiseDataset({1, 28, 28}, 10, 300000, 10);
  options.batch_size = 300000;
  const absl::Status status = group->NewEngine(0, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("on device 0, rank 0"));
  // The group goes on.
  std::unique_ptr<Engine> engine = NewEngine(group.get(), Options());
  ASSERT_NE(engine, nullptr);
  EXPECT_TRUE(engine->WarmUp().ok());
}

TEST_F(CudaEngineTest, Tf32IsUsedWhereAskedForAndNowhereElse) {
  if (!backend_->supports(Precision::kTf32)) GTEST_SKIP() << "the device has no TF32";
  UsePreset("lenet-caffe");
  EngineOptions options = Options();
  const std::vector<float> fp32 = GradientOf(backend_, options);
  options.precision = Precision::kTf32;
  const std::vector<float> tf32 = GradientOf(backend_, options);
  const double difference = RelativeError(tf32, fp32);
  EXPECT_GT(difference, 2e-5);
  // 1.3e-2 on an H200: rounding also moves the maximum of some pooling windows, and their gradient with it.
  EXPECT_LT(difference, 5e-2);
}

TEST_F(CudaEngineTest, DirectConvolutionAgreesWithCudnn) {
  absl::StatusOr<std::unique_ptr<Backend>> cudnn = LoadTuned("convolution=cudnn");
  ASSERT_TRUE(cudnn.ok()) << cudnn.status();
  for (const char* preset : {"lenet", "lenet5-classic", "lenet-caffe"}) {
    UsePreset(preset);
    for (const int batch : {1, 64, 777}) {
      EngineOptions options = Options();
      options.batch_size = batch;
      options.engine = EngineKind::kLayered;
      const double difference = RelativeError(GradientOf(backend_, options), GradientOf(cudnn->get(), options));
      EXPECT_LT(difference, 2e-5) << preset << " at batch " << batch;
    }
  }
}

TEST_F(CudaEngineTest, StreamsAndStepsOfAGraphChangeNoBit) {
  std::vector<float> first;
  for (const char* tuning : {"", "streams=1", "steps=1", "streams=1,steps=32"}) {
    absl::StatusOr<std::unique_ptr<Backend>> backend = LoadTuned(tuning);
    ASSERT_TRUE(backend.ok()) << backend.status();
    std::unique_ptr<RankGroup> group = NewGroup(backend->get());
    EngineOptions options = Options();
    options.engine = EngineKind::kLayered;
    std::unique_ptr<Engine> engine = NewEngine(group.get(), options);
    ASSERT_TRUE(engine->WarmUp().ok());
    const std::vector<float> losses = RunSteps(engine.get(), 3, 37);
    if (first.empty()) first = losses;
    EXPECT_EQ(losses, first) << tuning;
  }
}

TEST_F(CudaEngineTest, ATuningThatMakesNoSenseIsNamed) {
  for (const char* tuning :
       {"engine=fast", "streams=3", "steps=0", "steps=65", "convolution=fft", "sums=ring", "nonsense"}) {
    const absl::Status status = LoadTuned(tuning).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(tuning));
  }
}

}  // namespace
}  // namespace lenet
