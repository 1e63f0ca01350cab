#include "trainer/train/train_spec.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/base/status.h"
#include "trainer/data/sampler.h"

namespace lenet {
namespace {

constexpr int kDefaultBatch = 64;
constexpr int kDefaultEpochs = 10;
constexpr double kMinLearningRate = 1e-37;  // as a float it would else be subnormal or 0
constexpr double kMaxLearningRate = 1e6;

const char* InitName(InitKind kind) {
  switch (kind) {
    case InitKind::kKaimingUniform:
      return "kaiming_uniform";
    case InitKind::kXavierUniform:
      return "xavier_uniform";
    case InitKind::kUniform:
      return "uniform";
  }
  return "";
}

const char* OptimizerName(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kAdamW:
      return "adamw";
  }
  return "";
}

const char* ScheduleName(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kConstant:
      return "constant";
    case ScheduleKind::kStep:
      return "step";
    case ScheduleKind::kCosine:
      return "cosine";
    case ScheduleKind::kLinear:
      return "linear";
    case ScheduleKind::kOneCycle:
      return "one_cycle";
  }
  return "";
}

absl::Status CheckSeconds(absl::string_view field, double seconds) {
  if (seconds >= 0 && std::isfinite(seconds)) return absl::OkStatus();
  return BadValue(field, seconds, "finite and at least 0 (0: off)");
}

absl::Status ValidateCheckpoints(const CheckpointPolicy& checkpoints) {
  if (checkpoints.every_epochs < 0) {
    return BadValue("checkpoints.every_epochs", checkpoints.every_epochs, "at least 0 (0: off)");
  }
  if (checkpoints.every_steps < 0 || checkpoints.every_steps > kMaxSteps) {
    return BadValue("checkpoints.every_steps", checkpoints.every_steps, absl::StrCat("0 (off) to ", kMaxSteps));
  }
  return CheckSeconds("checkpoints.every_seconds", checkpoints.every_seconds);
}

absl::Status ValidateEarlyEnds(const TrainSpec& spec) {
  LENET_RETURN_IF_ERROR(CheckSeconds("max_duration", spec.max_duration));
  if (spec.target_accuracy && !(*spec.target_accuracy > 0 && *spec.target_accuracy <= 1)) {
    return BadValue("target_accuracy", *spec.target_accuracy, "in (0, 1]");
  }
  if (spec.patience < 0) return BadValue("patience", spec.patience, "at least 0 (0: off)");
  if ((spec.target_accuracy || spec.patience > 0) && spec.evaluate_every_epochs == 0) {
    return BadValue("evaluate_every_epochs", 0,
                    absl::StrCat("at least 1 with ", spec.target_accuracy ? "target_accuracy" : "patience"));
  }
  return absl::OkStatus();
}

absl::Status BothGiven(absl::string_view a, absl::string_view b) {
  return absl::InvalidArgumentError(absl::StrCat(a, ": is given beside ", b, ": give one of them"));
}

}  // namespace

// Found by trainings of 10 epochs on MNIST and Fashion-MNIST with batches of 8 to 4096, with the warm-up, decay and
// clipping that are the defaults: the best rate grows faster than the square root of the global batch and slower than
// the batch itself. Beyond about 1400 images no larger rate helps. SGD's rate counts as rate / (1 - momentum) until
// about 0.3, where steps without momentum are as large as they may be.
double DefaultLearningRate(const OptimizerSpec& optimizer, int global_batch) {
  const double scale = std::min(8.0, std::pow(static_cast<double>(global_batch) / kDefaultBatch, 2.0 / 3.0));
  if (optimizer.kind != OptimizerKind::kSgd) return 0.002 * scale;
  // In thousandths, so that a momentum of three decimals gives the rate that decimal arithmetic gives.
  return std::min(0.3, 0.7 * (1000 - 1000 * optimizer.momentum) / 1000) * scale;
}

absl::Status ValidateTrainSpec(const TrainSpec& spec) {
  if (spec.dataset.empty()) return absl::InvalidArgumentError("dataset = \"\": must name a data set");
  const std::vector<std::string> nets = PresetNames();
  if (std::find(nets.begin(), nets.end(), spec.net) == nets.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("net = \"", spec.net, "\": must be one of ", absl::StrJoin(nets, ", ")));
  }
  if (spec.ranks < 0 || spec.ranks > kMaxRanks) {
    return BadValue("ranks", spec.ranks, absl::StrCat("0 (one on every device) to ", kMaxRanks));
  }
  if (spec.batch_size && spec.global_batch_size) return BothGiven("batch_size", "global_batch_size");
  if (spec.batch_size && *spec.batch_size < 1) return BadValue("batch_size", *spec.batch_size, "at least 1");
  if (spec.global_batch_size && *spec.global_batch_size < 1) {
    return BadValue("global_batch_size", *spec.global_batch_size, "at least 1");
  }
  if (spec.epochs && spec.max_steps) return BothGiven("epochs", "max_steps");
  if (spec.epochs && *spec.epochs < 1) return BadValue("epochs", *spec.epochs, "at least 1");
  if (spec.max_steps && (*spec.max_steps < 1 || *spec.max_steps > kMaxSteps)) {
    return BadValue("max_steps", *spec.max_steps, absl::StrCat("1 to ", kMaxSteps));
  }
  if (spec.learning_rate && !(*spec.learning_rate >= kMinLearningRate && *spec.learning_rate <= kMaxLearningRate)) {
    return BadValue("learning_rate", *spec.learning_rate,
                    absl::StrCat("in [", kMinLearningRate, ", ", kMaxLearningRate, "]"));
  }
  if (!(spec.clip_norm >= 0 && std::isfinite(spec.clip_norm))) {
    return BadValue("clip_norm", spec.clip_norm, "finite and at least 0 (0: off)");
  }
  if (spec.evaluate_every_epochs < 0) {
    return BadValue("evaluate_every_epochs", spec.evaluate_every_epochs, "at least 0 (0: at the end alone)");
  }
  LENET_RETURN_IF_ERROR(ValidateCheckpoints(spec.checkpoints));
  LENET_RETURN_IF_ERROR(ValidateEarlyEnds(spec));
  LENET_RETURN_IF_ERROR(ValidateInit(spec.init));
  LENET_RETURN_IF_ERROR(ValidateOptimizer(spec.optimizer));
  return ValidateSchedule(spec.schedule);
}

absl::StatusOr<TrainPlan> PlanTraining(const TrainSpec& spec, int ranks, const Dataset& dataset) {
  LENET_RETURN_IF_ERROR(ValidateTrainSpec(spec));
  if (ranks < 1 || ranks > kMaxRanks) return BadValue("ranks", ranks, absl::StrCat("1 to ", kMaxRanks));
  if (spec.ranks != 0 && spec.ranks != ranks)
    return BadValue("ranks", spec.ranks, absl::StrCat(ranks, ", those that run"));

  const int64_t images = dataset.train.count;
  if (ranks > images) return BadValue("ranks", ranks, absl::StrCat("1 to ", images, " (the training images)"));
  int64_t batch = spec.batch_size.value_or(kDefaultBatch);
  if (spec.global_batch_size) {
    const int64_t global = *spec.global_batch_size;
    if (global % ranks != 0)
      return BadValue("global_batch_size", global, absl::StrCat("a multiple of the ", ranks, " ranks"));
    if (global > images) {
      return BadValue("global_batch_size", global, absl::StrCat(ranks, " to ", images, " (the training images)"));
    }
    batch = global / ranks;
  } else if (batch * ranks > images) {
    const std::string shared = ranks > 1 ? absl::StrCat(" / ", ranks, " ranks") : "";
    return BadValue("batch_size", batch,
                    absl::StrCat("1 to ", images / ranks, " (", images, " training images", shared, ")"));
  }

  TrainPlan plan = {.spec = spec, .ranks = ranks, .batch_size = static_cast<int>(batch), .classes = dataset.classes};
  plan.global_batch_size = static_cast<int>(batch * ranks);
  const EpochSampler sampler(spec.seed, images, ranks, plan.batch_size);
  plan.steps_per_epoch = sampler.steps_per_epoch();
  plan.dropped_per_epoch = sampler.dropped_per_epoch();

  if (spec.max_steps) {
    plan.total_steps = *spec.max_steps;
  } else {
    const int64_t epochs = spec.epochs.value_or(kDefaultEpochs);
    if (epochs > kMaxSteps / plan.steps_per_epoch) {
      return BadValue("epochs", epochs,
                      absl::StrCat("1 to ", kMaxSteps / plan.steps_per_epoch, " (", kMaxSteps, " steps)"));
    }
    plan.total_steps = epochs * plan.steps_per_epoch;
    plan.spec.epochs = static_cast<int>(epochs);
  }
  if (!spec.global_batch_size) plan.spec.batch_size = plan.batch_size;
  plan.learning_rate = spec.learning_rate.value_or(DefaultLearningRate(spec.optimizer, plan.global_batch_size));
  plan.spec.learning_rate = plan.learning_rate;
  plan.spec.ranks = ranks;

  LENET_ASSIGN_OR_RETURN(NetSpec net, PresetNet(spec.net, dataset.train.shape, dataset.classes));
  LENET_RETURN_IF_ERROR(Net::Create(std::move(net)).status());
  return plan;
}

std::string TrainSpecJson(const TrainSpec& spec) {
  nlohmann::ordered_json json = {{"dataset", spec.dataset}, {"net", spec.net}};
  json["init"] = {{"kind", InitName(spec.init.kind)}};
  if (spec.init.kind == InitKind::kUniform) {
    json["init"]["low"] = spec.init.low;
    json["init"]["high"] = spec.init.high;
  }
  nlohmann::ordered_json& optimizer = json["optimizer"] = {{"kind", OptimizerName(spec.optimizer.kind)}};
  if (spec.optimizer.kind == OptimizerKind::kSgd) {
    optimizer["momentum"] = spec.optimizer.momentum;
    optimizer["nesterov"] = spec.optimizer.nesterov;
  } else {
    optimizer["beta1"] = spec.optimizer.beta1;
    optimizer["beta2"] = spec.optimizer.beta2;
    optimizer["epsilon"] = spec.optimizer.epsilon;
  }
  optimizer["weight_decay"] = spec.optimizer.weight_decay;
  const ScheduleSpec& schedule = spec.schedule;
  json["schedule"] = {{"kind", ScheduleName(schedule.kind)},         {"warmup_fraction", schedule.warmup_fraction},
                      {"final_fraction", schedule.final_fraction},   {"gamma", schedule.gamma},
                      {"step_epochs", schedule.step_epochs},         {"peak_fraction", schedule.peak_fraction},
                      {"initial_divisor", schedule.initial_divisor}, {"final_divisor", schedule.final_divisor}};
  if (spec.learning_rate) json["learning_rate"] = *spec.learning_rate;
  json["ranks"] = spec.ranks;
  if (spec.batch_size) json["batch_size"] = *spec.batch_size;
  if (spec.global_batch_size) json["global_batch_size"] = *spec.global_batch_size;
  if (spec.epochs) json["epochs"] = *spec.epochs;
  if (spec.max_steps) json["max_steps"] = *spec.max_steps;
  json["seed"] = spec.seed;
  json["clip_norm"] = spec.clip_norm;
  json["nan_policy"] = spec.nan_policy == NanPolicy::kStop ? "stop" : "continue";
  json["precision"] = spec.precision == Precision::kFp32 ? "fp32" : "tf32";
  if (spec.engine != EngineKind::kAuto) json["engine"] = spec.engine == EngineKind::kFused ? "fused" : "layered";
  json["evaluate_every_epochs"] = spec.evaluate_every_epochs;
  const CheckpointPolicy& checkpoints = spec.checkpoints;
  if (checkpoints.every_epochs > 0) json["checkpoints"]["every_epochs"] = checkpoints.every_epochs;
  if (checkpoints.every_steps > 0) json["checkpoints"]["every_steps"] = checkpoints.every_steps;
  if (checkpoints.every_seconds > 0) json["checkpoints"]["every_seconds"] = checkpoints.every_seconds;
  if (spec.max_duration > 0) json["max_duration"] = spec.max_duration;
  if (spec.target_accuracy) json["target_accuracy"] = *spec.target_accuracy;
  if (spec.patience > 0) json["patience"] = spec.patience;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lenet
