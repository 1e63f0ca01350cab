#include "server/job/group_cache.h"

#include <algorithm>
#include <utility>

namespace lenet {

absl::StatusOr<std::unique_ptr<RankGroup>> GroupCache::Take(std::span<const int> device_ids) {
  {
    MutexLock lock(&mutex_);
    const auto it = std::find_if(groups_.begin(), groups_.end(), [device_ids](const std::unique_ptr<RankGroup>& group) {
      const std::span<const int> ids = group->device_ids();
      return std::equal(ids.begin(), ids.end(), device_ids.begin(), device_ids.end());
    });
    if (it != groups_.end()) {
      std::unique_ptr<RankGroup> group = std::move(*it);
      groups_.erase(it);
      return group;
    }
  }
  absl::StatusOr<std::unique_ptr<RankGroup>> group = backend_->NewGroup(device_ids);
  if (!absl::IsResourceExhausted(group.status()) || !Clear()) return group;
  return backend_->NewGroup(device_ids);
}

void GroupCache::Give(std::unique_ptr<RankGroup> group) {
  if (group->aborted()) return;
  // Destroyed outside the lock.
  std::unique_ptr<RankGroup> dropped;
  MutexLock lock(&mutex_);
  groups_.push_front(std::move(group));
  if (groups_.size() > capacity_) {
    dropped = std::move(groups_.back());
    groups_.pop_back();
  }
}

bool GroupCache::Clear() {
  // Destroyed outside the lock.
  std::list<std::unique_ptr<RankGroup>> dropped;
  MutexLock lock(&mutex_);
  dropped.swap(groups_);
  return !dropped.empty();
}

size_t GroupCache::size() const {
  MutexLock lock(&mutex_);
  return groups_.size();
}

}  // namespace lenet
