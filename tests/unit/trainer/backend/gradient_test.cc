// Values and gradients of every kind of layer against plain loops in double precision.

#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/backend_under_test.h"
#include "tests/support/layer_nets.h"
#include "tests/support/rank_run.h"
#include "tests/support/reference_net.h"
#include "tests/support/synthetic_data.h"
#include "trainer/nn/net.h"

namespace lenet {
namespace {

constexpr double kBound = 1e-5;      // relative 2-norm
constexpr double kLeastNorm = 0.05;  // smaller gradients are compared as if they had it
constexpr int64_t kMaxPlaces = 32;   // of a parameter that are checked

// Places of a parameter, evenly spread.
std::vector<int64_t> Places(const Parameter& parameter) {
  const int64_t count = std::min(parameter.size, kMaxPlaces);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < count; ++i) places.push_back(parameter.offset + i * parameter.size / count);
  return places;
}

class GradientTest : public ::testing::TestWithParam<std::tuple<std::string, NetSpec>> {
 protected:
  void SetUp() override {
    LENET_USE_BACKEND(backend_, std::get<0>(GetParam()));
    absl::StatusOr<Net> net = Net::Create(std::get<1>(GetParam()));
    ASSERT_TRUE(net.ok()) << net.status();
    net_ = std::make_unique<Net>(*std::move(net));
  }

  // Weights large enough that ReLU, tanh and softmax all bend.
  std::vector<float> RandomParameters() const {
    std::mt19937 random(5);
    std::vector<float> flat(net_->flat_size());
    for (const Parameter& parameter : net_->parameters()) {
      std::normal_distribution<float> normal(0, 1.2f / std::sqrt(static_cast<float>(parameter.fan_in)));
      for (int64_t i = 0; i < parameter.size; ++i) flat[parameter.offset + i] = normal(random);
    }
    return flat;
  }

  void Check(int batch) {
    const auto dataset = NoiseDataset(net_->spec().input, net_->spec().classes, batch + 3, 1, /*seed=*/batch);
    absl::StatusOr<std::unique_ptr<RankGroup>> group = NewGroupOf(backend_, 1);
    ASSERT_TRUE(group.ok()) << group.status();
    absl::StatusOr<std::unique_ptr<Engine>> engine =
        (*group)->NewEngine(0, {.net = net_.get(), .dataset = dataset, .batch_size = batch});
    ASSERT_TRUE(engine.ok()) << engine.status();
    const std::vector<float> flat = RandomParameters();
    const std::vector<double> exact(flat.begin(), flat.end());
    ASSERT_TRUE((*engine)->WriteParameters(flat).ok());
    std::vector<uint32_t> indices(batch);
    std::iota(indices.rbegin(), indices.rend(), 2u);

    std::vector<float> logits(batch * net_->spec().classes);
    std::vector<float> losses(batch);
    std::vector<float> gradient(net_->flat_size(), 99.0f);
    const absl::Status status = (*engine)->Gradient(indices, logits, losses, gradient);
    ASSERT_TRUE(status.ok()) << status;

    const ReferenceOutput reference = RunReferenceNet(*net_, exact, dataset->train, indices);
    for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], reference.logits[i], 2e-5) << "logit " << i;
    for (int i = 0; i < batch; ++i) EXPECT_NEAR(losses[i], reference.losses[i], 2e-5) << "loss " << i;

    std::vector<bool> in_gap(gradient.size(), true);
    for (const Parameter& parameter : net_->parameters()) {
      const std::vector<int64_t> places = Places(parameter);
      const std::vector<double> expected = ReferenceGradient(*net_, exact, dataset->train, indices, places);
      double difference = 0;
      double norm = 0;
      size_t kinks = 0;
      for (size_t i = 0; i < places.size(); ++i) {
        if (std::isnan(expected[i])) {
          ++kinks;
          continue;
        }
        difference += std::pow(gradient[places[i]] - expected[i], 2);
        norm += expected[i] * expected[i];
      }
      EXPECT_LE(kinks, places.size() / 4) << parameter.name;
      EXPECT_LE(std::sqrt(difference), kBound * std::max(std::sqrt(norm), kLeastNorm))
          << parameter.name << ", norm " << std::sqrt(norm);
      std::fill_n(in_gap.begin() + parameter.offset, parameter.size, false);
    }
    for (size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_TRUE(!in_gap[i] || gradient[i] == 0.0f) << "gap at " << i;
    }
  }

  Backend* backend_ = nullptr;
  std::unique_ptr<Net> net_;
};

TEST_P(GradientTest, AgreesWithDifferencesInDoublePrecision) {
  Check(/*batch=*/5);
  Check(/*batch=*/17);
}

INSTANTIATE_TEST_SUITE_P(Nets, GradientTest,
                         ::testing::Combine(::testing::Values(LENET_TEST_BACKEND), ::testing::ValuesIn(LayerNets())),
                         [](const auto& info) { return std::get<1>(info.param).name + "_" + std::get<0>(info.param); });

// Batches of one image, of a block and beside it, and of more than the images that a pass of the CPU holds.
class GradientBatchTest : public GradientTest {};

TEST_P(GradientBatchTest, AnyBatchSize) {
  for (const int batch : {1, 2, 15, 16, 33, 64, 65, 150}) {
    SCOPED_TRACE(batch);
    Check(batch);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Nets, GradientBatchTest,
    ::testing::Combine(::testing::Values(LENET_TEST_BACKEND),
                       ::testing::Values(NetSpec{
                           .name = "Small",
                           .input = {1, 6, 6},
                           .classes = 3,
                           .layers = {{.kind = LayerKind::kConv2D, .name = "conv", .outputs = 2, .kernel = 3},
                                      {.kind = LayerKind::kRelu},
                                      {.kind = LayerKind::kMaxPool2D, .kernel = 2, .stride = 2},
                                      {.kind = LayerKind::kFlatten},
                                      {.kind = LayerKind::kLinear, .name = "fc", .outputs = 3}}})),
    [](const auto& info) { return std::get<1>(info.param).name + "_" + std::get<0>(info.param); });

}  // namespace
}  // namespace lenet
