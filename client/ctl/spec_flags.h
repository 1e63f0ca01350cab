// The flags of `lenetctl submit` that say what to train.
#ifndef LENET_CLIENT_CTL_SPEC_FLAGS_H_
#define LENET_CLIENT_CTL_SPEC_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lenet/v1/training_spec.pb.h"

namespace CLI {
class App;
}

namespace lenet::ctl {

// One flag a field of TrainingSpec. Values are handed on as they are given: the server knows the bounds.
class SpecFlags {
 public:
  // This object outlives `command` and stays where it is until then.
  void AddTo(CLI::App* command);

  // Puts what the command line said over what `spec` says; fields of flags that were not given stay as they are. Of
  // fields that say one thing in two ways (epochs and steps, batch of a rank and of all, ranks and devices), a flag for
  // one takes the place of the other.
  void ApplyTo(v1::TrainingSpec* spec) const;

 private:
  void AddOptimizer(CLI::App* command);
  void AddSchedule(CLI::App* command);
  void AddEnds(CLI::App* command);
  void AddCheckpoints(CLI::App* command);
  void AddQueue(CLI::App* command);
  void ApplyOptimizerTo(v1::TrainingSpec* spec) const;
  void ApplyScheduleTo(v1::TrainingSpec* spec) const;
  void ApplyCheckpointsTo(v1::TrainingSpec* spec) const;

  std::string dataset_;
  std::string net_;
  v1::Init init_;
  std::optional<v1::Optimizer::Kind> optimizer_;
  std::optional<double> momentum_;
  std::optional<bool> nesterov_;
  std::optional<double> beta1_;
  std::optional<double> beta2_;
  std::optional<double> epsilon_;
  std::optional<double> weight_decay_;
  std::optional<v1::Schedule::Kind> schedule_;
  std::optional<double> warmup_;
  std::optional<double> final_fraction_;
  std::optional<double> gamma_;
  std::optional<int32_t> step_epochs_;
  std::optional<double> peak_fraction_;
  std::optional<double> initial_divisor_;
  std::optional<double> final_divisor_;
  std::optional<double> learning_rate_;
  std::optional<int32_t> ranks_;
  std::vector<int32_t> devices_;
  std::optional<int32_t> batch_size_;
  std::optional<int32_t> global_batch_size_;
  std::optional<int32_t> epochs_;
  std::optional<int64_t> max_steps_;
  std::optional<uint64_t> seed_;
  std::optional<float> clip_norm_;
  std::optional<v1::NanPolicy> nan_policy_;
  std::optional<v1::Precision> precision_;
  std::optional<v1::Engine> engine_;
  std::optional<int32_t> evaluate_every_;
  std::optional<double> max_duration_;
  std::optional<double> target_accuracy_;
  std::optional<int32_t> patience_;
  std::optional<int32_t> checkpoint_epochs_;
  std::optional<int64_t> checkpoint_steps_;
  std::optional<double> checkpoint_seconds_;
  std::optional<int32_t> keep_checkpoints_;
  std::optional<bool> keep_best_;
  std::optional<int32_t> priority_;
  std::optional<bool> preemptible_;
};

// "kaiming-uniform", "xavier-uniform" or "uniform:LOW,HIGH". Gives an error text, or nothing.
std::string ParseInit(const std::string& text, v1::Init* init);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_SPEC_FLAGS_H_
