// Rank groups kept between jobs, as making one takes long (communicators, streams, library handles).
#ifndef LENET_SERVER_JOB_GROUP_CACHE_H_
#define LENET_SERVER_JOB_GROUP_CACHE_H_

#include <list>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "trainer/backend/backend.h"
#include "trainer/base/mutex.h"

namespace lenet {

// Safe from any thread. Groups whose devices overlap may lie here together; who takes one holds its devices.
class GroupCache {
 public:
  // Keeps at most `capacity` groups, the least recently used first to go. The backend outlives it.
  GroupCache(Backend* backend, size_t capacity) : backend_(backend), capacity_(capacity) {}

  // The group of exactly these devices in this order: one kept, or a new one. If there is no memory for a new one,
  // those kept make room.
  absl::StatusOr<std::unique_ptr<RankGroup>> Take(std::span<const int> device_ids) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes back a group for the next job, or throws it away if it was aborted.
  void Give(std::unique_ptr<RankGroup> group) ABSL_LOCKS_EXCLUDED(mutex_);

  // Destroys the groups kept; false if there are none.
  bool Clear() ABSL_LOCKS_EXCLUDED(mutex_);

  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Backend* const backend_;
  const size_t capacity_;
  mutable Mutex mutex_;
  std::list<std::unique_ptr<RankGroup>> groups_ ABSL_GUARDED_BY(mutex_);  // most recently used first
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_GROUP_CACHE_H_
