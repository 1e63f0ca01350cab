#include "tests/support/recording_observer.h"

#include "absl/strings/str_cat.h"

namespace lenet {

RecordingObserver::RecordingObserver(int ranks, int64_t first_step) : first_step_(first_step) {
  recording_.losses.resize(static_cast<size_t>(ranks));
  threads_.resize(static_cast<size_t>(ranks));
}

Recording RecordingObserver::Get() const {
  MutexLock lock(&mutex_);
  return recording_;
}

void RecordingObserver::OnRunning(absl::string_view engine) {
  MutexLock lock(&mutex_);
  CheckCaller(0, "OnRunning");
  if (!recording_.engine.empty()) recording_.violations.push_back("OnRunning came twice");
  for (const std::vector<float>& losses : recording_.losses) {
    if (!losses.empty()) recording_.violations.push_back("OnRunning came after steps");
  }
  recording_.engine = std::string(engine);
}

void RecordingObserver::OnSteps(int rank, int64_t first_step, std::span<const float> losses) {
  int64_t steps = 0;
  {
    MutexLock lock(&mutex_);
    CheckCaller(rank, "OnSteps");
    if (recording_.engine.empty()) recording_.violations.push_back("OnSteps came before OnRunning");
    std::vector<float>& held = recording_.losses[static_cast<size_t>(rank)];
    steps = first_step_ + static_cast<int64_t>(held.size());
    if (first_step != steps + 1 || losses.empty()) {
      recording_.violations.push_back(
          absl::StrCat("OnSteps(", rank, ", ", first_step, ", ", losses.size(), ") after ", steps, " steps"));
    }
    held.insert(held.end(), losses.begin(), losses.end());
    steps += static_cast<int64_t>(losses.size());
  }
  if (after_steps) after_steps(rank, steps);
}

void RecordingObserver::OnEpoch(const EpochSummary& summary) {
  MutexLock lock(&mutex_);
  CheckCaller(0, "OnEpoch");
  CheckReported(summary.last_step, "OnEpoch");
  recording_.epochs.push_back(summary);
}

void RecordingObserver::OnEvaluation(const Evaluation& evaluation) {
  MutexLock lock(&mutex_);
  CheckCaller(0, "OnEvaluation");
  CheckReported(evaluation.step, "OnEvaluation");
  recording_.evaluations.push_back(evaluation);
}

void RecordingObserver::OnCheckpoint(const CheckpointSaved& saved) {
  MutexLock lock(&mutex_);
  CheckCaller(0, "OnCheckpoint");
  CheckReported(saved.step, "OnCheckpoint");
  recording_.checkpoints.push_back(saved);
}

void RecordingObserver::OnWarning(absl::string_view message) {
  MutexLock lock(&mutex_);
  CheckCaller(0, "OnWarning");
  recording_.warnings.push_back(std::string(message));
}

void RecordingObserver::OnRanksStuck(const std::string& message) {
  {
    MutexLock lock(&mutex_);
    recording_.stuck.push_back(message);
  }
  if (after_stuck) after_stuck();
}

void RecordingObserver::CheckCaller(int rank, absl::string_view call) {
  std::optional<std::thread::id>& thread = threads_[static_cast<size_t>(rank)];
  if (!thread) thread = std::this_thread::get_id();
  if (*thread != std::this_thread::get_id()) {
    recording_.violations.push_back(absl::StrCat(call, " came from another thread than rank ", rank, "'s"));
  }
}

void RecordingObserver::CheckReported(int64_t step, absl::string_view call) {
  for (const std::vector<float>& losses : recording_.losses) {
    if (first_step_ + static_cast<int64_t>(losses.size()) < step) {
      recording_.violations.push_back(absl::StrCat(call, " of step ", step, " came before a rank's OnSteps"));
    }
  }
}

}  // namespace lenet
