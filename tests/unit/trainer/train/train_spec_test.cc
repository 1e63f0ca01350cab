#include "trainer/train/train_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;

// Counts alone: planning reads no image.
Dataset Sized(int64_t train_count, int side = 28) {
  Dataset dataset = {.name = "sized", .classes = 10};
  dataset.train = {.shape = {1, side, side}, .count = train_count};
  dataset.test = {.shape = {1, side, side}, .count = 10000};
  return dataset;
}

TrainSpec Spec() { return {.dataset = "mnist"}; }

TEST(PlanTrainingTest, Defaults) {
  const absl::StatusOr<TrainPlan> plan = PlanTraining(Spec(), 2, Sized(60000));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->ranks, 2);
  EXPECT_EQ(plan->batch_size, 64);
  EXPECT_EQ(plan->global_batch_size, 128);
  EXPECT_EQ(plan->steps_per_epoch, 468);
  EXPECT_EQ(plan->dropped_per_epoch, 60000 - 468 * 128);
  EXPECT_EQ(plan->total_steps, 4680);
  EXPECT_EQ(plan->classes, 10);
  EXPECT_EQ(plan->learning_rate, DefaultLearningRate(Spec().optimizer, 128));
  EXPECT_EQ(plan->spec.ranks, 2);
  EXPECT_EQ(plan->spec.batch_size, 64);
  EXPECT_EQ(plan->spec.epochs, 10);
  EXPECT_EQ(plan->spec.learning_rate, plan->learning_rate);
  EXPECT_FALSE(plan->spec.global_batch_size);
  EXPECT_FALSE(plan->spec.max_steps);
}

TEST(PlanTrainingTest, GlobalBatchAndMaxSteps) {
  TrainSpec spec = Spec();
  spec.global_batch_size = 256;
  spec.max_steps = 1000;
  spec.learning_rate = 0.25;
  const absl::StatusOr<TrainPlan> plan = PlanTraining(spec, 4, Sized(60000));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->batch_size, 64);
  EXPECT_EQ(plan->global_batch_size, 256);
  EXPECT_EQ(plan->steps_per_epoch, 234);
  EXPECT_EQ(plan->total_steps, 1000);
  EXPECT_EQ(plan->learning_rate, 0.25);
  EXPECT_FALSE(plan->spec.batch_size);
  EXPECT_FALSE(plan->spec.epochs);
}

TEST(PlanTrainingTest, TheWholeSetAsOneBatch) {
  TrainSpec spec = Spec();
  spec.batch_size = 500;
  const absl::StatusOr<TrainPlan> plan = PlanTraining(spec, 2, Sized(1000));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->steps_per_epoch, 1);
  EXPECT_EQ(plan->dropped_per_epoch, 0);
}

TEST(DefaultLearningRateTest, IsTheDocumentedNumber) {
  EXPECT_EQ(DefaultLearningRate(Spec().optimizer, 64), 0.07);
  EXPECT_EQ(DefaultLearningRate({.momentum = 0.95}, 64), 0.035);
  EXPECT_EQ(DefaultLearningRate({.momentum = 0.99}, 64), 0.007);
  EXPECT_EQ(DefaultLearningRate({.momentum = 0.5}, 64), 0.3);
}

TEST(DefaultLearningRateTest, FollowsTheRule) {
  const OptimizerSpec nesterov = Spec().optimizer;
  EXPECT_NEAR(DefaultLearningRate(nesterov, 64), 0.07, 1e-6);
  EXPECT_NEAR(DefaultLearningRate(nesterov, 512), 0.28, 1e-6);
  EXPECT_NEAR(DefaultLearningRate(nesterov, 8), 0.0175, 1e-6);
  EXPECT_NEAR(DefaultLearningRate(nesterov, 60000), 0.56, 1e-6);
  EXPECT_NEAR(DefaultLearningRate({}, 64), 0.3, 1e-6);
  EXPECT_NEAR(DefaultLearningRate({.momentum = 0.99}, 64), 0.007, 1e-6);
  EXPECT_NEAR(DefaultLearningRate({.kind = OptimizerKind::kAdam}, 512), 0.008, 1e-6);
  EXPECT_NEAR(DefaultLearningRate({.kind = OptimizerKind::kAdamW}, 64), 0.002, 1e-6);
}

struct BadSpec {
  std::string message;  // its beginning
  std::function<void(TrainSpec*)> change;
  int ranks = 2;
  int64_t images = 60000;
};

std::vector<BadSpec> BadSpecs() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  return {
      {"dataset = \"\": must", [](TrainSpec* s) { s->dataset = ""; }},
      {"net = \"resnet\": must be one of ", [](TrainSpec* s) { s->net = "resnet"; }},
      {"ranks = -1: must be 0", [](TrainSpec* s) { s->ranks = -1; }},
      {"ranks = 1025: must be 0", [](TrainSpec* s) { s->ranks = 1025; }},
      {"ranks = 4: must be 2", [](TrainSpec* s) { s->ranks = 4; }},
      {"ranks = 0: must be 1 to 1024", [](TrainSpec*) {}, 0},
      {"ranks = 8: must be 1 to 5 (the training images)", [](TrainSpec*) {}, 8, 5},
      {"batch_size = 0: must be at least 1", [](TrainSpec* s) { s->batch_size = 0; }},
      {"batch_size = -3: must be at least 1", [](TrainSpec* s) { s->batch_size = -3; }},
      {"batch_size = 60001: must be 1 to 60000 (60000 training images)", [](TrainSpec* s) { s->batch_size = 60001; },
       1},
      {"batch_size = 30001: must be 1 to 30000 (60000 training images / 2 ranks)",
       [](TrainSpec* s) { s->batch_size = 30001; }},
      {"batch_size = 2147483647: must be 1 to 30000", [](TrainSpec* s) { s->batch_size = 2147483647; }},
      {"batch_size = 64: must be 1 to 50", [](TrainSpec*) {}, 2, 100},
      {"batch_size: is given beside global_batch_size",
       [](TrainSpec* s) {
         s->batch_size = 64;
         s->global_batch_size = 128;
       }},
      {"global_batch_size = 0: must be at least 1", [](TrainSpec* s) { s->global_batch_size = 0; }},
      {"global_batch_size = 129: must be a multiple of the 2 ranks", [](TrainSpec* s) { s->global_batch_size = 129; }},
      {"global_batch_size = 60002: must be 2 to 60000 (the training images)",
       [](TrainSpec* s) { s->global_batch_size = 60002; }},
      {"epochs = 0: must be at least 1", [](TrainSpec* s) { s->epochs = 0; }},
      {"epochs = -1: must be at least 1", [](TrainSpec* s) { s->epochs = -1; }},
      {"epochs = 2000000000: must be 1 to ",
       [](TrainSpec* s) {
         s->epochs = 2000000000;
         s->batch_size = 1;
       },
       1},
      {"epochs: is given beside max_steps",
       [](TrainSpec* s) {
         s->epochs = 1;
         s->max_steps = 10;
       }},
      {"max_steps = 0: must be 1 to ", [](TrainSpec* s) { s->max_steps = 0; }},
      {"max_steps = 1099511627777: must be 1 to 1099511627776", [](TrainSpec* s) { s->max_steps = kMaxSteps + 1; }},
      {"learning_rate = nan: must be in [1e-37, 1e+06]", [nan](TrainSpec* s) { s->learning_rate = nan; }},
      {"learning_rate = inf: must be in [1e-37, 1e+06]", [inf](TrainSpec* s) { s->learning_rate = inf; }},
      {"learning_rate = 0: must be in [1e-37, 1e+06]", [](TrainSpec* s) { s->learning_rate = 0; }},
      {"learning_rate = -0.1: must be in [1e-37, 1e+06]", [](TrainSpec* s) { s->learning_rate = -0.1; }},
      {"clip_norm = nan: must be finite", [](TrainSpec* s) { s->clip_norm = NAN; }},
      {"clip_norm = -1: must be finite", [](TrainSpec* s) { s->clip_norm = -1; }},
      {"learning_rate = 1000000.1: must be in [1e-37, 1e+06]", [](TrainSpec* s) { s->learning_rate = 1000000.1; }},
      {"clip_norm = inf: must be finite", [](TrainSpec* s) { s->clip_norm = INFINITY; }},
      {"evaluate_every_epochs = -1: must be at least 0", [](TrainSpec* s) { s->evaluate_every_epochs = -1; }},
      {"checkpoints.every_epochs = -1: must be at least 0", [](TrainSpec* s) { s->checkpoints.every_epochs = -1; }},
      {"checkpoints.every_steps = -2: must be 0 (off) to 1099511627776",
       [](TrainSpec* s) { s->checkpoints.every_steps = -2; }},
      {"checkpoints.every_steps = 1099511627777: must be 0 (off) to 1099511627776",
       [](TrainSpec* s) { s->checkpoints.every_steps = kMaxSteps + 1; }},
      {"checkpoints.every_seconds = nan: must be finite and at least 0",
       [nan](TrainSpec* s) { s->checkpoints.every_seconds = nan; }},
      {"checkpoints.every_seconds = -0.5: must be finite and at least 0",
       [](TrainSpec* s) { s->checkpoints.every_seconds = -0.5; }},
      {"max_duration = nan: must be finite and at least 0", [nan](TrainSpec* s) { s->max_duration = nan; }},
      {"max_duration = inf: must be finite and at least 0", [inf](TrainSpec* s) { s->max_duration = inf; }},
      {"max_duration = -1: must be finite and at least 0", [](TrainSpec* s) { s->max_duration = -1; }},
      {"target_accuracy = 0: must be in (0, 1]", [](TrainSpec* s) { s->target_accuracy = 0; }},
      {"target_accuracy = 98: must be in (0, 1]", [](TrainSpec* s) { s->target_accuracy = 98; }},
      {"target_accuracy = nan: must be in (0, 1]", [nan](TrainSpec* s) { s->target_accuracy = nan; }},
      {"patience = -3: must be at least 0 (0: off)", [](TrainSpec* s) { s->patience = -3; }},
      {"evaluate_every_epochs = 0: must be at least 1 with target_accuracy",
       [](TrainSpec* s) {
         s->target_accuracy = 0.9;
         s->evaluate_every_epochs = 0;
       }},
      {"evaluate_every_epochs = 0: must be at least 1 with patience",
       [](TrainSpec* s) {
         s->patience = 2;
         s->evaluate_every_epochs = 0;
       }},
  };
}

TEST(PlanTrainingTest, NamesFieldValueAndBound) {
  for (const BadSpec& bad : BadSpecs()) {
    TrainSpec spec = Spec();
    bad.change(&spec);
    const absl::StatusOr<TrainPlan> plan = PlanTraining(spec, bad.ranks, Sized(bad.images));
    ASSERT_FALSE(plan.ok()) << bad.message;
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << bad.message;
    EXPECT_THAT(std::string(plan.status().message()), ::testing::StartsWith(bad.message));
  }
}

// The rules of these fields are tested where they are made; here, that planning applies them.
TEST(PlanTrainingTest, ChecksTheParts) {
  const auto error = [](const TrainSpec& spec, int side = 28) {
    const absl::StatusOr<TrainPlan> plan = PlanTraining(spec, 1, Sized(1000, side));
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(plan.status().message());
  };
  TrainSpec spec = Spec();
  spec.optimizer = {.momentum = 0, .nesterov = true};
  EXPECT_THAT(error(spec), HasSubstr("nesterov"));
  spec = Spec();
  spec.optimizer.momentum = 1;
  EXPECT_THAT(error(spec), HasSubstr("momentum"));
  spec = Spec();
  spec.schedule.warmup_fraction = 1;
  EXPECT_THAT(error(spec), HasSubstr("warmup_fraction"));
  spec = Spec();
  spec.init = {.kind = InitKind::kUniform, .low = 1, .high = -1};
  EXPECT_FALSE(error(spec).empty());
  EXPECT_FALSE(error(Spec(), 3).empty()) << "images too small for the net";
}

TEST(TrainSpecJsonTest, HoldsWhatWasGiven) {
  TrainSpec spec = Spec();
  spec.max_steps = 77;
  spec.seed = 18446744073709551615u;
  spec.learning_rate = 0.1;
  const nlohmann::json json = nlohmann::json::parse(TrainSpecJson(spec), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["dataset"], "mnist");
  EXPECT_EQ(json["max_steps"], 77);
  EXPECT_EQ(json["seed"], 18446744073709551615u);
  EXPECT_EQ(json["learning_rate"], 0.1);
  EXPECT_EQ(json["optimizer"]["kind"], "sgd");
  EXPECT_EQ(json["schedule"]["kind"], "linear");
  for (const char* key : {"epochs", "checkpoints", "max_duration", "target_accuracy", "patience"}) {
    EXPECT_FALSE(json.contains(key)) << key;
  }
}

TEST(TrainSpecJsonTest, HoldsThePeriodsAndEarlyEndsThatAreSet) {
  TrainSpec spec = Spec();
  spec.checkpoints = {.every_steps = 500, .every_seconds = 2.5};
  spec.max_duration = 60;
  spec.target_accuracy = 0.99;
  spec.patience = 3;
  EXPECT_TRUE(ValidateTrainSpec(spec).ok());
  const nlohmann::json json = nlohmann::json::parse(TrainSpecJson(spec), nullptr, false);
  EXPECT_EQ(json["checkpoints"], (nlohmann::json{{"every_steps", 500}, {"every_seconds", 2.5}}));
  EXPECT_EQ(json["max_duration"], 60);
  EXPECT_EQ(json["target_accuracy"], 0.99);
  EXPECT_EQ(json["patience"], 3);
}

}  // namespace
}  // namespace lenet
