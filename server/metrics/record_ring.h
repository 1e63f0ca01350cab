// The newest records of a log, in memory.
#ifndef LENET_SERVER_METRICS_RECORD_RING_H_
#define LENET_SERVER_METRICS_RECORD_RING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "server/store/job_store.h"
#include "trainer/base/mutex.h"

namespace lenet {

// Keeps the newest record, and as many before it as the bounds allow; their sequences have no gap. Safe from any
// thread.
class RecordRing {
 public:
  RecordRing(size_t max_records, int64_t max_bytes) : max_records_(max_records), max_bytes_(max_bytes) {}

  // If they do not follow the newest one, all before them go.
  void Add(std::vector<RecordPtr> records) ABSL_LOCKS_EXCLUDED(mutex_);
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);

  // Records from `from_sequence` on, of about `max_bytes` together, but at least one; none if that one is not here.
  std::vector<RecordPtr> Read(uint64_t from_sequence, int64_t max_bytes) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    RecordPtr record;
    int64_t bytes = 0;
  };

  const size_t max_records_;
  const int64_t max_bytes_;
  mutable Mutex mutex_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lenet

#endif  // LENET_SERVER_METRICS_RECORD_RING_H_
