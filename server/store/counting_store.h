// Counts what another store is asked, and how it answers.
#ifndef LENET_SERVER_STORE_COUNTING_STORE_H_
#define LENET_SERVER_STORE_COUNTING_STORE_H_

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/store/job_store.h"
#include "server/telemetry/instruments.h"

namespace lenet {

struct StoreCounters {
  static constexpr double kWriteBounds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                            0.025,  0.05,    0.1,    0.25,  0.5,    1,     5};

  struct Operation {
    explicit Operation(absl::string_view operation_name) : name(operation_name) {}

    const absl::string_view name;
    DurationHistogram seconds{kWriteBounds};
    Counter failures;  // the storage's own errors, see JobStore; not what the call itself answers
  };

  Operation create{"create"};
  Operation change_state{"change_state"};
  Operation update{"update"};
  Operation append{"append"};
  Operation remove{"delete"};  // also of jobs that are too old
  Counter read_failures;

  Counter accepted;  // jobs
  Counter succeeded;
  Counter failed;
  Counter stopped;

  std::array<const Operation*, 5> writes() const { return {&create, &change_state, &update, &append, &remove}; }
};

// Safe from any thread.
class CountingStore : public JobStore {
 public:
  // `store` outlives it.
  explicit CountingStore(JobStore* store) : store_(store) {}

  const StoreCounters& counters() const { return counters_; }

  absl::StatusOr<CreateResult> CreateJob(const v1::Job& job, std::vector<v1::MetricRecord> records) override;
  absl::StatusOr<v1::Job> GetJob(absl::string_view id) const override;
  absl::StatusOr<v1::Job> FindByRequestId(absl::string_view request_id) const override;
  absl::StatusOr<JobPage> ListJobs(const JobQuery& query) const override;
  absl::StatusOr<std::map<v1::JobState, int64_t>> CountJobs() const override;
  absl::StatusOr<ChangePage> ListChanges(uint64_t after, int limit, int64_t max_bytes) const override;
  uint64_t revision() const override { return store_->revision(); }
  absl::StatusOr<v1::Job> ChangeState(absl::string_view id, StateUpdate update) override;
  absl::StatusOr<v1::Job> UpdateJob(absl::string_view id, const JobEdit& edit) override;
  absl::Status DeleteJob(absl::string_view id) override;
  void SetMaxAge(absl::Duration max_age) override { store_->SetMaxAge(max_age); }
  absl::Status ForgetOld(absl::Time now) override;
  absl::StatusOr<std::vector<Attempt>> ListAttempts(absl::string_view id) const override;
  absl::StatusOr<uint64_t> AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) override;
  absl::StatusOr<RecordPage> ReadRecords(absl::string_view id, uint64_t from_sequence,
                                         int64_t max_bytes) const override;

 private:
  JobStore* const store_;
  mutable StoreCounters counters_;
};

}  // namespace lenet

#endif  // LENET_SERVER_STORE_COUNTING_STORE_H_
