// Jobs in memory, lost with the process.
#ifndef LENET_SERVER_STORE_MEMORY_STORE_H_
#define LENET_SERVER_STORE_MEMORY_STORE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "server/store/job_store.h"
#include "server/store/store_rules.h"
#include "trainer/base/mutex.h"

namespace lenet {

class MemoryStore : public JobStore {
 public:
  explicit MemoryStore(const StoreLimits& limits = {});

  absl::StatusOr<CreateResult> CreateJob(const v1::Job& job, std::vector<v1::MetricRecord> records) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::Job> GetJob(absl::string_view id) const override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::Job> FindByRequestId(absl::string_view request_id) const override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<JobPage> ListJobs(const JobQuery& query) const override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::map<v1::JobState, int64_t>> CountJobs() const override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<ChangePage> ListChanges(uint64_t after, int limit, int64_t max_bytes) const override
      ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t revision() const override { return revision_.load(std::memory_order_acquire); }
  absl::StatusOr<v1::Job> ChangeState(absl::string_view id, StateUpdate update) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::Job> UpdateJob(absl::string_view id, const JobEdit& edit) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status DeleteJob(absl::string_view id) override ABSL_LOCKS_EXCLUDED(mutex_);
  void SetMaxAge(absl::Duration max_age) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ForgetOld(absl::Time now) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::vector<Attempt>> ListAttempts(absl::string_view id) const override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<uint64_t> AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<RecordPage> ReadRecords(absl::string_view id, uint64_t from_sequence, int64_t max_bytes) const override
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct KeptRecord {
    RecordPtr record;
    int64_t bytes = 0;
  };
  struct Row {
    v1::Job job;
    std::vector<Attempt> attempts;
    std::deque<KeptRecord> records;
    int64_t log_bytes = 0;
    uint64_t revision = 0;
  };

  absl::StatusOr<Row*> Find(absl::string_view id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<const Row*> Find(absl::string_view id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Touch(Row* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(Row* row, std::span<v1::MetricRecord> records) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOldest(Row* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Applies the limits in bytes after `row` has grown.
  void Retain(Row* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of ended jobs those that are too many and too old; they may be among those that have just changed.
  void ForgetEnded(absl::Time now, ForgottenJobs* forgotten) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(Row* row, ForgottenJobs* forgotten) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StoreLimits limits_;
  std::atomic<uint64_t> revision_{0};
  mutable Mutex mutex_;
  absl::Duration max_age_ ABSL_GUARDED_BY(mutex_);
  // Newest first. Nodes do not move.
  std::map<std::string, Row, std::greater<>> rows_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> ids_by_request_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Row*> rows_by_revision_ ABSL_GUARDED_BY(mutex_);
  // Ended jobs by their revision, that is, in the order in which they ended: all, and those whose log may still lose
  // records.
  std::map<uint64_t, Row*> ended_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Row*> trimmable_ ABSL_GUARDED_BY(mutex_);
  int64_t total_log_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lenet

#endif  // LENET_SERVER_STORE_MEMORY_STORE_H_
