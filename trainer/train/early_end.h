// When a training ends before its last step because of what its evaluations show.
#ifndef LENET_TRAINER_TRAIN_EARLY_END_H_
#define LENET_TRAINER_TRAIN_EARLY_END_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "trainer/train/train_spec.h"

namespace lenet {

// Follows the accuracy of the epochs that evaluate_every_epochs names. What it knows travels in a checkpoint's
// metadata, so that a resumed training ends where an uninterrupted one does: "best_accuracy", "best_epoch",
// "evaluations_since_best", and "accuracy" if the checkpoint's own step was evaluated. One thread at a time.
class EarlyEnd {
 public:
  EarlyEnd(const TrainSpec& spec, int64_t steps_per_epoch);

  // Takes up what a checkpoint's metadata hold; of a checkpoint without any, nothing. FAILED_PRECONDITION names the
  // key, the value and the bound.
  absl::Status Restore(int64_t step, const std::map<std::string, std::string>& metadata);
  void Store(int64_t step, std::map<std::string, std::string>* metadata) const;

  // Whether an evaluation is due after this step, and was not counted yet.
  bool due(int64_t step) const;
  // Of an evaluation after this step; one that is not due does not count towards the end.
  void Add(int64_t step, double accuracy);
  // The accuracy after this step, if it is the last that was evaluated.
  std::optional<double> accuracy(int64_t step) const;

  // Why the training ends after this step; empty: it goes on.
  std::string Reason(int64_t step) const;

 private:
  const std::optional<double> target_;
  const int patience_;
  const int every_epochs_;
  const int64_t steps_per_epoch_;

  std::optional<int64_t> step_;  // of the last evaluation
  double accuracy_ = 0;
  int64_t counted_step_ = 0;  // of the last that counted
  double best_ = -1;          // below 0: none yet
  int64_t best_epoch_ = 0;
  int64_t since_best_ = 0;
};

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_EARLY_END_H_
