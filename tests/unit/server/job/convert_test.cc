#include "server/job/convert.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;

v1::TrainingSpec Minimal() {
  v1::TrainingSpec spec;
  spec.set_dataset("mnist");
  return spec;
}

TEST(CheckFieldsKnownTest, NamesTheMessageAndTheNumber) {
  v1::StartRequest request;
  v1::TrainingSpec& spec = *request.mutable_spec();
  spec = Minimal();
  spec.mutable_init()->set_kind(v1::Init::UNIFORM);
  spec.mutable_schedule()->set_kind(v1::Schedule::COSINE);
  v1::ResumeFrom& from = *request.mutable_resume_from();
  from.set_job_id("a");
  EXPECT_TRUE(CheckFieldsKnown(request).ok());
  const auto refusal = [&] {
    const absl::Status status = CheckFieldsKnown(request);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  from.GetReflection()->MutableUnknownFields(&from)->AddVarint(9, 1);
  EXPECT_EQ(refusal(), "resume_from: this server does not know field number 9");
  spec.schedule().GetReflection()->MutableUnknownFields(spec.mutable_schedule())->AddFixed32(700, 1);
  EXPECT_EQ(refusal(), "spec.schedule: this server does not know field number 700");
  spec.GetReflection()->MutableUnknownFields(&spec)->AddVarint(600, 1);
  EXPECT_EQ(refusal(), "spec: this server does not know field number 600");
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(6, "abc");
  EXPECT_EQ(refusal(), "request: this server does not know field number 6");
}

TEST(ToTrainSpecTest, TakesTheDefaultsForWhatIsNotGiven) {
  const TrainSpec spec = ToTrainSpec(Minimal()).value();
  const TrainSpec defaults;
  EXPECT_EQ(spec.dataset, "mnist");
  EXPECT_EQ(spec.net, "lenet");
  EXPECT_EQ(spec.init.kind, InitKind::kKaimingUniform);
  EXPECT_EQ(spec.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(spec.optimizer.momentum, 0.9);
  EXPECT_TRUE(spec.optimizer.nesterov);
  EXPECT_EQ(spec.schedule.kind, ScheduleKind::kLinear);
  EXPECT_EQ(spec.schedule.warmup_fraction, 0.2);
  EXPECT_FALSE(spec.learning_rate.has_value());
  EXPECT_FALSE(spec.batch_size.has_value());
  EXPECT_FALSE(spec.global_batch_size.has_value());
  EXPECT_FALSE(spec.epochs.has_value());
  EXPECT_FALSE(spec.max_steps.has_value());
  EXPECT_EQ(spec.ranks, 0);
  EXPECT_EQ(spec.seed, defaults.seed);
  EXPECT_EQ(spec.nan_policy, NanPolicy::kStop);
  EXPECT_EQ(spec.precision, Precision::kFp32);
  EXPECT_EQ(spec.engine, EngineKind::kAuto);
  EXPECT_EQ(spec.evaluate_every_epochs, 1);
}

TEST(ToTrainSpecTest, TakesEveryField) {
  v1::TrainingSpec message = Minimal();
  message.set_net("lenet-caffe");
  message.mutable_init()->set_kind(v1::Init::UNIFORM);
  message.mutable_init()->set_low(-0.05f);
  message.mutable_init()->set_high(0.05f);
  message.mutable_optimizer()->set_kind(v1::Optimizer::ADAMW);
  message.mutable_optimizer()->set_beta1(0.8);
  message.mutable_optimizer()->set_beta2(0.99);
  message.mutable_optimizer()->set_epsilon(1e-6);
  message.mutable_optimizer()->set_weight_decay(0.01);
  message.mutable_schedule()->set_kind(v1::Schedule::STEP);
  message.mutable_schedule()->set_warmup_fraction(0.1);
  message.mutable_schedule()->set_gamma(0.5);
  message.mutable_schedule()->set_step_epochs(3);
  message.set_learning_rate(0.25);
  message.set_ranks(4);
  message.set_global_batch_size(256);
  message.set_max_steps(int64_t{1} << 35);
  message.set_seed(~uint64_t{0});
  message.set_clip_norm(2.5f);
  message.set_nan_policy(v1::NAN_POLICY_CONTINUE);
  message.set_precision(v1::PRECISION_TF32);
  message.set_engine(v1::ENGINE_FUSED);
  message.set_evaluate_every_epochs(0);
  const TrainSpec spec = ToTrainSpec(message).value();
  EXPECT_EQ(spec.net, "lenet-caffe");
  EXPECT_EQ(spec.init.kind, InitKind::kUniform);
  EXPECT_EQ(spec.init.low, -0.05f);
  EXPECT_EQ(spec.init.high, 0.05f);
  EXPECT_EQ(spec.optimizer.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(spec.optimizer.beta1, 0.8);
  EXPECT_EQ(spec.optimizer.beta2, 0.99);
  EXPECT_EQ(spec.optimizer.epsilon, 1e-6);
  EXPECT_EQ(spec.optimizer.weight_decay, 0.01);
  EXPECT_EQ(spec.schedule.kind, ScheduleKind::kStep);
  EXPECT_EQ(spec.schedule.warmup_fraction, 0.1);
  EXPECT_EQ(spec.schedule.gamma, 0.5);
  EXPECT_EQ(spec.schedule.step_epochs, 3);
  EXPECT_EQ(spec.learning_rate, 0.25);
  EXPECT_EQ(spec.ranks, 4);
  EXPECT_EQ(spec.global_batch_size, 256);
  EXPECT_EQ(spec.max_steps, int64_t{1} << 35);
  EXPECT_EQ(spec.seed, ~uint64_t{0});
  EXPECT_EQ(spec.clip_norm, 2.5f);
  EXPECT_EQ(spec.nan_policy, NanPolicy::kContinue);
  EXPECT_EQ(spec.precision, Precision::kTf32);
  EXPECT_EQ(spec.engine, EngineKind::kFused);
  EXPECT_EQ(spec.evaluate_every_epochs, 0);
}

TEST(ToTrainSpecTest, AGivenOptimizerOrScheduleStartsPlain) {
  v1::TrainingSpec message = Minimal();
  message.mutable_optimizer();
  message.mutable_schedule();
  const TrainSpec spec = ToTrainSpec(message).value();
  EXPECT_EQ(spec.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(spec.optimizer.momentum, 0);
  EXPECT_FALSE(spec.optimizer.nesterov);
  EXPECT_EQ(spec.schedule.kind, ScheduleKind::kConstant);
  EXPECT_EQ(spec.schedule.warmup_fraction, 0);
}

TEST(ToTrainSpecTest, OneCycleAndCosineFields) {
  v1::TrainingSpec message = Minimal();
  message.mutable_schedule()->set_kind(v1::Schedule::ONE_CYCLE);
  message.mutable_schedule()->set_peak_fraction(0.4);
  message.mutable_schedule()->set_initial_divisor(10);
  message.mutable_schedule()->set_final_divisor(100);
  TrainSpec spec = ToTrainSpec(message).value();
  EXPECT_EQ(spec.schedule.kind, ScheduleKind::kOneCycle);
  EXPECT_EQ(spec.schedule.peak_fraction, 0.4);
  EXPECT_EQ(spec.schedule.initial_divisor, 10);
  EXPECT_EQ(spec.schedule.final_divisor, 100);
  message.clear_schedule();
  message.mutable_schedule()->set_kind(v1::Schedule::COSINE);
  message.mutable_schedule()->set_final_fraction(0.5);
  spec = ToTrainSpec(message).value();
  EXPECT_EQ(spec.schedule.kind, ScheduleKind::kCosine);
  EXPECT_EQ(spec.schedule.final_fraction, 0.5);
}

struct BadSpec {
  std::string field;  // that the message must name
  std::function<void(v1::TrainingSpec*)> make;
};

TEST(ToTrainSpecTest, RefusesWhatIsWrongByTheFieldsPath) {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<BadSpec> bad = {
      {"spec.dataset", [](auto* s) { s->clear_dataset(); }},
      {"spec.net", [](auto* s) { s->set_net("resnet"); }},
      {"spec.init.kind", [](auto* s) { s->mutable_init()->set_kind(static_cast<v1::Init::Kind>(9)); }},
      {"spec.init.low", [](auto* s) { s->mutable_init()->set_low(1); }},
      {"spec.init.high", [](auto* s) { s->mutable_init()->set_high(1); }},
      {"spec.init", [](auto* s) { s->mutable_init()->set_kind(v1::Init::UNIFORM); }},
      {"spec.optimizer.kind", [](auto* s) { s->mutable_optimizer()->set_kind(static_cast<v1::Optimizer::Kind>(-1)); }},
      {"spec.optimizer.beta1", [](auto* s) { s->mutable_optimizer()->set_beta1(0.9); }},
      {"spec.optimizer.beta2", [](auto* s) { s->mutable_optimizer()->set_beta2(0.9); }},
      {"spec.optimizer.epsilon", [](auto* s) { s->mutable_optimizer()->set_epsilon(1e-8); }},
      {"spec.optimizer.momentum",
       [](auto* s) {
         s->mutable_optimizer()->set_kind(v1::Optimizer::ADAM);
         s->mutable_optimizer()->set_momentum(0);
       }},
      {"spec.optimizer.nesterov",
       [](auto* s) {
         s->mutable_optimizer()->set_kind(v1::Optimizer::ADAMW);
         s->mutable_optimizer()->set_nesterov(false);
       }},
      {"momentum", [](auto* s) { s->mutable_optimizer()->set_momentum(1); }},
      {"momentum", [nan](auto* s) { s->mutable_optimizer()->set_momentum(nan); }},
      {"momentum", [](auto* s) { s->mutable_optimizer()->set_nesterov(true); }},
      {"weight_decay", [](auto* s) { s->mutable_optimizer()->set_weight_decay(-1); }},
      {"beta2",
       [](auto* s) {
         s->mutable_optimizer()->set_kind(v1::Optimizer::ADAM);
         s->mutable_optimizer()->set_beta2(1.5);
       }},
      {"spec.schedule.kind", [](auto* s) { s->mutable_schedule()->set_kind(static_cast<v1::Schedule::Kind>(6)); }},
      {"spec.schedule.final_fraction", [](auto* s) { s->mutable_schedule()->set_final_fraction(0.5); }},
      {"spec.schedule.gamma", [](auto* s) { s->mutable_schedule()->set_gamma(0.5); }},
      {"spec.schedule.step_epochs", [](auto* s) { s->mutable_schedule()->set_step_epochs(2); }},
      {"spec.schedule.peak_fraction", [](auto* s) { s->mutable_schedule()->set_peak_fraction(0.5); }},
      {"spec.schedule.initial_divisor", [](auto* s) { s->mutable_schedule()->set_initial_divisor(2); }},
      {"spec.schedule.final_divisor", [](auto* s) { s->mutable_schedule()->set_final_divisor(2); }},
      {"warmup_fraction", [](auto* s) { s->mutable_schedule()->set_warmup_fraction(1); }},
      {"warmup_fraction", [nan](auto* s) { s->mutable_schedule()->set_warmup_fraction(nan); }},
      {"spec.learning_rate", [](auto* s) { s->set_learning_rate(0); }},
      {"spec.learning_rate", [](auto* s) { s->set_learning_rate(-0.1); }},
      {"spec.learning_rate", [nan](auto* s) { s->set_learning_rate(nan); }},
      {"spec.learning_rate", [inf](auto* s) { s->set_learning_rate(inf); }},
      {"spec.ranks", [](auto* s) { s->set_ranks(-1); }},
      {"spec.ranks", [](auto* s) { s->set_ranks(std::numeric_limits<int32_t>::max()); }},
      {"spec.batch_size", [](auto* s) { s->set_batch_size(0); }},
      {"spec.batch_size", [](auto* s) { s->set_batch_size(-5); }},
      {"spec.global_batch_size", [](auto* s) { s->set_global_batch_size(0); }},
      {"batch_size",
       [](auto* s) {
         s->set_batch_size(64);
         s->set_global_batch_size(64);
       }},
      {"spec.epochs", [](auto* s) { s->set_epochs(0); }},
      {"spec.max_steps", [](auto* s) { s->set_max_steps(0); }},
      {"spec.max_steps", [](auto* s) { s->set_max_steps(std::numeric_limits<int64_t>::max()); }},
      {"spec.epochs",
       [](auto* s) {
         s->set_epochs(1);
         s->set_max_steps(1);
       }},
      {"spec.clip_norm", [](auto* s) { s->set_clip_norm(-1); }},
      {"spec.clip_norm", [nan](auto* s) { s->set_clip_norm(static_cast<float>(nan)); }},
      {"spec.nan_policy", [](auto* s) { s->set_nan_policy(static_cast<v1::NanPolicy>(7)); }},
      {"spec.precision", [](auto* s) { s->set_precision(static_cast<v1::Precision>(7)); }},
      {"spec.engine", [](auto* s) { s->set_engine(static_cast<v1::Engine>(7)); }},
      {"spec.evaluate_every_epochs", [](auto* s) { s->set_evaluate_every_epochs(-1); }},
  };
  for (const BadSpec& spec : bad) {
    v1::TrainingSpec message = Minimal();
    spec.make(&message);
    const absl::Status status = ToTrainSpec(message).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << message.ShortDebugString() << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(spec.field));
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("spec."));
  }
}

TEST(ToResolvedSpecTest, EchoesThePlan) {
  TrainSpec spec = ToTrainSpec(Minimal()).value();
  Dataset dataset = {.classes = 10};
  dataset.train.shape = {1, 28, 28};
  dataset.train.count = 1000;
  spec.epochs = 3;
  const v1::ResolvedSpec resolved = ToResolvedSpec(PlanTraining(spec, 2, dataset).value());
  EXPECT_EQ(resolved.ranks(), 2);
  EXPECT_EQ(resolved.batch_size(), 64);
  EXPECT_EQ(resolved.global_batch_size(), 128);
  EXPECT_EQ(resolved.steps_per_epoch(), 7);
  EXPECT_EQ(resolved.total_steps(), 21);
  EXPECT_EQ(resolved.dropped_images_per_epoch(), 1000 - 7 * 128);
  EXPECT_EQ(resolved.learning_rate(), DefaultLearningRate(spec.optimizer, 128));
  EXPECT_EQ(resolved.seed(), 1u);
  EXPECT_EQ(resolved.net(), "lenet");
  EXPECT_EQ(resolved.precision(), v1::PRECISION_FP32);
  EXPECT_EQ(resolved.optimizer().kind(), v1::Optimizer::SGD);
  EXPECT_EQ(resolved.optimizer().momentum(), 0.9);
  EXPECT_TRUE(resolved.optimizer().nesterov());
  EXPECT_EQ(resolved.schedule().kind(), v1::Schedule::LINEAR);
  EXPECT_EQ(resolved.schedule().warmup_fraction(), 0.2);
  EXPECT_EQ(resolved.clip_norm(), 1);
  EXPECT_EQ(resolved.init().kind(), v1::Init::KAIMING_UNIFORM);
  EXPECT_EQ(resolved.nan_policy(), v1::NAN_POLICY_STOP);
  EXPECT_EQ(resolved.evaluate_every_epochs(), 1);
}

TEST(ToResolvedSpecTest, EchoesWhatWasChosen) {
  v1::TrainingSpec message = Minimal();
  message.mutable_init()->set_kind(v1::Init::UNIFORM);
  message.mutable_init()->set_low(-0.5f);
  message.mutable_init()->set_high(0.25f);
  message.set_nan_policy(v1::NAN_POLICY_CONTINUE);
  message.set_evaluate_every_epochs(0);
  v1::ResolvedSpec resolved = ToResolvedSpec({.spec = ToTrainSpec(message).value()});
  EXPECT_EQ(resolved.init().SerializeAsString(), message.init().SerializeAsString());
  EXPECT_EQ(resolved.nan_policy(), v1::NAN_POLICY_CONTINUE);
  EXPECT_EQ(resolved.evaluate_every_epochs(), 0);
  message.mutable_init()->Clear();
  message.mutable_init()->set_kind(v1::Init::XAVIER_UNIFORM);
  resolved = ToResolvedSpec({.spec = ToTrainSpec(message).value()});
  EXPECT_EQ(resolved.init().SerializeAsString(), message.init().SerializeAsString());
}

TEST(ResolvedPolicyTest, TakesWhatIsWrittenAndPutsTheDefaults) {
  v1::TrainingSpec message = Minimal();
  message.clear_checkpoints();
  v1::CheckpointPolicy policy = ResolvedPolicy(message);
  EXPECT_EQ(policy.every_seconds(), 60);
  EXPECT_EQ(policy.keep_last(), 2);
  EXPECT_TRUE(policy.keep_best());
  message.mutable_checkpoints()->set_keep_best(false);
  message.mutable_checkpoints()->set_every_steps(7);
  policy = ResolvedPolicy(message);
  EXPECT_EQ(policy.every_seconds(), 0);
  EXPECT_EQ(policy.every_steps(), 7);
  EXPECT_EQ(policy.keep_last(), 2);
  EXPECT_TRUE(policy.has_keep_best() && !policy.keep_best());
}

// What a job came to can be given to a new job.
TEST(ToResolvedSpecTest, ItsOptimizerAndScheduleAreValidSpecs) {
  for (int optimizer : {v1::Optimizer::SGD, v1::Optimizer::ADAM, v1::Optimizer::ADAMW}) {
    for (int schedule = v1::Schedule::CONSTANT; schedule <= v1::Schedule::ONE_CYCLE; ++schedule) {
      v1::TrainingSpec message = Minimal();
      message.mutable_optimizer()->set_kind(static_cast<v1::Optimizer::Kind>(optimizer));
      message.mutable_schedule()->set_kind(static_cast<v1::Schedule::Kind>(schedule));
      const v1::ResolvedSpec resolved = ToResolvedSpec({.spec = ToTrainSpec(message).value()});
      EXPECT_EQ(resolved.optimizer().kind(), optimizer);
      EXPECT_EQ(resolved.schedule().kind(), schedule);
      *message.mutable_optimizer() = resolved.optimizer();
      *message.mutable_schedule() = resolved.schedule();
      const absl::StatusOr<TrainSpec> again = ToTrainSpec(message);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(ToResolvedSpec({.spec = *again}).SerializeAsString(), resolved.SerializeAsString());
    }
  }
}

TEST(ToRecordTest, CarriesEveryField) {
  const v1::MetricRecord epoch = ToRecord(EpochSummary{.epoch = 2,
                                                       .last_step = 20,
                                                       .mean_loss = 0.5,
                                                       .learning_rate = 0.1,
                                                       .seconds = 3,
                                                       .images_per_second = 400,
                                                       .images = 1200,
                                                       .dropped_images = 7});
  EXPECT_EQ(epoch.epoch_summary().ShortDebugString(),
            "epoch: 2 last_step: 20 mean_loss: 0.5 learning_rate: 0.1 seconds: 3 images_per_second: 400 images: 1200 "
            "dropped_images: 7");
  const v1::MetricRecord evaluation =
      ToRecord(Evaluation{.epoch = 2, .step = 20, .count = 8, .correct = 6, .mean_loss = 0.25, .seconds = 1});
  EXPECT_EQ(evaluation.evaluation().ShortDebugString(),
            "epoch: 2 step: 20 count: 8 correct: 6 accuracy: 0.75 mean_loss: 0.25 seconds: 1");
  const v1::MetricRecord saved =
      ToRecord(CheckpointSaved{.step = 20, .epoch = 2, .path = "/a/b", .bytes = 99, .weights_checksum = 5});
  EXPECT_EQ(saved.checkpoint_saved().ShortDebugString(),
            "step: 20 epoch: 2 path: \"/a/b\" bytes: 99 weights_checksum: 5");
  EXPECT_EQ(ToWarning("w").warning().message(), "w");
  const v1::Failure failure = ToMessage(
      RankFailure{.rank = 1, .step = 3, .phase = "step", .status = absl::ResourceExhaustedError("no memory")});
  EXPECT_EQ(failure.ShortDebugString(),
            "rank: 1 step: 3 phase: \"step\" code: \"RESOURCE_EXHAUSTED\" message: \"no memory\"");
}

TEST(ToRecordTest, TextFromElsewhereIsBoundedAndOnOneLine) {
  const std::string hostile = "a\nb\u202e" + std::string(1 << 20, 'x');
  const std::string warning = ToWarning(hostile).warning().message();
  EXPECT_EQ(warning.size(), kMaxShownBytes);
  EXPECT_EQ(warning.substr(0, 12), "a\\nb\\u202exx");
  EXPECT_EQ(ToMessage(RankFailure{.status = absl::DataLossError(hostile)}).message(), warning);
}

}  // namespace
}  // namespace lenet
