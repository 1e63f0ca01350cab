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
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/store/job_store.h"
#include "server/store/sqlite.h"
#include "server/store/sqlite_schema.h"
#include "server/store/state_folder.h"
#include "server/store/store_rules.h"
#include "trainer/base/mutex.h"

namespace lenet {

// What is answered survives a loss of power, but for AppendRecords without a checkpoint_saved record: its answers
// survive the death of the process, and a loss of power once a later change does. After an error nothing has changed,
// here or in the file.
//
// A log that may have lost its newest records with the power goes on in a new epoch: every job that has not ended gets
// one when the database is opened under another boot of the kernel without having been closed under the last one.
class SqliteStore : public JobStore {
 public:
  // Opens `folder`/lenetd.db, or makes it in a folder that is there. Only one process may have it open: UNAVAILABLE if
  // another has. FAILED_PRECONDITION: a database of a newer version, or another program's; DATA_LOSS: it is damaged, or
  // missing where jobs were. Errors change nothing that is in the folder. What is too old by the system's clock is
  // forgotten at once. An empty `boot_id` is another one each time.
  //
  // A job that cannot be read is DATA_LOSS. If it has ended, lists go on without it, and it can be deleted.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::filesystem::path& folder,
                                                           const StoreLimits& limits = {},
                                                           const std::string& boot_id = KernelBootId());
  // Notes that nothing is missing, and closes the database.
  ~SqliteStore() override;

  absl::StatusOr<CreateResult> CreateJob(const v1::Job& job, std::vector<v1::MetricRecord> records) override
      ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::StatusOr<v1::Job> GetJob(absl::string_view id) const override ABSL_LOCKS_EXCLUDED(read_mutex_);
  absl::StatusOr<v1::Job> FindByRequestId(absl::string_view request_id) const override ABSL_LOCKS_EXCLUDED(read_mutex_);
  absl::StatusOr<JobPage> ListJobs(const JobQuery& query) const override ABSL_LOCKS_EXCLUDED(read_mutex_);
  absl::StatusOr<std::map<v1::JobState, int64_t>> CountJobs() const override ABSL_LOCKS_EXCLUDED(read_mutex_);
  absl::StatusOr<ChangePage> ListChanges(uint64_t after, int limit, int64_t max_bytes) const override
      ABSL_LOCKS_EXCLUDED(read_mutex_);
  uint64_t revision() const override { return revision_.load(std::memory_order_acquire); }
  absl::StatusOr<v1::Job> ChangeState(absl::string_view id, StateUpdate update) override
      ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::StatusOr<v1::Job> UpdateJob(absl::string_view id, const JobEdit& edit) override
      ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::Status DeleteJob(absl::string_view id) override ABSL_LOCKS_EXCLUDED(write_mutex_);
  void SetMaxAge(absl::Duration max_age) override ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::Status ForgetOld(absl::Time now) override ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::StatusOr<std::vector<Attempt>> ListAttempts(absl::string_view id) const override
      ABSL_LOCKS_EXCLUDED(read_mutex_);
  absl::StatusOr<uint64_t> AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) override
      ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::StatusOr<RecordPage> ReadRecords(absl::string_view id, uint64_t from_sequence, int64_t max_bytes) const override
      ABSL_LOCKS_EXCLUDED(log_mutex_);

  // Reads a row on each connection, and returns when all have given one, or an error.
  void AwaitAnswers() ABSL_LOCKS_EXCLUDED(write_mutex_, read_mutex_, log_mutex_);

 private:
  // What the file has of a job, beside its attempts and records.
  struct Row {
    int64_t number = 0;  // by which other tables know it
    std::string id;
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
    Statement insert_job, find_job, find_request, update_job, update_log, delete_job, delete_first, delete_old;
    Statement insert_attempt, end_attempt, insert_epoch;
    Statement insert_batch, oldest_batch, delete_batch, first_trimmable;
  };
  struct Reader {
    Database database;
    Statement job, request, jobs, states, changes, attempts;
  };
  // Replaying logs keeps no other call waiting.
  struct LogReader {
    Database database;
    Statement job, epochs, batches;
  };
  static constexpr int kStateColumn = 8;  // where a row is read
  enum class Durability { kProcess, kPower };

  SqliteStore(const StoreLimits& limits, StateLock lock, const std::filesystem::path& folder, Writer writer,
              Reader reader, LogReader log_reader, const Totals& totals);

  static absl::StatusOr<Writer> OpenWriter(const std::filesystem::path& folder);
  static absl::StatusOr<Reader> OpenReader(const std::filesystem::path& folder);
  static absl::StatusOr<LogReader> OpenLogReader(const std::filesystem::path& folder);

  // The first transaction after Open.
  absl::Status Begin(const std::string& boot_id, absl::Time now) ABSL_LOCKS_EXCLUDED(write_mutex_);
  absl::Status BeginEpochs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status SetDurability(Durability durability) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // DATA_LOSS: the job is damaged; all else of the row is set.
  absl::Status ReadRow(const Statement& statement, Row* row) const;
  // For a list: false, and a warning the first time, for an ended job that is damaged.
  absl::StatusOr<bool> ReadListed(const Statement& statement, Row* row) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  // What the statement, which selects by a key, finds, if anything.
  absl::StatusOr<std::optional<Row>> ReadOne(const Database& database, absl::string_view key,
                                             Statement* statement) const;
  // For a change, and for reading. NOT_FOUND.
  absl::StatusOr<Row> Find(absl::string_view id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::StatusOr<Row> Look(absl::string_view id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  // Gives the job the next revision.
  void Touch(Row* row, Totals* totals) const;
  // Numbers the records and puts them in as one batch. The row has to be written afterwards.
  absl::Status Append(Row* row, Totals* totals, std::span<v1::MetricRecord> records)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status DropOldest(Row* row, Totals* totals) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Of an ended job, down to its newest, until all logs together are within their limit. The job itself is not read: it
  // may be damaged.
  absl::Status TrimEnded(Row* row, Totals* totals) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Runs a statement that deletes jobs and gives their ids and log_bytes.
  absl::Status Forget(Statement* statement, Totals* totals, ForgottenJobs* forgotten)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Of ended jobs those that are too many and too old.
  absl::Status ForgetEnded(absl::Time now, Totals* totals, ForgottenJobs* forgotten)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Applies the limits in bytes and writes the row.
  absl::Status Finish(Row* row, Totals* totals) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status Write(const Row& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status Commit(Transaction* transaction, const Totals& totals) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Readers that leave no pause keep SQLite from beginning the write-ahead log anew: beyond a bound they have to.
  void BoundWal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) ABSL_LOCKS_EXCLUDED(read_mutex_, log_mutex_);
  absl::StatusOr<RecordPage> ReadRecordsInView(absl::string_view id, uint64_t from_sequence, int64_t max_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_mutex_);

  absl::Status ReadEpochs(int64_t job, std::vector<uint64_t>* starts) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(log_mutex_);

  const StoreLimits limits_;
  const StateLock lock_;  // until the database is closed
  std::atomic<uint64_t> revision_;
  const std::filesystem::path wal_path_;
  const std::string jobs_folder_;
  Mutex write_mutex_;  // taken before the others
  bool begun_ ABSL_GUARDED_BY(write_mutex_) = false;
  absl::Duration max_age_ ABSL_GUARDED_BY(write_mutex_);
  Writer writer_ ABSL_GUARDED_BY(write_mutex_);
  Totals totals_ ABSL_GUARDED_BY(write_mutex_);
  std::optional<Durability> durability_ ABSL_GUARDED_BY(write_mutex_);  // that the connection is set to
  mutable Mutex read_mutex_;
  mutable Reader reader_ ABSL_GUARDED_BY(read_mutex_);
  mutable std::set<std::string> left_out_ ABSL_GUARDED_BY(read_mutex_);  // damaged jobs that were warned of
  mutable Mutex log_mutex_;
  mutable LogReader log_reader_ ABSL_GUARDED_BY(log_mutex_);
};

}  // namespace lenet

#endif  // LENET_SERVER_STORE_SQLITE_STORE_H_
