// The growing end of one job's metrics log: takes what the ranks report and writes it to the store in batches.
#ifndef LENET_SERVER_METRICS_METRICS_LOG_H_
#define LENET_SERVER_METRICS_METRICS_LOG_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lenet/v1/metrics.pb.h"
#include "server/metrics/record_ring.h"
#include "server/store/job_store.h"
#include "trainer/base/mutex.h"

namespace lenet {

// Safe from any thread. Whatever is added is written in the order in which it was added. Step losses are gathered into
// records of at most kMaxLosses, at full resolution; a record of another kind closes the one before it. Adding takes a
// lock that is never held during a write to the store or a reader's work, so a training step waits for neither. What
// has been written is there for readers: the newest records, until the attempt ends, in memory.
class MetricsLog {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr size_t kMaxLosses = 4096;
  // Records that the store has refused so far and that are kept for the next try; beyond it the log is stuck.
  static constexpr size_t kMaxUnsaved = 2000;

  struct Options {
    // How long what is added waits for its flush; less if a record is full, or a reader waits.
    Clock::duration patience = std::chrono::milliseconds(100);
    // While a reader waits, the next flush is due so long after the last one.
    Clock::duration reader_patience = std::chrono::milliseconds(5);
    // Newest records kept in memory.
    size_t recent_records = 1024;
    int64_t recent_bytes = int64_t{1} << 20;
  };

  struct Hooks {
    // due() has become earlier. Quick.
    std::function<void()> wake;
    // Records have been written. Quick; under a lock of the log.
    std::function<void()> written;
    // Called once, from Flush() or ChangeState() and without a lock, when the log is stuck.
    std::function<void(const absl::Status& why)> stuck;
  };

  // The job exists in the store, which outlives the log. Hooks may be null.
  MetricsLog(JobStore* store, std::string job_id, uint64_t last_sequence, Hooks hooks, const Options& options);
  MetricsLog(JobStore* store, std::string job_id, uint64_t last_sequence, Hooks hooks = {})
      : MetricsLog(store, std::move(job_id), last_sequence, std::move(hooks), Options()) {}
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // losses[i] is that of `rank` at step first_step + i.
  void AddLosses(int rank, int64_t first_step, std::span<const float> losses) ABSL_LOCKS_EXCLUDED(pending_mutex_);
  // A record of another kind; its time becomes now.
  void Add(v1::MetricRecord record) ABSL_LOCKS_EXCLUDED(pending_mutex_);

  // Writes what has been added. What the store refuses is kept for the next call, and its error given.
  absl::Status Flush() ABSL_LOCKS_EXCLUDED(commit_mutex_, pending_mutex_);
  // When Flush() should be called; Clock::time_point::max() while there is nothing to write.
  Clock::time_point due() const { return due_.load(std::memory_order_acquire); }

  // A reader has read all that is written, and waits for the next records.
  void AwaitMore() ABSL_LOCKS_EXCLUDED(pending_mutex_);
  // Written records from `from_sequence` on, of about `max_bytes` together, but at least one; none if that one is not
  // among those in memory.
  std::vector<RecordPtr> Recent(uint64_t from_sequence, int64_t max_bytes) const {
    return recent_.Read(from_sequence, max_bytes);
  }

  // Flushes, then JobStore::ChangeState with a state_change record and, if `to` is a terminal state, `terminal` after
  // it, both of the update's time. Errors as there; if the flush fails, its error, and no change. But the end of a log
  // that is stuck already does not wait for the records that the store refuses: they are dropped, and a warning before
  // the state_change tells how many.
  absl::StatusOr<v1::Job> ChangeState(StateUpdate update, const v1::Terminal& terminal = {})
      ABSL_LOCKS_EXCLUDED(commit_mutex_, pending_mutex_);

  // From now on the log counts as stuck, whatever is unsaved; the hook is not called.
  void GiveUpUnsaved() ABSL_LOCKS_EXCLUDED(commit_mutex_);

  // The job is over, but its end cannot be written: readers that have read all get `why`, which is an error.
  void Close(const absl::Status& why) ABSL_LOCKS_EXCLUDED(closed_mutex_);
  // What Close() was given; OK before.
  absl::Status closed() const ABSL_LOCKS_EXCLUDED(closed_mutex_);

  const std::string& job_id() const { return job_id_; }
  // Of the newest record written.
  uint64_t last_sequence() const { return last_sequence_.load(std::memory_order_acquire); }
  // The terminal record has been written.
  bool ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  void CloseLosses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(pending_mutex_);
  // After something has been added: whether it has become due earlier than before.
  bool Hasten(bool full) ABSL_EXCLUSIVE_LOCKS_REQUIRED(pending_mutex_);
  // *stuck becomes the error by which the log has just become stuck.
  absl::Status FlushLocked(absl::Status* stuck) ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex_)
      ABSL_LOCKS_EXCLUDED(pending_mutex_);
  absl::StatusOr<v1::Job> ChangeStateLocked(StateUpdate update, const v1::Terminal& terminal, absl::Status* stuck)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex_) ABSL_LOCKS_EXCLUDED(pending_mutex_);
  void TellStuck(const absl::Status& stuck) const;

  JobStore* const store_;
  const std::string job_id_;
  const Hooks hooks_;
  const Options options_;
  RecordRing recent_;
  std::atomic<uint64_t> last_sequence_;
  std::atomic<bool> ended_{false};

  // Held during writes; taken before pending_mutex_.
  Mutex commit_mutex_;
  std::vector<v1::MetricRecord> unsaved_ ABSL_GUARDED_BY(commit_mutex_);
  bool stuck_ ABSL_GUARDED_BY(commit_mutex_) = false;

  // Set while a reader waits for what is not written yet.
  std::atomic<bool> awaited_{false};
  std::atomic<Clock::time_point> due_{Clock::time_point::max()};  // written under pending_mutex_

  Mutex pending_mutex_;
  Clock::time_point last_write_ ABSL_GUARDED_BY(pending_mutex_);
  std::vector<int64_t> steps_ ABSL_GUARDED_BY(pending_mutex_);
  std::vector<int32_t> ranks_ ABSL_GUARDED_BY(pending_mutex_);
  std::vector<float> losses_ ABSL_GUARDED_BY(pending_mutex_);
  std::vector<v1::MetricRecord> complete_ ABSL_GUARDED_BY(pending_mutex_);

  mutable Mutex closed_mutex_;
  absl::Status closed_ ABSL_GUARDED_BY(closed_mutex_);
};

}  // namespace lenet

#endif  // LENET_SERVER_METRICS_METRICS_LOG_H_
