// Every kind of layer on the CPU against CUDA: values, gradients, and training steps.

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/backend_under_test.h"
#include "tests/support/layer_nets.h"
#include "tests/support/rank_run.h"
#include "tests/support/relative_error.h"
#include "tests/support/synthetic_data.h"
#include "trainer/base/status.h"
#include "trainer/nn/init.h"
#include "trainer/nn/net.h"

namespace lenet {
namespace {

constexpr int kBatch = 33;

struct Outcome {
  std::vector<float> logits, losses, gradient;
  RankRunResult steps;
};

absl::StatusOr<Outcome> RunOn(Backend* backend, const Net& net, std::shared_ptr<const Dataset> dataset) {
  std::vector<float> parameters(net.flat_size());
  Initialize(net, {}, /*seed=*/6, parameters);
  std::vector<uint32_t> indices(kBatch);
  std::iota(indices.begin(), indices.end(), 3u);
  Outcome outcome;
  outcome.logits.resize(kBatch * net.spec().classes);
  outcome.losses.resize(kBatch);
  outcome.gradient.resize(net.flat_size());
  LENET_ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> group, NewGroupOf(backend, 1));
  {
    LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                           group->NewEngine(0, {.net = &net, .dataset = dataset, .batch_size = kBatch}));
    LENET_RETURN_IF_ERROR(engine->WriteParameters(parameters));
    LENET_RETURN_IF_ERROR(engine->Gradient(indices, outcome.logits, outcome.losses, outcome.gradient));
  }
  LENET_ASSIGN_OR_RETURN(outcome.steps, RunOnRanks(backend, {.net = &net,
                                                             .dataset = dataset,
                                                             .batch_size = kBatch,
                                                             .optimizer = {.momentum = 0.9, .nesterov = true},
                                                             .parameters = parameters,
                                                             .learning_rates = std::vector<float>(5, 0.02f),
                                                             .chunk = 2,
                                                             .images = [&](int64_t) { return indices; }}));
  return outcome;
}

class CpuCudaTest : public ::testing::TestWithParam<NetSpec> {};

TEST_P(CpuCudaTest, GiveTheSameToFloatPrecision) {
  const absl::StatusOr<Backend*> cpu = BackendUnderTest("cpu");
  if (!cpu.ok()) GTEST_SKIP() << cpu.status();
  Backend* cuda = nullptr;
  LENET_USE_BACKEND(cuda, "cuda");
  const absl::StatusOr<Net> net = Net::Create(GetParam());
  ASSERT_TRUE(net.ok()) << net.status();
  const auto dataset = NoiseDataset(net->spec().input, net->spec().classes, kBatch + 5, 1);
  const absl::StatusOr<Outcome> on_cpu = RunOn(*cpu, *net, dataset);
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
  const absl::StatusOr<Outcome> on_cuda = RunOn(cuda, *net, dataset);
  ASSERT_TRUE(on_cuda.ok()) << on_cuda.status();
  EXPECT_LE(RelativeError(on_cpu->logits, on_cuda->logits, 0.1), 1e-5);
  EXPECT_LE(RelativeError(on_cpu->losses, on_cuda->losses, 0.1), 1e-5);
  for (const Parameter& parameter : net->parameters()) {
    const auto part = [&](const std::vector<float>& flat) {
      return std::vector<float>(flat.begin() + parameter.offset, flat.begin() + parameter.offset + parameter.size);
    };
    EXPECT_LE(RelativeError(part(on_cpu->gradient), part(on_cuda->gradient), 0.01), 1e-5) << parameter.name;
    EXPECT_LE(RelativeError(part(on_cpu->steps.parameters[0]), part(on_cuda->steps.parameters[0]), 0.01), 1e-4)
        << parameter.name;
  }
  EXPECT_LE(RelativeError(on_cpu->steps.losses[0], on_cuda->steps.losses[0], 0.1), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Nets, CpuCudaTest, ::testing::ValuesIn(LayerNets()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lenet
