#include "server/job/job_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lenet {
namespace {

bool GoesBefore(const QueueEntry& a, const QueueEntry& b) {
  return std::tie(b.priority, a.id) < std::tie(a.priority, b.id);
}

}  // namespace

void JobQueue::Push(QueueEntry entry) {
  const auto place = std::upper_bound(entries_.begin(), entries_.end(), entry, GoesBefore);
  entries_.insert(place, std::move(entry));
}

bool JobQueue::Remove(absl::string_view id) {
  return std::erase_if(entries_, [id](const QueueEntry& entry) { return entry.id == id; }) > 0;
}

std::optional<JobQueue::Start> JobQueue::Pop(DevicePool* pool) {
  const QueueEntry* const head = Head(*pool);
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    std::vector<int> avoid;
    if (head != nullptr && GoesBefore(*head, *entry)) {
      if (head->devices.ids.empty()) break;
      avoid = head->devices.ids;
    }
    std::optional<std::vector<int>> ids = pool->Acquire(entry->devices, entry->id, avoid);
    if (!ids) continue;
    Start start = {.id = entry->id, .device_ids = *std::move(ids), .queued_at = entry->queued_at};
    entries_.erase(entry);
    return start;
  }
  return std::nullopt;
}

std::vector<std::string> JobQueue::Victims(const DevicePool& pool, const std::vector<Holder>& running) const {
  const QueueEntry* const head = Head(pool);
  if (head == nullptr) return {};
  DevicePool without = pool;
  std::vector<const Holder*> candidates;
  for (const Holder& holder : running) {
    if (holder.yielding) {
      without.Release(holder.entry.id);
    } else if (holder.preemptible && holder.entry.priority < head->priority) {
      candidates.push_back(&holder);
    }
  }
  if (without.CanAcquire(head->devices)) return {};
  std::sort(candidates.begin(), candidates.end(),
            [](const Holder* a, const Holder* b) { return GoesBefore(b->entry, a->entry); });
  std::vector<std::string> victims;
  for (const Holder* candidate : candidates) {
    // Where the head names its devices, only who holds one of them helps.
    if (!head->devices.ids.empty() && !pool.HoldsAny(candidate->entry.id, head->devices.ids)) continue;
    without.Release(candidate->entry.id);
    victims.push_back(candidate->entry.id);
    if (without.CanAcquire(head->devices)) return victims;
  }
  return {};
}

int JobQueue::Position(absl::string_view id) const {
  const auto place =
      std::find_if(entries_.begin(), entries_.end(), [id](const QueueEntry& entry) { return entry.id == id; });
  return place == entries_.end() ? 0 : static_cast<int>(place - entries_.begin()) + 1;
}

std::string JobQueue::WaitsFor(absl::string_view id, const DevicePool& pool) const {
  const int position = Position(id);
  // It has just left the queue.
  if (position == 0) return "its devices are being set up";
  const QueueEntry& entry = entries_[static_cast<size_t>(position - 1)];
  if (position > 1 && pool.CanEverAcquire(entry.devices) && Head(pool) != &entry) {
    return absl::StrCat("waits behind ", position - 1, position == 2 ? " job" : " jobs");
  }
  return absl::StrCat("waits for ", pool.Missing(entry.devices));
}

const QueueEntry* JobQueue::Head(const DevicePool& pool) const {
  for (const QueueEntry& entry : entries_) {
    if (pool.CanEverAcquire(entry.devices)) return &entry;
  }
  return nullptr;
}

}  // namespace lenet
