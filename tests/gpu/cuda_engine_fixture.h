// Engines of the CUDA backend on one GPU.
#ifndef LENET_TESTS_GPU_CUDA_ENGINE_FIXTURE_H_
#define LENET_TESTS_GPU_CUDA_ENGINE_FIXTURE_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/cuda_driver.h"
#include "tests/support/backend_under_test.h"
#include "tests/support/rank_run.h"
#include "tests/support/synthetic_data.h"
#include "trainer/backend/plugin.h"
#include "trainer/nn/init.h"
#include "trainer/nn/net.h"

namespace lenet {

class CudaEngineTest : public ::testing::Test {
 protected:
  static constexpr int kBatch = 64;

  void SetUp() override {
    LENET_USE_BACKEND(backend_, "cuda");
    dataset_ = SyntheticDataset(/*train_count=*/1000, /*test_count=*/1500);
    UsePreset("lenet");
  }

  void UsePreset(const std::string& preset, const ImageShape& input = {1, 28, 28}, int classes = 10) {
    absl::StatusOr<NetSpec> spec = PresetNet(preset, input, classes);
    ASSERT_TRUE(spec.ok()) << spec.status();
    absl::StatusOr<Net> net = Net::Create(*std::move(spec));
    ASSERT_TRUE(net.ok()) << net.status();
    net_ = std::make_unique<Net>(*std::move(net));
    parameters_.resize(net_->flat_size());
    Initialize(*net_, {}, /*seed=*/4, parameters_);
  }

  EngineOptions Options() const {
    return {.net = net_.get(), .dataset = dataset_, .batch_size = kBatch, .optimizer = {.momentum = 0.9}};
  }

  // A backend beside backend_, with a tuning of its own.
  static absl::StatusOr<std::unique_ptr<Backend>> LoadTuned(const char* tuning) {
    setenv("LENET_CUDA_TUNING", tuning, 1);
    absl::StatusOr<std::unique_ptr<Backend>> backend = LoadBackend(PluginFolder(""), "cuda");
    unsetenv("LENET_CUDA_TUNING");
    return backend;
  }

  std::unique_ptr<RankGroup> NewGroup(Backend* backend) {
    absl::StatusOr<std::unique_ptr<RankGroup>> group = NewGroupOf(backend, 1);
    EXPECT_TRUE(group.ok()) << group.status();
    return group.ok() ? *std::move(group) : nullptr;
  }

  std::unique_ptr<Engine> NewEngine(RankGroup* group, const EngineOptions& options) {
    absl::StatusOr<std::unique_ptr<Engine>> engine = group->NewEngine(0, options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    if (!engine.ok()) return nullptr;
    EXPECT_TRUE((*engine)->WriteParameters(parameters_).ok());
    return *std::move(engine);
  }

  // Two chunks in flight at a time, as the trainer does; gives the losses.
  std::vector<float> RunSteps(Engine* engine, int chunks, int steps, float rate = 0.02f, int batch = kBatch) {
    std::vector<uint32_t> indices(static_cast<size_t>(steps) * batch);
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<uint32_t>(i * 7 % 1000);
    const std::vector<float> rates(steps, rate);
    std::vector<float> losses(static_cast<size_t>(chunks) * steps);
    for (int i = 0; i <= chunks; ++i) {
      if (i < chunks) {
        const absl::Status status =
            engine->Enqueue({.first_step = int64_t{i} * steps, .indices = indices, .learning_rates = rates});
        EXPECT_TRUE(status.ok()) << status;
      }
      if (i > 0) {
        const absl::Status status = engine->Wait(std::span(losses).subspan((i - 1) * steps, steps));
        EXPECT_TRUE(status.ok()) << status;
      }
    }
    return losses;
  }

  std::vector<float> GradientOf(Backend* backend, const EngineOptions& options) {
    std::unique_ptr<RankGroup> group = NewGroup(backend);
    std::unique_ptr<Engine> engine = NewEngine(group.get(), options);
    std::vector<uint32_t> indices(options.batch_size);
    std::iota(indices.begin(), indices.end(), 3u);
    std::vector<float> gradient(net_->flat_size());
    const absl::Status status = engine->Gradient(indices, {}, {}, gradient);
    EXPECT_TRUE(status.ok()) << status;
    return gradient;
  }

  static int64_t FreeMemory() {
    absl::StatusOr<int64_t> free = FreeDeviceMemory(0);
    EXPECT_TRUE(free.ok()) << free.status();
    return free.value_or(-1);
  }

  Backend* backend_ = nullptr;
  std::shared_ptr<const Dataset> dataset_;
  std::unique_ptr<Net> net_;
  std::vector<float> parameters_;
};

}  // namespace lenet

#endif  // LENET_TESTS_GPU_CUDA_ENGINE_FIXTURE_H_
