// The growing end of one job's metrics log: takes what the ranks report and writes it to the store in batches.
#ifndef LENET_SERVER_METRICS_METRICS_LOG_H_
#define LENET_SERVER_METRICS_METRICS_LOG_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lenet/v1/metrics.pb.h"
#include "server/store/job_store.h"
#include "trainer/base/mutex.h"

namespace lenet {

// Safe from any thread. Whatever is added is written in the order in which it was added. Step losses are gathered into
// records of at most kMaxLosses, at full resolution; a record of another kind closes the one before it. Adding takes a
// lock that is never held during a write to the store or a reader's work, so a training step waits for neither.
class MetricsLog {
 public:
  static constexpr size_t kMaxLosses = 4096;
  // Records that the store has refused so far and that are kept for the next try; beyond it the log is stuck.
  static constexpr size_t kMaxUnsaved = 2000;

  struct Hooks {
    // More is there than should wait for the next regular flush: the first losses, or a full record. Quick.
    std::function<void()> wake;
    // Called once, from Flush() or ChangeState() and without a lock, when the log is stuck.
    std::function<void(const absl::Status& why)> stuck;
  };

  // The job exists in the store, which outlives the log. Hooks may be null.
  MetricsLog(JobStore* store, std::string job_id, uint64_t last_sequence, Hooks hooks = {});
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // losses[i] is that of `rank` at step first_step + i.
  void AddLosses(int rank, int64_t first_step, std::span<const float> losses) ABSL_LOCKS_EXCLUDED(pending_mutex_);
  // A record of another kind; its time becomes now.
  void Add(v1::MetricRecord record) ABSL_LOCKS_EXCLUDED(pending_mutex_);

  // Writes what has been added. What the store refuses is kept for the next call, and its error given.
  absl::Status Flush() ABSL_LOCKS_EXCLUDED(commit_mutex_, pending_mutex_);

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
  // *stuck becomes the error by which the log has just become stuck.
  absl::Status FlushLocked(absl::Status* stuck) ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex_)
      ABSL_LOCKS_EXCLUDED(pending_mutex_);
  absl::StatusOr<v1::Job> ChangeStateLocked(StateUpdate update, const v1::Terminal& terminal, absl::Status* stuck)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex_) ABSL_LOCKS_EXCLUDED(pending_mutex_);
  void TellStuck(const absl::Status& stuck) const;

  JobStore* const store_;
  const std::string job_id_;
  const Hooks hooks_;
  std::atomic<uint64_t> last_sequence_;
  std::atomic<bool> ended_{false};

  // Held during writes; taken before pending_mutex_.
  Mutex commit_mutex_;
  std::vector<v1::MetricRecord> unsaved_ ABSL_GUARDED_BY(commit_mutex_);
  bool stuck_ ABSL_GUARDED_BY(commit_mutex_) = false;

  Mutex pending_mutex_;
  bool any_losses_ ABSL_GUARDED_BY(pending_mutex_) = false;
  std::vector<int64_t> steps_ ABSL_GUARDED_BY(pending_mutex_);
  std::vector<int32_t> ranks_ ABSL_GUARDED_BY(pending_mutex_);
  std::vector<float> losses_ ABSL_GUARDED_BY(pending_mutex_);
  std::vector<v1::MetricRecord> complete_ ABSL_GUARDED_BY(pending_mutex_);

  mutable Mutex closed_mutex_;
  absl::Status closed_ ABSL_GUARDED_BY(closed_mutex_);
};

}  // namespace lenet

#endif  // LENET_SERVER_METRICS_METRICS_LOG_H_
