#include "client/ctl/spec_flags.h"

#include <map>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/ctl/value_flags.h"

namespace lenet::ctl {
namespace {

// A flag whose values are the names in `kinds`.
template <typename Enum>
void AddEnum(CLI::App* command, const std::string& flag, std::optional<Enum>* value,
             const std::map<std::string, Enum>& kinds, const std::string& help, const std::string& group) {
  std::string names;
  for (const auto& [name, kind] : kinds) absl::StrAppend(&names, names.empty() ? "" : "|", name);
  AddValue(command, flag, names, help, [=](const std::string& name) {
    const auto found = kinds.find(name);
    if (found == kinds.end()) return absl::StrCat("\"", name, "\" is none of ", names);
    *value = found->second;
    return std::string();
  })->group(group);
}

// The flags --NAME and --no-NAME, of which one may be given.
void AddSwitch(CLI::App* command, const std::string& name, const std::string& help, const std::string& no_help,
               std::optional<bool>* value, const std::string& group) {
  const auto add = [&](const std::string& flag, bool meaning, const std::string& text) {
    return command
        ->add_flag_function(
            flag, [=](int64_t) { *value = meaning; }, text)
        ->group(group);
  };
  CLI::Option* yes = add("--" + name, true, help);
  add("--no-" + name, false, no_help)->excludes(yes);
}

}  // namespace

std::string ParseInit(const std::string& text, v1::Init* init) {
  if (text == "kaiming-uniform") {
    init->set_kind(v1::Init::KAIMING_UNIFORM);
    return "";
  }
  if (text == "xavier-uniform") {
    init->set_kind(v1::Init::XAVIER_UNIFORM);
    return "";
  }
  absl::string_view bounds = text;
  if (absl::ConsumePrefix(&bounds, "uniform:")) {
    const std::vector<std::string> parts = absl::StrSplit(bounds, ',');
    float low;
    float high;
    if (parts.size() == 2 && ParseNumber(parts[0], &low).empty() && ParseNumber(parts[1], &high).empty()) {
      init->set_kind(v1::Init::UNIFORM);
      init->set_low(low);
      init->set_high(high);
      return "";
    }
  }
  return absl::StrCat("\"", text, "\" is none of kaiming-uniform, xavier-uniform, uniform:LOW,HIGH");
}

void SpecFlags::AddTo(CLI::App* command) {
  const std::string what = "What to train";
  AddText(command, "--dataset", "NAME",
          "As `lenetctl datasets` names it; default: fashion-mnist if the server has it, else its only one", &dataset_)
      ->group(what);
  AddText(command, "--net", "NAME", "lenet (default), lenet5-classic or lenet-caffe", &net_)->group(what);
  AddValue(command, "--init", "kaiming-uniform|xavier-uniform|uniform:LOW,HIGH",
           "Initial weights; default kaiming-uniform, as PyTorch",
           [this](const std::string& text) { return ParseInit(text, &init_); })
      ->group(what);
  AddNumber(command, "--seed", "Decides initial weights and sample order; default 1", &seed_)->group(what);

  const std::string length = "Length and batch";
  AddNumber(command, "--epochs", "Passes over the training set; default 10", &epochs_)->group(length);
  AddNumber(command, "--max-steps", "Length in steps, instead of --epochs", &max_steps_)->group(length);
  AddNumber(command, "--batch-size", "Images a rank takes in a step; default 64", &batch_size_)->group(length);
  AddNumber(command, "--global-batch-size", "Images of all ranks together, instead", &global_batch_size_)
      ->group(length);
  AddNumber(command, "--evaluate-every", "Epochs from one evaluation to the next; default 1; 0: at the end alone",
            &evaluate_every_)
      ->group(length);

  const std::string where = "Where to train";
  AddNumber(command, "--ranks", "Data-parallel ranks, one a device; default: one on every device", &ranks_)
      ->group(where);
  AddIntList(command, "--devices", "ID,...", "Devices by id, one a rank: 0,1; default: the server chooses", &devices_)
      ->group(where);
  AddEnum<v1::Precision>(command, "--precision", &precision_,
                         {{"fp32", v1::PRECISION_FP32}, {"tf32", v1::PRECISION_TF32}}, "Default fp32; tf32: CUDA alone",
                         where);
  AddEnum<v1::Engine>(command, "--engine", &engine_,
                      {{"auto", v1::ENGINE_UNSPECIFIED}, {"layered", v1::ENGINE_LAYERED}, {"fused", v1::ENGINE_FUSED}},
                      "Default auto: fused on one rank where that serves the job", where);

  AddOptimizer(command);
  AddSchedule(command);

  const std::string gradient = "Gradient";
  AddNumber(command, "--clip-norm", "Bound on its 2-norm; default 1; 0: none", &clip_norm_)->group(gradient);
  AddEnum<v1::NanPolicy>(command, "--nan-policy", &nan_policy_,
                         {{"stop", v1::NAN_POLICY_STOP}, {"continue", v1::NAN_POLICY_CONTINUE}},
                         "Whether a loss that is not finite fails the job; default stop", gradient);

  AddEnds(command);
  AddCheckpoints(command);
  AddQueue(command);
}

void SpecFlags::AddOptimizer(CLI::App* command) {
  const std::string group = "Optimizer (with none of these: sgd, momentum 0.9, Nesterov; formulas as PyTorch)";
  AddEnum<v1::Optimizer::Kind>(
      command, "--optimizer", &optimizer_,
      {{"sgd", v1::Optimizer::SGD}, {"adam", v1::Optimizer::ADAM}, {"adamw", v1::Optimizer::ADAMW}}, "Default sgd",
      group);
  AddNumber(command, "--momentum", "sgd; in [0, 1); default 0 once any flag of this group is given", &momentum_)
      ->group(group);
  AddSwitch(command, "nesterov", "sgd; needs a momentum above 0",
            "sgd; the default once any flag of this group is given", &nesterov_, group);
  AddNumber(command, "--weight-decay", "At least 0; adamw: decoupled; default 0", &weight_decay_)->group(group);
  AddNumber(command, "--beta1", "adam, adamw; in [0, 1); default 0.9", &beta1_)->group(group);
  AddNumber(command, "--beta2", "adam, adamw; in [0, 1); default 0.999", &beta2_)->group(group);
  AddNumber(command, "--epsilon", "adam, adamw; above 0; default 1e-8", &epsilon_)->group(group);
}

void SpecFlags::AddSchedule(CLI::App* command) {
  const std::string group =
      "Learning rate (with none of these but --lr: linear decay to 0 after a warm-up over a fifth of the steps)";
  AddNumber(command, "--lr", "Peak rate; default: follows the optimizer and the global batch", &learning_rate_)
      ->group(group);
  AddEnum<v1::Schedule::Kind>(command, "--schedule", &schedule_,
                              {{"constant", v1::Schedule::CONSTANT},
                               {"step", v1::Schedule::STEP},
                               {"cosine", v1::Schedule::COSINE},
                               {"linear", v1::Schedule::LINEAR},
                               {"one-cycle", v1::Schedule::ONE_CYCLE}},
                              "Default constant once another flag of this group but --lr is given", group);
  AddNumber(command, "--warmup", "Share of the steps that rise to the rate; in [0, 1); default 0", &warmup_)
      ->group(group);
  AddNumber(command, "--final-fraction", "cosine, linear: the last rate's share; in [0, 1]; default 0",
            &final_fraction_)
      ->group(group);
  AddNumber(command, "--gamma", "step: factor; in (0, 1]; default 0.1", &gamma_)->group(group);
  AddNumber(command, "--step-epochs", "step: epochs from one drop to the next; default 1", &step_epochs_)->group(group);
  AddNumber(command, "--peak-fraction", "one-cycle: share of the steps that rise; in (0, 1); default 0.3",
            &peak_fraction_)
      ->group(group);
  AddNumber(command, "--initial-divisor", "one-cycle: peak by first rate; at least 1; default 25", &initial_divisor_)
      ->group(group);
  AddNumber(command, "--final-divisor", "one-cycle: first by last rate; at least 1; default 1e4", &final_divisor_)
      ->group(group);
}

void SpecFlags::AddEnds(CLI::App* command) {
  const std::string group = "Early end (as if all steps were done)";
  AddNumber(command, "--max-duration", "After so many seconds of training, all attempts together", &max_duration_)
      ->group(group);
  AddNumber(command, "--target-accuracy", "Once an evaluation reaches it; in (0, 1]", &target_accuracy_)->group(group);
  AddNumber(command, "--patience", "After so many evaluations in a row without a better one", &patience_)->group(group);
}

void SpecFlags::AddCheckpoints(CLI::App* command) {
  const std::string group =
      "Checkpoints (with none of these: every 60 s; with any: as they say; at the job's end always)";
  AddNumber(command, "--checkpoint-epochs", "After every so many epochs", &checkpoint_epochs_)->group(group);
  AddNumber(command, "--checkpoint-steps", "After every so many steps", &checkpoint_steps_)->group(group);
  AddNumber(command, "--checkpoint-seconds", "Every so many seconds", &checkpoint_seconds_)->group(group);
  AddNumber(command, "--keep-checkpoints", "Keep the newest so many; default 2", &keep_checkpoints_)->group(group);
  AddSwitch(command, "keep-best", "Keep the one of the best accuracy too; the default", "Keep the newest alone",
            &keep_best_, group);
}

void SpecFlags::AddQueue(CLI::App* command) {
  const std::string group = "Queue";
  AddNumber(command, "--priority", "The highest goes first; -1000 to 1000; default 0", &priority_)->group(group);
  AddSwitch(command, "preemptible", "May be paused and queued again for a job of a higher priority",
            "May not; the default", &preemptible_, group);
}

void SpecFlags::ApplyTo(v1::TrainingSpec* spec) const {
  if (!dataset_.empty()) spec->set_dataset(dataset_);
  if (!net_.empty()) spec->set_net(net_);
  if (init_.kind() != v1::Init::KIND_UNSPECIFIED) *spec->mutable_init() = init_;
  ApplyOptimizerTo(spec);
  ApplyScheduleTo(spec);
  if (learning_rate_) spec->set_learning_rate(*learning_rate_);
  if (ranks_ || !devices_.empty()) {
    spec->clear_ranks();
    spec->clear_device_ids();
  }
  if (ranks_) spec->set_ranks(*ranks_);
  for (int32_t device : devices_) spec->add_device_ids(device);
  if (batch_size_ || global_batch_size_) {
    spec->clear_batch_size();
    spec->clear_global_batch_size();
  }
  if (batch_size_) spec->set_batch_size(*batch_size_);
  if (global_batch_size_) spec->set_global_batch_size(*global_batch_size_);
  if (epochs_ || max_steps_) {
    spec->clear_epochs();
    spec->clear_max_steps();
  }
  if (epochs_) spec->set_epochs(*epochs_);
  if (max_steps_) spec->set_max_steps(*max_steps_);
  if (seed_) spec->set_seed(*seed_);
  if (clip_norm_) spec->set_clip_norm(*clip_norm_);
  if (nan_policy_) spec->set_nan_policy(*nan_policy_);
  if (precision_) spec->set_precision(*precision_);
  if (engine_) spec->set_engine(*engine_);
  if (evaluate_every_) spec->set_evaluate_every_epochs(*evaluate_every_);
  if (max_duration_) spec->set_max_duration(*max_duration_);
  if (target_accuracy_) spec->set_target_accuracy(*target_accuracy_);
  if (patience_) spec->set_patience(*patience_);
  ApplyCheckpointsTo(spec);
  if (priority_) spec->set_priority(*priority_);
  if (preemptible_) spec->set_preemptible(*preemptible_);
}

// Touching a field of these messages makes it present, and its presence changes the defaults of the others.

void SpecFlags::ApplyOptimizerTo(v1::TrainingSpec* spec) const {
  if (optimizer_) spec->mutable_optimizer()->set_kind(*optimizer_);
  if (momentum_) spec->mutable_optimizer()->set_momentum(*momentum_);
  if (nesterov_) spec->mutable_optimizer()->set_nesterov(*nesterov_);
  if (beta1_) spec->mutable_optimizer()->set_beta1(*beta1_);
  if (beta2_) spec->mutable_optimizer()->set_beta2(*beta2_);
  if (epsilon_) spec->mutable_optimizer()->set_epsilon(*epsilon_);
  if (weight_decay_) spec->mutable_optimizer()->set_weight_decay(*weight_decay_);
}

void SpecFlags::ApplyScheduleTo(v1::TrainingSpec* spec) const {
  if (schedule_) spec->mutable_schedule()->set_kind(*schedule_);
  if (warmup_) spec->mutable_schedule()->set_warmup_fraction(*warmup_);
  if (final_fraction_) spec->mutable_schedule()->set_final_fraction(*final_fraction_);
  if (gamma_) spec->mutable_schedule()->set_gamma(*gamma_);
  if (step_epochs_) spec->mutable_schedule()->set_step_epochs(*step_epochs_);
  if (peak_fraction_) spec->mutable_schedule()->set_peak_fraction(*peak_fraction_);
  if (initial_divisor_) spec->mutable_schedule()->set_initial_divisor(*initial_divisor_);
  if (final_divisor_) spec->mutable_schedule()->set_final_divisor(*final_divisor_);
}

void SpecFlags::ApplyCheckpointsTo(v1::TrainingSpec* spec) const {
  if (checkpoint_epochs_) spec->mutable_checkpoints()->set_every_epochs(*checkpoint_epochs_);
  if (checkpoint_steps_) spec->mutable_checkpoints()->set_every_steps(*checkpoint_steps_);
  if (checkpoint_seconds_) spec->mutable_checkpoints()->set_every_seconds(*checkpoint_seconds_);
  if (keep_checkpoints_) spec->mutable_checkpoints()->set_keep_last(*keep_checkpoints_);
  if (keep_best_) spec->mutable_checkpoints()->set_keep_best(*keep_best_);
}

}  // namespace lenet::ctl
