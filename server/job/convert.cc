#include "server/job/convert.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"
#include "trainer/base/status.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

constexpr double kDefaultCheckpointSeconds = 60;
constexpr int kDefaultKeepLast = 2;

absl::Status UnknownValue(absl::string_view field, int value) {
  return absl::InvalidArgumentError(absl::StrCat("spec.", field, " = ", value, ": is no value of this enum"));
}

absl::Status Misplaced(absl::string_view field, absl::string_view kinds) {
  return absl::InvalidArgumentError(absl::StrCat("spec.", field, ": is given, but belongs to ", kinds, " alone"));
}

absl::Status CheckKnown(const google::protobuf::Message& message, const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path.empty() ? "request" : path, ": this server does not know field number ", unknown.field(0).number()));
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string field_path = path.empty() ? field->name() : absl::StrCat(path, ".", field->name());
    if (!field->is_repeated()) {
      LENET_RETURN_IF_ERROR(CheckKnown(reflection.GetMessage(message, field), field_path));
    } else {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        LENET_RETURN_IF_ERROR(CheckKnown(reflection.GetRepeatedMessage(message, field, i), field_path));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<InitSpec> ToInit(const v1::Init& message) {
  InitSpec init;
  switch (message.kind()) {
    case v1::Init::KIND_UNSPECIFIED:
    case v1::Init::KAIMING_UNIFORM:
      break;
    case v1::Init::XAVIER_UNIFORM:
      init.kind = InitKind::kXavierUniform;
      break;
    case v1::Init::UNIFORM:
      init.kind = InitKind::kUniform;
      break;
    default:
      return UnknownValue("init.kind", message.kind());
  }
  if (init.kind != InitKind::kUniform) {
    if (message.low() != 0) return Misplaced("init.low", "UNIFORM");
    if (message.high() != 0) return Misplaced("init.high", "UNIFORM");
  }
  init.low = message.low();
  init.high = message.high();
  return init;
}

absl::StatusOr<OptimizerSpec> ToOptimizer(const v1::Optimizer& message) {
  OptimizerSpec optimizer;
  switch (message.kind()) {
    case v1::Optimizer::KIND_UNSPECIFIED:
    case v1::Optimizer::SGD:
      break;
    case v1::Optimizer::ADAM:
      optimizer.kind = OptimizerKind::kAdam;
      break;
    case v1::Optimizer::ADAMW:
      optimizer.kind = OptimizerKind::kAdamW;
      break;
    default:
      return UnknownValue("optimizer.kind", message.kind());
  }
  if (optimizer.kind == OptimizerKind::kSgd) {
    if (message.has_beta1()) return Misplaced("optimizer.beta1", "ADAM and ADAMW");
    if (message.has_beta2()) return Misplaced("optimizer.beta2", "ADAM and ADAMW");
    if (message.has_epsilon()) return Misplaced("optimizer.epsilon", "ADAM and ADAMW");
    optimizer.momentum = message.momentum();
    optimizer.nesterov = message.nesterov();
  } else {
    if (message.has_momentum()) return Misplaced("optimizer.momentum", "SGD");
    if (message.has_nesterov()) return Misplaced("optimizer.nesterov", "SGD");
    if (message.has_beta1()) optimizer.beta1 = message.beta1();
    if (message.has_beta2()) optimizer.beta2 = message.beta2();
    if (message.has_epsilon()) optimizer.epsilon = message.epsilon();
  }
  optimizer.weight_decay = message.weight_decay();
  return optimizer;
}

absl::StatusOr<ScheduleSpec> ToSchedule(const v1::Schedule& message) {
  ScheduleSpec schedule;
  switch (message.kind()) {
    case v1::Schedule::KIND_UNSPECIFIED:
    case v1::Schedule::CONSTANT:
      break;
    case v1::Schedule::STEP:
      schedule.kind = ScheduleKind::kStep;
      break;
    case v1::Schedule::COSINE:
      schedule.kind = ScheduleKind::kCosine;
      break;
    case v1::Schedule::LINEAR:
      schedule.kind = ScheduleKind::kLinear;
      break;
    case v1::Schedule::ONE_CYCLE:
      schedule.kind = ScheduleKind::kOneCycle;
      break;
    default:
      return UnknownValue("schedule.kind", message.kind());
  }
  const bool decays = schedule.kind == ScheduleKind::kCosine || schedule.kind == ScheduleKind::kLinear;
  if (message.final_fraction() != 0 && !decays) return Misplaced("schedule.final_fraction", "COSINE and LINEAR");
  if (schedule.kind != ScheduleKind::kStep) {
    if (message.has_gamma()) return Misplaced("schedule.gamma", "STEP");
    if (message.has_step_epochs()) return Misplaced("schedule.step_epochs", "STEP");
  }
  if (schedule.kind != ScheduleKind::kOneCycle) {
    if (message.has_peak_fraction()) return Misplaced("schedule.peak_fraction", "ONE_CYCLE");
    if (message.has_initial_divisor()) return Misplaced("schedule.initial_divisor", "ONE_CYCLE");
    if (message.has_final_divisor()) return Misplaced("schedule.final_divisor", "ONE_CYCLE");
  }
  schedule.warmup_fraction = message.warmup_fraction();
  schedule.final_fraction = message.final_fraction();
  if (message.has_gamma()) schedule.gamma = message.gamma();
  if (message.has_step_epochs()) schedule.step_epochs = message.step_epochs();
  if (message.has_peak_fraction()) schedule.peak_fraction = message.peak_fraction();
  if (message.has_initial_divisor()) schedule.initial_divisor = message.initial_divisor();
  if (message.has_final_divisor()) schedule.final_divisor = message.final_divisor();
  return schedule;
}

CheckpointPolicy ToPolicy(const v1::CheckpointPolicy& policy) {
  return {.every_epochs = policy.every_epochs(),
          .every_steps = policy.every_steps(),
          .every_seconds = policy.every_seconds()};
}

v1::Init ToMessage(const InitSpec& init) {
  v1::Init message;
  switch (init.kind) {
    case InitKind::kKaimingUniform:
      message.set_kind(v1::Init::KAIMING_UNIFORM);
      break;
    case InitKind::kXavierUniform:
      message.set_kind(v1::Init::XAVIER_UNIFORM);
      break;
    case InitKind::kUniform:
      message.set_kind(v1::Init::UNIFORM);
      message.set_low(init.low);
      message.set_high(init.high);
      break;
  }
  return message;
}

v1::Optimizer ToMessage(const OptimizerSpec& optimizer) {
  v1::Optimizer message;
  if (optimizer.kind == OptimizerKind::kSgd) {
    message.set_kind(v1::Optimizer::SGD);
    message.set_momentum(optimizer.momentum);
    message.set_nesterov(optimizer.nesterov);
  } else {
    message.set_kind(optimizer.kind == OptimizerKind::kAdam ? v1::Optimizer::ADAM : v1::Optimizer::ADAMW);
    message.set_beta1(optimizer.beta1);
    message.set_beta2(optimizer.beta2);
    message.set_epsilon(optimizer.epsilon);
  }
  message.set_weight_decay(optimizer.weight_decay);
  return message;
}

v1::Schedule ToMessage(const ScheduleSpec& schedule) {
  v1::Schedule message;
  message.set_warmup_fraction(schedule.warmup_fraction);
  switch (schedule.kind) {
    case ScheduleKind::kConstant:
      message.set_kind(v1::Schedule::CONSTANT);
      break;
    case ScheduleKind::kStep:
      message.set_kind(v1::Schedule::STEP);
      message.set_gamma(schedule.gamma);
      message.set_step_epochs(schedule.step_epochs);
      break;
    case ScheduleKind::kCosine:
      message.set_kind(v1::Schedule::COSINE);
      message.set_final_fraction(schedule.final_fraction);
      break;
    case ScheduleKind::kLinear:
      message.set_kind(v1::Schedule::LINEAR);
      message.set_final_fraction(schedule.final_fraction);
      break;
    case ScheduleKind::kOneCycle:
      message.set_kind(v1::Schedule::ONE_CYCLE);
      message.set_peak_fraction(schedule.peak_fraction);
      message.set_initial_divisor(schedule.initial_divisor);
      message.set_final_divisor(schedule.final_divisor);
      break;
  }
  return message;
}

}  // namespace

absl::Status CheckFieldsKnown(const v1::StartRequest& request) { return CheckKnown(request, ""); }

absl::StatusOr<TrainSpec> ToTrainSpec(const v1::TrainingSpec& message) {
  TrainSpec spec;
  spec.dataset = message.dataset();
  if (!message.net().empty()) spec.net = message.net();
  if (message.has_init()) {
    LENET_ASSIGN_OR_RETURN(spec.init, ToInit(message.init()));
  }
  if (message.has_optimizer()) {
    LENET_ASSIGN_OR_RETURN(spec.optimizer, ToOptimizer(message.optimizer()));
  }
  if (message.has_schedule()) {
    LENET_ASSIGN_OR_RETURN(spec.schedule, ToSchedule(message.schedule()));
  }
  if (message.has_learning_rate()) spec.learning_rate = message.learning_rate();
  spec.ranks = message.ranks();
  if (message.has_batch_size()) spec.batch_size = message.batch_size();
  if (message.has_global_batch_size()) spec.global_batch_size = message.global_batch_size();
  if (message.has_epochs()) spec.epochs = message.epochs();
  if (message.has_max_steps()) spec.max_steps = message.max_steps();
  if (message.has_seed()) spec.seed = message.seed();
  if (message.has_clip_norm()) spec.clip_norm = message.clip_norm();
  if (!v1::NanPolicy_IsValid(message.nan_policy())) return UnknownValue("nan_policy", message.nan_policy());
  if (message.nan_policy() == v1::NAN_POLICY_CONTINUE) spec.nan_policy = NanPolicy::kContinue;
  if (!v1::Precision_IsValid(message.precision())) return UnknownValue("precision", message.precision());
  if (message.precision() == v1::PRECISION_TF32) spec.precision = Precision::kTf32;
  if (!v1::Engine_IsValid(message.engine())) return UnknownValue("engine", message.engine());
  if (message.engine() == v1::ENGINE_LAYERED) spec.engine = EngineKind::kLayered;
  if (message.engine() == v1::ENGINE_FUSED) spec.engine = EngineKind::kFused;
  if (message.has_evaluate_every_epochs()) spec.evaluate_every_epochs = message.evaluate_every_epochs();
  spec.checkpoints = ToPolicy(ResolvedPolicy(message));
  spec.max_duration = message.max_duration();
  if (message.has_target_accuracy()) spec.target_accuracy = message.target_accuracy();
  spec.patience = message.patience();

  const absl::Status valid = ValidateTrainSpec(spec);
  if (!valid.ok()) return absl::Status(valid.code(), absl::StrCat("spec.", valid.message()));
  return spec;
}

v1::CheckpointPolicy ResolvedPolicy(const v1::TrainingSpec& message) {
  v1::CheckpointPolicy policy = message.checkpoints();
  if (!message.has_checkpoints()) policy.set_every_seconds(kDefaultCheckpointSeconds);
  if (!policy.has_keep_last()) policy.set_keep_last(kDefaultKeepLast);
  if (!policy.has_keep_best()) policy.set_keep_best(true);
  return policy;
}

v1::ResolvedSpec ToResolvedSpec(const TrainPlan& plan) {
  v1::ResolvedSpec message;
  message.set_ranks(plan.ranks);
  message.set_batch_size(plan.batch_size);
  message.set_global_batch_size(plan.global_batch_size);
  message.set_learning_rate(plan.learning_rate);
  message.set_steps_per_epoch(plan.steps_per_epoch);
  message.set_total_steps(plan.total_steps);
  message.set_dropped_images_per_epoch(plan.dropped_per_epoch);
  message.set_seed(plan.spec.seed);
  *message.mutable_optimizer() = ToMessage(plan.spec.optimizer);
  *message.mutable_schedule() = ToMessage(plan.spec.schedule);
  message.set_clip_norm(plan.spec.clip_norm);
  message.set_net(plan.spec.net);
  message.set_precision(plan.spec.precision == Precision::kTf32 ? v1::PRECISION_TF32 : v1::PRECISION_FP32);
  *message.mutable_init() = ToMessage(plan.spec.init);
  message.set_nan_policy(plan.spec.nan_policy == NanPolicy::kContinue ? v1::NAN_POLICY_CONTINUE : v1::NAN_POLICY_STOP);
  message.set_evaluate_every_epochs(plan.spec.evaluate_every_epochs);
  return message;
}

v1::MetricRecord ToRecord(const EpochSummary& summary) {
  v1::MetricRecord record;
  v1::EpochSummary& message = *record.mutable_epoch_summary();
  message.set_epoch(summary.epoch);
  message.set_last_step(summary.last_step);
  message.set_mean_loss(summary.mean_loss);
  message.set_learning_rate(summary.learning_rate);
  message.set_seconds(summary.seconds);
  message.set_images_per_second(summary.images_per_second);
  message.set_images(summary.images);
  message.set_dropped_images(summary.dropped_images);
  return record;
}

v1::MetricRecord ToRecord(const Evaluation& evaluation) {
  v1::MetricRecord record;
  *record.mutable_evaluation() = ToMessage(evaluation);
  return record;
}

v1::MetricRecord ToRecord(const CheckpointSaved& saved) {
  v1::MetricRecord record;
  v1::CheckpointSaved& message = *record.mutable_checkpoint_saved();
  message.set_step(saved.step);
  message.set_epoch(saved.epoch);
  message.set_path(ValidUtf8(saved.path.string()));
  message.set_bytes(saved.bytes);
  message.set_weights_checksum(saved.weights_checksum);
  if (saved.accuracy) message.set_accuracy(*saved.accuracy);
  return record;
}

v1::MetricRecord ToWarning(absl::string_view message) {
  v1::MetricRecord record;
  record.mutable_warning()->set_message(Shown(message));
  return record;
}

v1::Evaluation ToMessage(const Evaluation& evaluation) {
  v1::Evaluation message;
  message.set_epoch(evaluation.epoch);
  message.set_step(evaluation.step);
  message.set_count(evaluation.count);
  message.set_correct(evaluation.correct);
  message.set_accuracy(evaluation.accuracy());
  message.set_mean_loss(evaluation.mean_loss);
  message.set_seconds(evaluation.seconds);
  return message;
}

v1::Failure ToMessage(const RankFailure& failure) {
  v1::Failure message;
  message.set_rank(failure.rank);
  message.set_step(failure.step);
  message.set_phase(failure.phase);
  message.set_code(absl::StatusCodeToString(failure.status.code()));
  message.set_message(Shown(failure.status.message()));
  return message;
}

}  // namespace lenet
