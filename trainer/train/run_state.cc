#include "trainer/train/run_state.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "trainer/base/status.h"

namespace lenet {
namespace {

ChunkRules RulesOf(const TrainJob& job) {
  const TrainSpec& spec = job.plan.spec;
  ChunkRules rules = {.faults = job.faults};
  if (!job.checkpoint_folder.empty()) rules.saves = spec.checkpoints;
  if (spec.max_duration > 0) rules.max_seconds = spec.max_duration - job.seconds_before;
  return rules;
}

}  // namespace

RunState::RunState(const TrainJob& job, const Net& net, RankGroup* group, const StopRequest* stop,
                   TrainObserver* observer)
    : job_(job),
      net_(net),
      group_(group),
      stop_(stop),
      observer_(observer),
      host_(job.plan.ranks),
      chunks_(job.plan.ranks, first_step(), job.plan.total_steps, job.plan.steps_per_epoch, RulesOf(job)),
      places_(static_cast<size_t>(job.plan.ranks)),
      steps_(static_cast<size_t>(job.plan.ranks), first_step()) {
  for (std::vector<RankReport>& reports : reports_) reports.resize(static_cast<size_t>(job.plan.ranks));
  for (Place& place : places_) place.queued = first_step();
}

// Two sets are enough: a rank that writes into one again has passed the meeting between, to which every other rank came
// after it had read that set.
absl::StatusOr<std::span<const RankReport>> RunState::Meet(int rank, int64_t meeting, const RankReport& report) {
  std::vector<RankReport>& reports = reports_[meeting % 2];
  reports[static_cast<size_t>(rank)] = report;
  LENET_RETURN_IF_ERROR(host_.Barrier());
  return std::span<const RankReport>(reports);
}

void RunState::Progress(int rank, int64_t steps, const std::optional<BadLoss>& bad) {
  MutexLock lock(&mutex_);
  steps_[static_cast<size_t>(rank)] = steps;
  if (bad && (!bad_loss_ || std::tie(bad->step, bad->rank) < std::tie(bad_loss_->step, bad_loss_->rank))) {
    bad_loss_ = bad;
  }
}

bool RunState::halted() const {
  if (stop_->mode() != StopMode::kNone) return true;
  MutexLock lock(&mutex_);
  return bad_loss_.has_value() && plan().spec.nan_policy == NanPolicy::kStop;
}

std::optional<BadLoss> RunState::SettledBadLoss() const {
  MutexLock lock(&mutex_);
  if (!bad_loss_ || *std::min_element(steps_.begin(), steps_.end()) < bad_loss_->step) return std::nullopt;
  return bad_loss_;
}

void RunState::Fail(RankFailure failure) {
  MutexLock lock(&mutex_);
  if (aborted_for_stop_) return;
  if (!failure_ || (absl::IsAborted(failure_->status) && !absl::IsAborted(failure.status))) {
    failure_ = std::move(failure);
  }
}

void RunState::EnterPhase(int rank, Phase phase) {
  places_[static_cast<size_t>(rank)].phase.store(phase, std::memory_order_relaxed);
}

void RunState::Queued(int rank, int64_t steps) {
  places_[static_cast<size_t>(rank)].queued.store(steps, std::memory_order_relaxed);
}

std::vector<RankPosition> RunState::positions() const {
  const std::vector<int64_t> finished = rank_steps();
  std::vector<RankPosition> positions;
  for (size_t r = 0; r < places_.size(); ++r) {
    positions.push_back({places_[r].phase.load(std::memory_order_relaxed),
                         places_[r].queued.load(std::memory_order_relaxed), finished[r]});
  }
  return positions;
}

void RunState::Abort(absl::string_view reason) {
  group_->Abort(reason);
  host_.Abort(reason);
}

void RunState::AbortForStop() {
  {
    MutexLock lock(&mutex_);
    aborted_for_stop_ = true;
  }
  Abort("stopped by request");
}

void RunState::RankEnded() {
  MutexLock lock(&mutex_);
  ++ended_;
  ended_changed_.SignalAll();
}

bool RunState::WaitForEnd(int ranks, std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&mutex_);
  while (ended_ < ranks) {
    if (!ended_changed_.WaitUntil(&mutex_, deadline)) return ended_ >= ranks;
  }
  return true;
}

std::optional<RankFailure> RunState::failure() const {
  MutexLock lock(&mutex_);
  return failure_;
}

std::vector<int64_t> RunState::rank_steps() const {
  MutexLock lock(&mutex_);
  return steps_;
}

}  // namespace lenet
