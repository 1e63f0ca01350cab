// Jobs, attempts and metrics logs in an SQLite database.
#ifndef LENET_SERVER_STORE_SQLITE_STORE_H_
#define LENET_SERVER_STORE_SQLITE_STORE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/store/job_store.h"
#include "server/store/sqlite.h"
#include "trainer/base/descriptor.h"
#include "trainer/base/mutex.h"

namespace lenet {

// What CreateJob and ChangeState answered survives a loss of power, all else the death of the process. After an error
// nothing has changed, here or in the file.
class SqliteStore : public JobStore {
 public:
  // Opens `folder`/lenetd.db, or makes it in a folder that is there. Only one process may have it open: UNAVAILABLE
  // names the lock file if another has. FAILED_PRECONDITION: a database of a newer version, or another program's;
  // DATA_LOSS: it is damaged. Errors change nothing in the folder.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::filesystem::path& folder,
                                                           const StoreLimits& limits = {});

  absl::StatusOr<CreateResult> CreateJob(const v1::Job& job, std::vector<v1::MetricRecord> records) override
      ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::StatusOr<v1::Job> GetJob(absl::string_view id) const override ABSL_LOCKS_EXCLUDED(read_mutex_);
  absl::StatusOr<v1::Job> FindByRequestId(absl::string_view request_id) const override ABSL_LOCKS_EXCLUDED(read_mutex_);
  absl::StatusOr<JobPage> ListJobs(const JobQuery& query) const override ABSL_LOCKS_EXCLUDED(read_mutex_);
  absl::StatusOr<ChangePage> ListChanges(uint64_t after, int limit, int64_t max_bytes) const override
      ABSL_LOCKS_EXCLUDED(read_mutex_);
  uint64_t revision() const override { return revision_.load(std::memory_order_acquire); }
  absl::StatusOr<v1::Job> ChangeState(absl::string_view id, StateUpdate update) override
      ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::StatusOr<v1::Job> UpdateJob(absl::string_view id, const JobEdit& edit) override
      ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::StatusOr<std::vector<Attempt>> ListAttempts(absl::string_view id) const override
      ABSL_LOCKS_EXCLUDED(read_mutex_);
  absl::StatusOr<uint64_t> AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) override
      ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::StatusOr<RecordPage> ReadRecords(absl::string_view id, uint64_t from_sequence, int64_t max_bytes) const override
      ABSL_LOCKS_EXCLUDED(read_mutex_);

 private:
  // What the file has of a job, beside its attempts and records.
  struct Row {
    int64_t number = 0;  // by which other tables know it
    v1::Job job;
    int64_t revision = 0;
    std::optional<int64_t> ended_revision;
    int64_t first_sequence = 1;  // of the oldest record kept
    int64_t batches = 0;         // rows of records
    int64_t log_bytes = 0;       // in them
  };
  // Sums over the file, as they are after the transaction.
  struct Totals {
    int64_t revision = 0;
    int64_t ended_jobs = 0;
    int64_t log_bytes = 0;
  };
  struct Writer {
    Database database;
    Statement insert_job, find_job, find_request, update_job, forget_jobs;
    Statement insert_attempt, end_attempt;
    Statement insert_batch, oldest_batch, delete_batch, first_trimmable;
  };
  struct Reader {
    Database database;
    Statement job, request, jobs, changes, attempts, batches;
  };
  enum class Durability { kProcess, kPower };

  SqliteStore(const StoreLimits& limits, UniqueDescriptor lock, Writer writer, Reader reader, const Totals& totals);

  static absl::StatusOr<Writer> OpenWriter(const std::filesystem::path& path);
  static absl::StatusOr<Reader> OpenReader(const std::filesystem::path& path);

  absl::Status SetDurability(Durability durability) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  static absl::Status ReadRow(const Statement& statement, Row* row);
  // What the statement, which selects by a key, finds, if anything.
  static absl::StatusOr<std::optional<Row>> ReadOne(const Database& database, absl::string_view key,
                                                    Statement* statement);
  // For a change, and for reading. NOT_FOUND.
  absl::StatusOr<Row> Find(absl::string_view id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::StatusOr<Row> Look(absl::string_view id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  // Gives the job the next revision.
  void Touch(Row* row, Totals* totals) const;
  // Numbers the records and puts them in as one batch. The row has to be written afterwards.
  absl::Status Append(Row* row, Totals* totals, std::span<v1::MetricRecord> records)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status DropOldest(Row* row, Totals* totals) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Applies the limits and writes the row.
  absl::Status Finish(Row* row, Totals* totals) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status Write(const Row& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status Commit(Transaction* transaction, const Totals& totals) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::StatusOr<RecordPage> ReadRecordsInView(absl::string_view id, uint64_t from_sequence, int64_t max_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);

  const StoreLimits limits_;
  const UniqueDescriptor lock_;  // until the database is closed
  std::atomic<uint64_t> revision_;
  Mutex write_mutex_;
  Writer writer_ ABSL_GUARDED_BY(write_mutex_);
  Totals totals_ ABSL_GUARDED_BY(write_mutex_);
  std::optional<Durability> durability_ ABSL_GUARDED_BY(write_mutex_);  // that the connection is set to
  mutable Mutex read_mutex_;
  mutable Reader reader_ ABSL_GUARDED_BY(read_mutex_);
};

}  // namespace lenet

#endif  // LENET_SERVER_STORE_SQLITE_STORE_H_
