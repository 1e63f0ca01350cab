#include "trainer/optim/schedule.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lenet {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// Relative to a peak of 0.5, as the values below are.
std::vector<double> Rates(const ScheduleSpec& spec, int64_t total_steps, int64_t steps_per_epoch = 1,
                          double base_rate = 0.5) {
  std::vector<double> rates;
  for (int64_t step = 0; step < total_steps; ++step) {
    rates.push_back(LearningRateAt(spec, base_rate, step, total_steps, steps_per_epoch));
  }
  return rates;
}

void ExpectRates(const std::vector<double>& got, const std::vector<double>& expected) {
  EXPECT_THAT(got, Pointwise(DoubleNear(1e-12), expected));
}

TEST(ScheduleTest, Constant) { ExpectRates(Rates({}, 3), {0.5, 0.5, 0.5}); }

TEST(ScheduleTest, Step) {
  ExpectRates(Rates({.kind = ScheduleKind::kStep, .gamma = 0.5, .step_epochs = 2}, 13, /*steps_per_epoch=*/3),
              {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.125});
}

TEST(ScheduleTest, Linear) {
  ExpectRates(Rates({.kind = ScheduleKind::kLinear}, 5), {0.5, 0.4, 0.3, 0.2, 0.1});
  ExpectRates(Rates({.kind = ScheduleKind::kLinear, .final_fraction = 0.5}, 5), {0.5, 0.45, 0.4, 0.35, 0.3});
}

TEST(ScheduleTest, Cosine) {
  const double r = std::sqrt(0.5);
  ExpectRates(Rates({.kind = ScheduleKind::kCosine}, 4), {0.5, 0.25 * (1 + r), 0.25, 0.25 * (1 - r)});
  ExpectRates(Rates({.kind = ScheduleKind::kCosine, .final_fraction = 0.2}, 2), {0.5, 0.3});
}

// torch's chain form: each rate from the one before,
// (1 + cos(pi t / T)) / (1 + cos(pi (t - 1) / T)) * (rate - final) + final.
TEST(ScheduleTest, CosineAgreesWithTorchsRecursion) {
  constexpr int kTotal = 50;
  const std::vector<double> rates = Rates({.kind = ScheduleKind::kCosine, .final_fraction = 0.1}, kTotal);
  double expected = 0.5;
  for (int t = 1; t < kTotal; ++t) {
    expected = (1 + std::cos(M_PI * t / kTotal)) / (1 + std::cos(M_PI * (t - 1) / kTotal)) * (expected - 0.05) + 0.05;
    EXPECT_NEAR(rates[static_cast<size_t>(t)], expected, 1e-12) << t;
  }
}

// OneCycleLR(max_lr=1, total_steps=10, pct_start=0.3, div_factor=25, final_div_factor=1e4): up from 0.04 over steps 0
// to 2, down to 4e-6 over steps 2 to 9.
TEST(ScheduleTest, OneCycle) {
  const std::vector<double> rates = Rates({.kind = ScheduleKind::kOneCycle}, 10, 1, /*base_rate=*/1);
  ASSERT_EQ(rates.size(), 10u);
  EXPECT_NEAR(rates[0], 0.04, 1e-12);
  EXPECT_NEAR(rates[1], 0.52, 1e-12);
  EXPECT_NEAR(rates[2], 1, 1e-12);
  for (int k = 0; k <= 7; ++k) {
    const double expected = 4e-6 + (1 - 4e-6) * (1 + std::cos(M_PI * k / 7)) / 2;
    EXPECT_NEAR(rates[static_cast<size_t>(2 + k)], expected, 1e-12) << k;
  }
  EXPECT_NEAR(rates[9], 4e-6, 1e-12);
}

TEST(ScheduleTest, OneCyclePeaksBetweenStepsWhereTheShareSaysSo) {
  // The rise ends at 0.25 * 10 - 1 = 1.5.
  const std::vector<double> rates = Rates(
      {.kind = ScheduleKind::kOneCycle, .peak_fraction = 0.25, .initial_divisor = 10, .final_divisor = 100}, 10, 1,
      /*base_rate=*/1);
  EXPECT_NEAR(rates[1], 0.1 + 0.9 * (1 - std::cos(M_PI / 1.5)) / 2, 1e-12);
  EXPECT_NEAR(rates[2], 1e-3 + (1 - 1e-3) * (1 + std::cos(M_PI * 0.5 / 7.5)) / 2, 1e-12);
  EXPECT_NEAR(rates[9], 1e-3, 1e-12);
}

TEST(ScheduleTest, OneCycleOfAFewSteps) {
  for (int64_t total = 1; total <= 4; ++total) {
    for (const double rate : Rates({.kind = ScheduleKind::kOneCycle}, total, 1, 1)) {
      EXPECT_TRUE(rate > 0 && rate <= 1) << total << ": " << rate;
    }
  }
  EXPECT_EQ(Rates({.kind = ScheduleKind::kOneCycle, .peak_fraction = 0.5}, 2, 1, 1)[0], 1);  // a rise of no step
}

TEST(ScheduleTest, WarmUpRisesInALine) {
  ExpectRates(Rates({.warmup_fraction = 0.4}, 10), {0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5});
  ExpectRates(Rates({.kind = ScheduleKind::kLinear, .warmup_fraction = 0.5}, 8),
              {0.1, 0.2, 0.3, 0.4, 0.5, 0.375, 0.25, 0.125});
  // Epochs of the step schedule count from its end.
  ExpectRates(Rates({.kind = ScheduleKind::kStep, .warmup_fraction = 0.25, .gamma = 0.5}, 8, /*steps_per_epoch=*/3),
              {0.5 / 3, 1.0 / 3, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25});
}

TEST(ScheduleTest, WarmUpStepsAreRoundedAndLeaveOne) {
  EXPECT_EQ(WarmupSteps({.warmup_fraction = 0.29}, 100), 29);  // 0.29 * 100 is below 29 in double
  EXPECT_EQ(WarmupSteps({.warmup_fraction = 0.2}, 9370), 1874);
  EXPECT_EQ(WarmupSteps({.warmup_fraction = 0.04}, 10), 0);
  EXPECT_EQ(WarmupSteps({.warmup_fraction = 0.999}, 10), 9);
  EXPECT_EQ(WarmupSteps({.warmup_fraction = 0.9}, 1), 0);
  EXPECT_EQ(WarmupSteps({}, 10), 0);
}

TEST(ScheduleTest, LastsOverTheLargestJobs) {
  constexpr int64_t kTotal = int64_t{1} << 40;
  const ScheduleSpec spec = {.kind = ScheduleKind::kLinear, .warmup_fraction = 0.5};
  EXPECT_DOUBLE_EQ(LearningRateAt(spec, 1, kTotal / 2, kTotal, 1), 1);
  EXPECT_DOUBLE_EQ(LearningRateAt(spec, 1, kTotal / 4 * 3, kTotal, 1), 0.5);
  EXPECT_GT(LearningRateAt(spec, 1, kTotal - 1, kTotal, 1), 0);
}

TEST(ValidateScheduleTest, TakesWhatIsSound) {
  using enum ScheduleKind;
  for (const ScheduleKind kind : {kConstant, kStep, kCosine, kLinear, kOneCycle}) {
    EXPECT_TRUE(ValidateSchedule({.kind = kind}).ok());
  }
  EXPECT_TRUE(ValidateSchedule({.kind = kLinear, .warmup_fraction = 0.2, .final_fraction = 1}).ok());
}

TEST(ValidateScheduleTest, NamesTheFieldTheValueAndTheBound) {
  using enum ScheduleKind;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const struct {
    ScheduleSpec spec;
    std::string what;
    std::string bound;
  } kCases[] = {{{.warmup_fraction = 1}, "schedule.warmup_fraction = 1: ", "in [0, 1)"},
                {{.warmup_fraction = nan}, "schedule.warmup_fraction = nan: ", "in [0, 1)"},
                {{.kind = kLinear, .warmup_fraction = -0.1}, "schedule.warmup_fraction = -0.1: ", "in [0, 1)"},
                {{.kind = kOneCycle, .warmup_fraction = 0.1}, "schedule.warmup_fraction = 0.1: ", "0 with one-cycle"},
                {{.kind = kLinear, .final_fraction = 1.1}, "schedule.final_fraction = 1.1: ", "in [0, 1]"},
                {{.kind = kCosine, .final_fraction = -1}, "schedule.final_fraction = -1: ", "in [0, 1]"},
                {{.kind = kCosine, .final_fraction = nan}, "schedule.final_fraction = nan: ", "in [0, 1]"},
                {{.kind = kStep, .gamma = 0}, "schedule.gamma = 0: ", "in (0, 1]"},
                {{.kind = kStep, .gamma = 1.5}, "schedule.gamma = 1.5: ", "in (0, 1]"},
                {{.kind = kStep, .step_epochs = 0}, "schedule.step_epochs = 0: ", "at least 1"},
                {{.kind = kOneCycle, .peak_fraction = 0}, "schedule.peak_fraction = 0: ", "in (0, 1)"},
                {{.kind = kOneCycle, .peak_fraction = 1}, "schedule.peak_fraction = 1: ", "in (0, 1)"},
                {{.kind = kOneCycle, .initial_divisor = 0.5}, "schedule.initial_divisor = 0.5: ", "at least 1"},
                {{.kind = kOneCycle, .final_divisor = nan}, "schedule.final_divisor = nan: ", "at least 1"},
                {{.kind = kOneCycle, .final_divisor = infinity}, "schedule.final_divisor = inf: ", "finite"}};
  for (const auto& test : kCases) {
    const absl::Status status = ValidateSchedule(test.spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.what;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(test.what), HasSubstr(test.bound)));
  }
}

}  // namespace
}  // namespace lenet
