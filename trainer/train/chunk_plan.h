// How a training's steps are cut into chunks, agreed among the ranks without a collective.
#ifndef LENET_TRAINER_TRAIN_CHUNK_PLAN_H_
#define LENET_TRAINER_TRAIN_CHUNK_PLAN_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "trainer/base/mutex.h"

namespace lenet {

struct Chunk {
  int64_t first_step = 0;   // counted from 0 over the whole job
  int count = 0;            // steps; 0: no more chunks follow
  bool ends_epoch = false;  // its last step is the epoch's or the job's last
};

// Every rank gets the same chunks. Each is decided once, by the first rank that asks for it, so that a stop that this
// rank has seen holds all ranks at the same step. A chunk never crosses the end of an epoch. The first is one step, so
// that its loss comes at once; then sizes follow the measured time of a step. Safe from any thread.
class ChunkPlan {
 public:
  static constexpr double kTargetSeconds = 0.01;  // of a chunk
  static constexpr int kMaxGrowth = 4;            // from one chunk to the next

  // Steps first_step .. total_steps - 1 of a job.
  ChunkPlan(int ranks, int64_t first_step, int64_t total_steps, int64_t steps_per_epoch);

  // The rank's next chunk. `halt`: if it is the one to decide, no more follow.
  Chunk Next(int rank, bool halt) ABSL_LOCKS_EXCLUDED(mutex_);

  // So many further steps took so long.
  void Measured(int64_t steps, double seconds) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Chunk Decide(bool halt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t total_steps_;
  const int64_t steps_per_epoch_;
  Mutex mutex_;
  std::vector<int64_t> taken_ ABSL_GUARDED_BY(mutex_);  // chunks given to each rank
  std::deque<Chunk> chunks_ ABSL_GUARDED_BY(mutex_);    // those that a rank has yet to take, after dropped_ others
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_step_ ABSL_GUARDED_BY(mutex_);
  int last_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  double measured_steps_ ABSL_GUARDED_BY(mutex_) = 0;  // sums whose older terms fade
  double measured_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_CHUNK_PLAN_H_
