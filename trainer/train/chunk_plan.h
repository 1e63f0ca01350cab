// How a training's steps are cut into chunks, agreed among the ranks without a collective.
#ifndef LENET_TRAINER_TRAIN_CHUNK_PLAN_H_
#define LENET_TRAINER_TRAIN_CHUNK_PLAN_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "trainer/base/mutex.h"
#include "trainer/train/fault_injector.h"
#include "trainer/train/train_spec.h"

namespace lenet {

struct Chunk {
  int64_t first_step = 0;    // counted from 0 over the whole job
  int count = 0;             // steps; 0: no more chunks follow
  bool ends_epoch = false;   // its last step is the epoch's or the job's last
  bool saves = false;        // the state is saved after it; never after the job's last step, where it is in any case
  bool out_of_time = false;  // count 0: because max_seconds have passed
};

struct ChunkRules {
  CheckpointPolicy saves;
  std::optional<double> max_seconds;  // from the first chunk's decision: no more follow
  const FaultInjector* faults = nullptr;
};

// Every rank gets the same chunks. Each is decided once, by the first rank that asks for it, so that a stop that this
// rank has seen holds all ranks at the same step, and so does a save. A chunk never crosses the end of an epoch, a step
// after which the state is saved, or one at which a fault is due. The first is one step, so that its loss comes at
// once; then sizes follow the measured time of a step. Safe from any thread.
class ChunkPlan {
 public:
  static constexpr double kTargetSeconds = 0.01;  // of a chunk
  static constexpr int kMaxGrowth = 4;            // from one chunk to the next

  // Steps first_step .. total_steps - 1 of a job.
  ChunkPlan(int ranks, int64_t first_step, int64_t total_steps, int64_t steps_per_epoch, const ChunkRules& rules = {});

  // The rank's next chunk. `halt`: if it is the one to decide, no more follow.
  Chunk Next(int rank, bool halt) ABSL_LOCKS_EXCLUDED(mutex_);

  // So many further steps took so long.
  void Measured(int64_t steps, double seconds) ABSL_LOCKS_EXCLUDED(mutex_);
  // A save that a chunk asked for has ended; every_seconds count from now.
  void Saved() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  Chunk Decide(bool halt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool SaveDue(const Chunk& chunk, int64_t end, Clock::time_point now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Where a chunk that begins with next_step_ must end at the latest.
  int64_t Limit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t total_steps_;
  const int64_t steps_per_epoch_;
  const ChunkRules rules_;
  const bool timed_;  // a rule needs the clock
  Mutex mutex_;
  std::vector<int64_t> taken_ ABSL_GUARDED_BY(mutex_);  // chunks given to each rank
  std::deque<Chunk> chunks_ ABSL_GUARDED_BY(mutex_);    // those that a rank has yet to take, after dropped_ others
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_step_ ABSL_GUARDED_BY(mutex_);
  int last_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool out_of_time_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Clock::time_point> start_ ABSL_GUARDED_BY(mutex_);
  // Or the start. Nothing while a save is under way: a rank that does not save may ask for chunks meanwhile.
  std::optional<Clock::time_point> last_save_ ABSL_GUARDED_BY(mutex_);
  double measured_steps_ ABSL_GUARDED_BY(mutex_) = 0;  // sums whose older terms fade
  double measured_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_CHUNK_PLAN_H_
