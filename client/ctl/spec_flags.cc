#include "client/ctl/spec_flags.h"

#include <map>

#include "absl/strings/numbers.h"
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
  command
      ->add_option_function<std::string>(
          flag,
          [=](const std::string& name) {
            const auto found = kinds.find(name);
            if (found == kinds.end()) {
              throw CLI::ValidationError(flag, absl::StrCat("\"", name, "\" is none of ", names));
            }
            *value = found->second;
          },
          help)
      ->type_name(names)
      ->group(group);
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
    if (parts.size() == 2 && absl::SimpleAtof(parts[0], &low) && absl::SimpleAtof(parts[1], &high)) {
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
  command
      ->add_option("--dataset", dataset_,
                   "As `lenetctl datasets` names it; default: fashion-mnist if the server has it, else its only one")
      ->type_name("NAME")
      ->group(what);
  command->add_option("--net", net_, "lenet (default), lenet5-classic or lenet-caffe")->type_name("NAME")->group(what);
  command
      ->add_option_function<std::string>(
          "--init",
          [this](const std::string& text) {
            const std::string error = ParseInit(text, &init_);
            if (!error.empty()) throw CLI::ValidationError("--init", error);
          },
          "Initial weights; default kaiming-uniform, as PyTorch")
      ->type_name("kaiming-uniform|xavier-uniform|uniform:LOW,HIGH")
      ->group(what);
  AddUnsigned(command, "--seed", "Decides initial weights and sample order; default 1", [this](uint64_t seed) {
    seed_ = seed;
  })->group(what);

  const std::string length = "Length and batch";
  command->add_option("--epochs", epochs_, "Passes over the training set; default 10")->type_name("N")->group(length);
  command->add_option("--max-steps", max_steps_, "Length in steps, instead of --epochs")->type_name("N")->group(length);
  command->add_option("--batch-size", batch_size_, "Images a rank takes in a step; default 64")
      ->type_name("N")
      ->group(length);
  command->add_option("--global-batch-size", global_batch_size_, "Images of all ranks together, instead")
      ->type_name("N")
      ->group(length);
  command
      ->add_option("--evaluate-every", evaluate_every_,
                   "Epochs from one evaluation to the next; default 1; 0: at the end alone")
      ->type_name("N")
      ->group(length);

  const std::string where = "Where to train";
  command->add_option("--ranks", ranks_, "Data-parallel ranks, one a device; default: one on every device")
      ->type_name("N")
      ->group(where);
  AddIntList(command, "--devices", "ID,...", "Devices by id, one a rank: 0,1; default: the server chooses", &devices_)
      ->group(where);
  AddEnum<v1::Precision>(command, "--precision", &precision_,
                         {{"fp32", v1::PRECISION_FP32}, {"tf32", v1::PRECISION_TF32}}, "Default fp32; tf32: CUDA alone",
                         where);

  AddOptimizer(command);
  AddSchedule(command);
}

void SpecFlags::AddOptimizer(CLI::App* command) {
  const std::string group = "Optimizer (with none of these: sgd, momentum 0.9, Nesterov; formulas as PyTorch)";
  AddEnum<v1::Optimizer::Kind>(
      command, "--optimizer", &optimizer_,
      {{"sgd", v1::Optimizer::SGD}, {"adam", v1::Optimizer::ADAM}, {"adamw", v1::Optimizer::ADAMW}}, "Default sgd",
      group);
  command->add_option("--momentum", momentum_, "sgd; in [0, 1); default 0 once any flag of this group is given")
      ->type_name("X")
      ->group(group);
  command
      ->add_flag_function(
          "--nesterov,!--no-nesterov", [this](int64_t count) { nesterov_ = count > 0; },
          "sgd; needs a momentum above 0")
      ->group(group);
  command->add_option("--weight-decay", weight_decay_, "At least 0; adamw: decoupled; default 0")
      ->type_name("X")
      ->group(group);
  command->add_option("--beta1", beta1_, "adam, adamw; in [0, 1); default 0.9")->type_name("X")->group(group);
  command->add_option("--beta2", beta2_, "adam, adamw; in [0, 1); default 0.999")->type_name("X")->group(group);
  command->add_option("--epsilon", epsilon_, "adam, adamw; above 0; default 1e-8")->type_name("X")->group(group);
  command->add_option("--clip-norm", clip_norm_, "Bound on the gradient's 2-norm; default 1; 0: none")
      ->type_name("X")
      ->group(group);
  AddEnum<v1::NanPolicy>(command, "--nan-policy", &nan_policy_,
                         {{"stop", v1::NAN_POLICY_STOP}, {"continue", v1::NAN_POLICY_CONTINUE}},
                         "Whether a loss that is not finite fails the job; default stop", group);
}

void SpecFlags::AddSchedule(CLI::App* command) {
  const std::string group = "Learning rate (with no schedule flag: linear decay to 0 after a warm-up over a fifth)";
  command->add_option("--lr", learning_rate_, "Peak rate; default: follows the optimizer and the global batch")
      ->type_name("X")
      ->group(group);
  AddEnum<v1::Schedule::Kind>(command, "--schedule", &schedule_,
                              {{"constant", v1::Schedule::CONSTANT},
                               {"step", v1::Schedule::STEP},
                               {"cosine", v1::Schedule::COSINE},
                               {"linear", v1::Schedule::LINEAR},
                               {"one-cycle", v1::Schedule::ONE_CYCLE}},
                              "Default constant once another schedule flag is given", group);
  command->add_option("--warmup", warmup_, "Share of the steps that rise to the rate; in [0, 1); default 0")
      ->type_name("X")
      ->group(group);
  command
      ->add_option("--final-fraction", final_fraction_, "cosine, linear: the last rate's share; in [0, 1]; default 0")
      ->type_name("X")
      ->group(group);
  command->add_option("--gamma", gamma_, "step: factor; in (0, 1]; default 0.1")->type_name("X")->group(group);
  command->add_option("--step-epochs", step_epochs_, "step: epochs from one drop to the next; default 1")
      ->type_name("N")
      ->group(group);
  command
      ->add_option("--peak-fraction", peak_fraction_, "one-cycle: share of the steps that rise; in (0, 1); default 0.3")
      ->type_name("X")
      ->group(group);
  command->add_option("--initial-divisor", initial_divisor_, "one-cycle: peak by first rate; at least 1; default 25")
      ->type_name("X")
      ->group(group);
  command->add_option("--final-divisor", final_divisor_, "one-cycle: first by last rate; at least 1; default 1e4")
      ->type_name("X")
      ->group(group);
}

v1::TrainingSpec SpecFlags::ToSpec() const {
  v1::TrainingSpec spec;
  spec.set_dataset(dataset_);
  spec.set_net(net_);
  if (init_.kind() != v1::Init::KIND_UNSPECIFIED) *spec.mutable_init() = init_;
  // Touching a field of these makes it present, and its presence changes the defaults of the others.
  if (optimizer_) spec.mutable_optimizer()->set_kind(*optimizer_);
  if (momentum_) spec.mutable_optimizer()->set_momentum(*momentum_);
  if (nesterov_) spec.mutable_optimizer()->set_nesterov(*nesterov_);
  if (beta1_) spec.mutable_optimizer()->set_beta1(*beta1_);
  if (beta2_) spec.mutable_optimizer()->set_beta2(*beta2_);
  if (epsilon_) spec.mutable_optimizer()->set_epsilon(*epsilon_);
  if (weight_decay_) spec.mutable_optimizer()->set_weight_decay(*weight_decay_);
  if (schedule_) spec.mutable_schedule()->set_kind(*schedule_);
  if (warmup_) spec.mutable_schedule()->set_warmup_fraction(*warmup_);
  if (final_fraction_) spec.mutable_schedule()->set_final_fraction(*final_fraction_);
  if (gamma_) spec.mutable_schedule()->set_gamma(*gamma_);
  if (step_epochs_) spec.mutable_schedule()->set_step_epochs(*step_epochs_);
  if (peak_fraction_) spec.mutable_schedule()->set_peak_fraction(*peak_fraction_);
  if (initial_divisor_) spec.mutable_schedule()->set_initial_divisor(*initial_divisor_);
  if (final_divisor_) spec.mutable_schedule()->set_final_divisor(*final_divisor_);
  if (learning_rate_) spec.set_learning_rate(*learning_rate_);
  if (ranks_) spec.set_ranks(*ranks_);
  for (int32_t device : devices_) spec.add_device_ids(device);
  if (batch_size_) spec.set_batch_size(*batch_size_);
  if (global_batch_size_) spec.set_global_batch_size(*global_batch_size_);
  if (epochs_) spec.set_epochs(*epochs_);
  if (max_steps_) spec.set_max_steps(*max_steps_);
  if (seed_) spec.set_seed(*seed_);
  if (clip_norm_) spec.set_clip_norm(*clip_norm_);
  if (nan_policy_) spec.set_nan_policy(*nan_policy_);
  if (precision_) spec.set_precision(*precision_);
  if (evaluate_every_) spec.set_evaluate_every_epochs(*evaluate_every_);
  return spec;
}

}  // namespace lenet::ctl
