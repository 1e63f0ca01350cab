#include "trainer/train/chunk_plan.h"

#include <algorithm>

#include "trainer/backend/backend.h"
#include "trainer/base/seconds.h"

namespace lenet {
namespace {

// The next multiple above `step`.
int64_t NextMultiple(int64_t step, int64_t of) { return (step / of + 1) * of; }

}  // namespace

ChunkPlan::ChunkPlan(int ranks, int64_t first_step, int64_t total_steps, int64_t steps_per_epoch,
                     const ChunkRules& rules)
    : total_steps_(total_steps),
      steps_per_epoch_(steps_per_epoch),
      rules_(rules),
      timed_(rules.saves.every_seconds > 0 || rules.max_seconds.has_value()),
      taken_(static_cast<size_t>(ranks)),
      next_step_(first_step) {}

Chunk ChunkPlan::Next(int rank, bool halt) {
  MutexLock lock(&mutex_);
  const int64_t position = taken_[static_cast<size_t>(rank)]++ - dropped_;
  if (position == static_cast<int64_t>(chunks_.size())) chunks_.push_back(Decide(halt));
  const Chunk chunk = chunks_[static_cast<size_t>(position)];
  const int64_t taken_by_all = *std::min_element(taken_.begin(), taken_.end());
  for (; dropped_ < taken_by_all; ++dropped_) chunks_.pop_front();
  return chunk;
}

Chunk ChunkPlan::Decide(bool halt) {
  const Clock::time_point now = timed_ ? Clock::now() : Clock::time_point();
  if (!start_) start_ = last_save_ = now;
  if (!ended_) {
    ended_ = halt || next_step_ >= total_steps_;
    out_of_time_ = !ended_ && rules_.max_seconds && Seconds(now - *start_) >= *rules_.max_seconds;
    ended_ = ended_ || out_of_time_;
  }
  Chunk chunk = {.first_step = next_step_, .out_of_time = out_of_time_};
  if (ended_) return chunk;

  double wanted = 1;
  if (last_count_ > 0 && measured_steps_ > 0) {
    wanted = measured_steps_ * kTargetSeconds / std::max(measured_seconds_, 1e-9);
    wanted = std::clamp(wanted, 1.0, static_cast<double>(std::min(last_count_ * kMaxGrowth, Engine::kMaxChunkSteps)));
  }
  const int64_t limit = Limit();
  chunk.count = static_cast<int>(std::min(static_cast<int64_t>(wanted), limit - next_step_));
  const int64_t end = next_step_ + chunk.count;
  chunk.ends_epoch = end == total_steps_ || end % steps_per_epoch_ == 0;
  chunk.saves = end < total_steps_ && SaveDue(chunk, end, now);
  if (chunk.saves) last_save_.reset();
  // A chunk cut short says nothing of the next one's size.
  if (end < limit || last_count_ == 0) last_count_ = chunk.count;
  next_step_ = end;
  return chunk;
}

int64_t ChunkPlan::Limit() const {
  int64_t limit = std::min(total_steps_, NextMultiple(next_step_, steps_per_epoch_));
  if (rules_.saves.every_steps > 0) limit = std::min(limit, NextMultiple(next_step_, rules_.saves.every_steps));
  // A chunk that begins with a fault's step may end anywhere; those before it end where it begins.
  if (rules_.faults != nullptr) limit = std::min(limit, rules_.faults->NextStep(next_step_ + 1) - 1);
  return limit;
}

bool ChunkPlan::SaveDue(const Chunk& chunk, int64_t end, Clock::time_point now) const {
  const CheckpointPolicy& saves = rules_.saves;
  if (saves.every_steps > 0 && end % saves.every_steps == 0) return true;
  if (saves.every_epochs > 0 && chunk.ends_epoch && end / steps_per_epoch_ % saves.every_epochs == 0) return true;
  return saves.every_seconds > 0 && last_save_ && Seconds(now - *last_save_) >= saves.every_seconds;
}

void ChunkPlan::Saved() {
  if (!timed_) return;
  const Clock::time_point now = Clock::now();
  MutexLock lock(&mutex_);
  last_save_ = now;
}

void ChunkPlan::Measured(int64_t steps, double seconds) {
  MutexLock lock(&mutex_);
  measured_steps_ = measured_steps_ / 2 + static_cast<double>(steps);
  measured_seconds_ = measured_seconds_ / 2 + seconds;
}

}  // namespace lenet
