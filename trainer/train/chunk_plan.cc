#include "trainer/train/chunk_plan.h"

#include <algorithm>

#include "trainer/backend/backend.h"

namespace lenet {

ChunkPlan::ChunkPlan(int ranks, int64_t first_step, int64_t total_steps, int64_t steps_per_epoch)
    : total_steps_(total_steps),
      steps_per_epoch_(steps_per_epoch),
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
  Chunk chunk = {.first_step = next_step_};
  ended_ = ended_ || halt || next_step_ >= total_steps_;
  if (ended_) return chunk;

  double wanted = 1;
  if (last_count_ > 0 && measured_steps_ > 0) {
    wanted = measured_steps_ * kTargetSeconds / std::max(measured_seconds_, 1e-9);
    wanted = std::clamp(wanted, 1.0, static_cast<double>(std::min(last_count_ * kMaxGrowth, Engine::kMaxChunkSteps)));
  }
  const int64_t epoch_left = steps_per_epoch_ - next_step_ % steps_per_epoch_;
  const int64_t left = std::min(epoch_left, total_steps_ - next_step_);
  chunk.count = static_cast<int>(std::min(static_cast<int64_t>(wanted), left));
  chunk.ends_epoch = chunk.count == left;
  // A short chunk at an epoch's end says nothing of the next one's size.
  if (!chunk.ends_epoch || last_count_ == 0) last_count_ = chunk.count;
  next_step_ += chunk.count;
  return chunk;
}

void ChunkPlan::Measured(int64_t steps, double seconds) {
  MutexLock lock(&mutex_);
  measured_steps_ = measured_steps_ / 2 + static_cast<double>(steps);
  measured_seconds_ = measured_seconds_ / 2 + seconds;
}

}  // namespace lenet
