// Keeps what a training reports, and checks the order that observer.h promises.
#ifndef LENET_TESTS_SUPPORT_RECORDING_OBSERVER_H_
#define LENET_TESTS_SUPPORT_RECORDING_OBSERVER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "trainer/base/mutex.h"
#include "trainer/train/observer.h"

namespace lenet {

struct Recording {
  std::string engine;                      // empty if OnRunning was not called
  std::vector<std::vector<float>> losses;  // [rank][step]
  std::vector<EpochSummary> epochs;
  std::vector<Evaluation> evaluations;
  std::vector<CheckpointSaved> checkpoints;
  std::vector<std::string> warnings;
  std::vector<std::string> stuck;
  std::vector<std::string> violations;  // of the contract
};

class RecordingObserver : public TrainObserver {
 public:
  // `first_step`: steps done before, by an earlier run.
  explicit RecordingObserver(int ranks, int64_t first_step = 0);

  // Called outside the lock after each OnSteps with the steps that the rank has done.
  std::function<void(int rank, int64_t steps)> after_steps;
  // Called outside the lock after each OnRanksStuck.
  std::function<void()> after_stuck;

  Recording Get() const ABSL_LOCKS_EXCLUDED(mutex_);

  void OnRunning(absl::string_view engine) override;
  void OnSteps(int rank, int64_t first_step, std::span<const float> losses) override;
  void OnEpoch(const EpochSummary& summary) override;
  void OnEvaluation(const Evaluation& evaluation) override;
  void OnCheckpoint(const CheckpointSaved& saved) override;
  void OnWarning(absl::string_view message) override;
  void OnRanksStuck(const std::string& message) override;

 private:
  void CheckCaller(int rank, absl::string_view call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // All ranks have reported their steps up to `step`.
  void CheckReported(int64_t step, absl::string_view call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t first_step_;
  mutable Mutex mutex_;
  Recording recording_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::optional<std::thread::id>> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_RECORDING_OBSERVER_H_
