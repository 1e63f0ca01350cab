#include "trainer/optim/optimizer.h"

#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/base/random.h"

namespace lenet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSteps = 12;

// Gradients that depend on the parameter as a loss's would: of 0.5 * (p - target)^2 plus a term of the step.
double GradientAt(double p, size_t i, int t) {
  return p - 0.3 * static_cast<double>(i % 5) + 0.1 * std::sin(static_cast<double>(i) + 1.7 * t);
}

double RateAt(int t) { return 0.05 / (1 + 0.2 * t); }

std::vector<float> Start(size_t n) {
  std::vector<float> p(n);
  for (size_t i = 0; i < n; ++i) p[i] = 2 * UniformFloat(3, 5, i) - 1;
  return p;
}

// kSteps updates with ApplyUpdate.
std::vector<float> Train(const OptimizerSpec& spec, size_t n, float scale = 1) {
  std::vector<float> p = Start(n), g(n), state(static_cast<size_t>(StateSlots(spec)) * n);
  for (int t = 0; t < kSteps; ++t) {
    for (size_t i = 0; i < n; ++i) g[i] = static_cast<float>(GradientAt(p[i], i, t));
    ApplyUpdate(spec, ScalarsAt(spec, t, static_cast<float>(RateAt(t))), scale, p, g, state);
  }
  return p;
}

// One parameter's kSteps updates in double, with the moving averages written out as sums over all steps so far:
// SGD's velocity after step t is sum of momentum^(t - s) d_s, Adam's average (1 - beta) * sum of beta^(t - s) g_s.
double Expected(const OptimizerSpec& spec, double start, size_t i, double scale = 1) {
  double p = start;
  std::vector<double> d;
  for (int t = 0; t < kSteps; ++t) {
    const double lr = RateAt(t);
    const bool decoupled = spec.kind == OptimizerKind::kAdamW;
    d.push_back(scale * GradientAt(p, i, t) + (decoupled ? 0 : spec.weight_decay * p));
    double sum1 = 0, sum2 = 0;
    const double factor1 = spec.kind == OptimizerKind::kSgd ? spec.momentum : spec.beta1;
    for (int s = 0; s <= t; ++s) {
      sum1 += std::pow(factor1, t - s) * d[static_cast<size_t>(s)];
      sum2 += std::pow(spec.beta2, t - s) * d[static_cast<size_t>(s)] * d[static_cast<size_t>(s)];
    }
    if (spec.kind == OptimizerKind::kSgd) {
      p -= lr * (spec.nesterov ? d.back() + spec.momentum * sum1 : sum1);
    } else {
      const double m = (1 - spec.beta1) * sum1 / (1 - std::pow(spec.beta1, t + 1));
      const double v = (1 - spec.beta2) * sum2 / (1 - std::pow(spec.beta2, t + 1));
      p = p - (decoupled ? lr * spec.weight_decay * p : 0) - lr * m / (std::sqrt(v) + spec.epsilon);
    }
  }
  return p;
}

const std::vector<OptimizerSpec>& Specs() {
  using enum OptimizerKind;
  static const std::vector<OptimizerSpec> specs = {
      {},
      {.weight_decay = 0.01},
      {.momentum = 0.9},
      {.momentum = 0.9, .weight_decay = 0.01},
      {.momentum = 0.8, .nesterov = true},
      {.momentum = 0.8, .nesterov = true, .weight_decay = 0.01},
      {.kind = kAdam},
      {.kind = kAdam, .beta1 = 0.7, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.01},
      {.kind = kAdamW, .weight_decay = 0.1},
      {.kind = kAdamW, .beta1 = 0, .beta2 = 0.99, .epsilon = 1e-6},
  };
  return specs;
}

}  // namespace

void PrintTo(const OptimizerSpec& spec, std::ostream* out) {
  *out << "momentum " << spec.momentum << ", nesterov " << spec.nesterov << ", weight decay " << spec.weight_decay;
}

namespace {

class OptimizerTest : public ::testing::TestWithParam<OptimizerSpec> {};

TEST_P(OptimizerTest, FollowsTheFormula) {
  constexpr size_t kCount = 37;  // whole vectors and a rest
  for (const double scale : {1.0, 0.25}) {
    const std::vector<float> got = Train(GetParam(), kCount, static_cast<float>(scale));
    const std::vector<float> start = Start(kCount);
    double error = 0, norm = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const double expected = Expected(GetParam(), start[i], i, scale);
      EXPECT_NE(got[i], start[i]);
      error += (got[i] - expected) * (got[i] - expected);
      norm += expected * expected;
    }
    EXPECT_LT(std::sqrt(error / norm), 2e-6) << "scale " << scale;
  }
}

TEST_P(OptimizerTest, AGapOfZerosStaysZero) {
  const OptimizerSpec& spec = GetParam();
  std::vector<float> p(20), state(static_cast<size_t>(StateSlots(spec)) * 20);
  const std::vector<float> g(20);
  for (int t = 0; t < 3; ++t) ApplyUpdate(spec, ScalarsAt(spec, t, 0.1f), 1, p, g, state);
  EXPECT_EQ(p, std::vector<float>(20));
  EXPECT_EQ(state, std::vector<float>(state.size()));
}

// Whichever lane of a vector, or rest of a loop, an element falls into, its bits are the same.
TEST_P(OptimizerTest, AnElementsResultDoesNotDependOnItsPlace) {
  const OptimizerSpec& spec = GetParam();
  for (const size_t n : {1, 2, 3, 4, 7, 31, 64, 100}) {
    std::vector<float> p(n, 0.3f), state(static_cast<size_t>(StateSlots(spec)) * n);
    const std::vector<float> g(n, 0.1234567f);
    for (int t = 0; t < 3; ++t) ApplyUpdate(spec, ScalarsAt(spec, t, 0.01f), 0.7f, p, g, state);
    std::vector<float> one(1, 0.3f), one_state(static_cast<size_t>(StateSlots(spec)));
    for (int t = 0; t < 3; ++t) {
      ApplyUpdate(spec, ScalarsAt(spec, t, 0.01f), 0.7f, one, std::span(g).first(1), one_state);
    }
    EXPECT_EQ(p, std::vector<float>(n, one[0])) << n;
  }
}

TEST_P(OptimizerTest, TakesNoElements) { EXPECT_TRUE(Train(GetParam(), 0).empty()); }

std::string NameOf(const ::testing::TestParamInfo<OptimizerSpec>& info) {
  const char* const kNames[] = {"Sgd", "Adam", "AdamW"};
  return kNames[static_cast<int>(info.param.kind)] + std::to_string(info.index);
}

INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerTest, ::testing::ValuesIn(Specs()), NameOf);

// By hand: p = 1, g = 0.5, lr = 0.1, twice.
TEST(ApplyUpdateTest, HandComputed) {
  const auto twice = [](const OptimizerSpec& spec) {
    std::vector<float> p = {1}, state(static_cast<size_t>(StateSlots(spec)));
    const std::vector<float> g = {0.5};
    for (int t = 0; t < 2; ++t) ApplyUpdate(spec, ScalarsAt(spec, t, 0.1f), 1, p, g, state);
    return p[0];
  };
  using enum OptimizerKind;
  EXPECT_FLOAT_EQ(twice({}), 0.9f);
  // Steps of 0.05 and 0.1 * (0.5 * 0.5 + 0.5) = 0.075.
  EXPECT_FLOAT_EQ(twice({.momentum = 0.5}), 0.875f);
  // 0.1 * (0.5 + 0.5 * 0.5) = 0.075, then 0.1 * (0.5 + 0.5 * 0.75) = 0.0875.
  EXPECT_FLOAT_EQ(twice({.momentum = 0.5, .nesterov = true}), 0.8375f);
  // 1 - 0.1 * (0.5 + 1) = 0.85, then 0.85 - 0.1 * (0.5 + 0.85) = 0.715.
  EXPECT_FLOAT_EQ(twice({.weight_decay = 1}), 0.715f);
  // A constant gradient makes both corrected averages its own: each step is the rate.
  EXPECT_FLOAT_EQ(twice({.kind = kAdam, .epsilon = 1e-12}), 0.8f);
  // (1 * 0.9 - 0.1) * 0.9 - 0.1 with decay 1.
  EXPECT_FLOAT_EQ(twice({.kind = kAdamW, .epsilon = 1e-12, .weight_decay = 1}), 0.62f);
}

TEST(ScalarsAtTest, AreComputedInDouble) {
  const OptimizerSpec adam = {.kind = OptimizerKind::kAdam};
  const UpdateScalars first = ScalarsAt(adam, 0, 1e-3f);
  EXPECT_EQ(first.one_minus_beta1, 0.1f);
  EXPECT_EQ(first.one_minus_beta2, 0.001f);
  EXPECT_FLOAT_EQ(first.step_size, 1e-2f);
  EXPECT_FLOAT_EQ(first.sqrt_correction2, 0.0316227766f);
  EXPECT_EQ(first.decay, 1);
  // After ten million steps both corrections are gone.
  const UpdateScalars late = ScalarsAt(adam, 10'000'000, 1e-3f);
  EXPECT_EQ(late.step_size, 1e-3f);
  EXPECT_EQ(late.sqrt_correction2, 1);
  EXPECT_FLOAT_EQ(ScalarsAt({.kind = OptimizerKind::kAdamW, .weight_decay = 0.5}, 0, 0.1f).decay, 0.95f);
  const UpdateScalars sgd = ScalarsAt({.momentum = 0.9, .weight_decay = 5e-4}, 3, 0.1f);
  EXPECT_EQ(sgd.learning_rate, 0.1f);
  EXPECT_EQ(sgd.momentum, 0.9f);
  EXPECT_EQ(sgd.weight_decay, 5e-4f);
}

TEST(StateSlotsTest, CountsAndNames) {
  EXPECT_EQ(StateSlots({}), 0);
  EXPECT_EQ(StateSlots({.momentum = 0.9}), 1);
  EXPECT_EQ(StateSlotName({.momentum = 0.9}, 0), "momentum");
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    EXPECT_EQ(StateSlots({.kind = kind}), 2);
    EXPECT_EQ(StateSlotName({.kind = kind}, 0), "exp_avg");
    EXPECT_EQ(StateSlotName({.kind = kind}, 1), "exp_avg_sq");
  }
}

TEST(ClipScaleTest, BringsTheNormDown) {
  EXPECT_EQ(ClipScale(0, 100), 1);
  EXPECT_EQ(ClipScale(1, 0.5f), 1);
  EXPECT_EQ(ClipScale(1, 0), 1);
  EXPECT_FLOAT_EQ(ClipScale(1, 4), 0.25f);
  EXPECT_FLOAT_EQ(ClipScale(0.5f, 10), 0.05f);
  EXPECT_FLOAT_EQ(ClipScale(1e-6f, 1e-6f), 0.5f);  // torch's 1e-6 in the divisor
  EXPECT_EQ(ClipScale(1, std::numeric_limits<float>::infinity()), 0);
  EXPECT_TRUE(std::isnan(ClipScale(1, std::numeric_limits<float>::quiet_NaN())));
}

TEST(ValidateOptimizerTest, TakesWhatIsSound) {
  for (const OptimizerSpec& spec : Specs()) EXPECT_TRUE(ValidateOptimizer(spec).ok()) << ValidateOptimizer(spec);
}

TEST(ValidateOptimizerTest, NamesTheFieldTheValueAndTheBound) {
  using enum OptimizerKind;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const struct {
    OptimizerSpec spec;
    std::string what;
    std::string bound;
  } kCases[] = {{{.momentum = 1}, "optimizer.momentum = 1: ", "in [0, 1)"},
                {{.momentum = -0.1}, "optimizer.momentum = -0.1: ", "in [0, 1)"},
                {{.momentum = nan}, "optimizer.momentum = nan: ", "in [0, 1)"},
                {{.momentum = -nan}, "optimizer.momentum = nan: ", "in [0, 1)"},
                {{.nesterov = true}, "optimizer.momentum = 0: ", "above 0 with nesterov"},
                {{.weight_decay = -1}, "optimizer.weight_decay = -1: ", "at least 0"},
                {{.weight_decay = nan}, "optimizer.weight_decay = nan: ", "at least 0"},
                {{.weight_decay = infinity}, "optimizer.weight_decay = inf: ", "finite"},
                {{.kind = kAdam, .beta1 = 1}, "optimizer.beta1 = 1: ", "in [0, 1)"},
                {{.kind = kAdamW, .beta1 = nan}, "optimizer.beta1 = nan: ", "in [0, 1)"},
                {{.kind = kAdam, .beta2 = -0.5}, "optimizer.beta2 = -0.5: ", "in [0, 1)"},
                {{.kind = kAdamW, .beta2 = 1.5}, "optimizer.beta2 = 1.5: ", "in [0, 1)"},
                {{.kind = kAdam, .epsilon = 0}, "optimizer.epsilon = 0: ", "in [1e-37, 1]"},
                {{.kind = kAdamW, .epsilon = nan}, "optimizer.epsilon = nan: ", "in [1e-37, 1]"},
                {{.kind = kAdam, .epsilon = 2}, "optimizer.epsilon = 2: ", "in [1e-37, 1]"}};
  for (const auto& test : kCases) {
    const absl::Status status = ValidateOptimizer(test.spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.what;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(test.what), HasSubstr(test.bound)));
  }
}

}  // namespace
}  // namespace lenet
