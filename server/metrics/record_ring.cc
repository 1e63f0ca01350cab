#include "server/metrics/record_ring.h"

#include <utility>

namespace lenet {

void RecordRing::Add(std::vector<RecordPtr> records) {
  // What goes is destroyed without the lock.
  std::vector<Entry> dropped;
  MutexLock lock(&mutex_);
  for (RecordPtr& record : records) {
    if (!entries_.empty() && record->sequence() != entries_.back().record->sequence() + 1) {
      dropped.insert(dropped.end(), entries_.begin(), entries_.end());
      entries_.clear();
      bytes_ = 0;
    }
    const auto bytes = static_cast<int64_t>(record->SpaceUsedLong());
    entries_.push_back({std::move(record), bytes});
    bytes_ += bytes;
  }
  while (entries_.size() > 1 && (entries_.size() > max_records_ || bytes_ > max_bytes_)) {
    bytes_ -= entries_.front().bytes;
    dropped.push_back(std::move(entries_.front()));
    entries_.pop_front();
  }
}

void RecordRing::Clear() {
  std::deque<Entry> dropped;
  MutexLock lock(&mutex_);
  dropped.swap(entries_);
  bytes_ = 0;
}

std::vector<RecordPtr> RecordRing::Read(uint64_t from_sequence, int64_t max_bytes) const {
  std::vector<RecordPtr> records;
  MutexLock lock(&mutex_);
  if (entries_.empty()) return records;
  const uint64_t first = entries_.front().record->sequence();
  if (from_sequence < first || from_sequence - first >= entries_.size()) return records;
  int64_t bytes = 0;
  for (auto i = static_cast<size_t>(from_sequence - first); i < entries_.size(); ++i) {
    bytes += entries_[i].bytes;
    if (bytes > max_bytes && !records.empty()) break;
    records.push_back(entries_[i].record);
  }
  return records;
}

}  // namespace lenet
