#include "server/store/sqlite_store.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lenet/v1/training_service.pb.h"
#include "server/store/job_state.h"
#include "server/store/timestamp.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;

// SQLite empties the write-ahead log at about 4 MiB. A file that was larger is cut to the first of these, and beyond
// the second readers are held off for it.
constexpr int64_t kKeptWalBytes = int64_t{16} << 20;
constexpr uintmax_t kMaxWalBytes = uintmax_t{32} << 20;

constexpr char kRowColumns[] =
    "SELECT number, id, revision, ended_revision, first_sequence, batches, log_bytes, job, state FROM jobs ";
constexpr char kDeleteJobs[] = "DELETE FROM jobs WHERE number IN (SELECT number FROM jobs WHERE ";
constexpr char kDeletedColumns[] = ") RETURNING id, log_bytes";

using PreparedSql = std::pair<Statement*, std::string>;

absl::Status PrepareAll(const Database& database, std::span<const PreparedSql> statements) {
  for (const auto& [statement, sql] : statements) {
    LENET_ASSIGN_OR_RETURN(*statement, Statement::Prepare(database, sql));
  }
  return absl::OkStatus();
}

absl::StatusOr<Database> OpenForReading(const fs::path& folder) {
  LENET_ASSIGN_OR_RETURN(Database database, Database::Open(DatabaseFile(folder), SQLITE_OPEN_READWRITE));
  LENET_RETURN_IF_ERROR(database.Execute("PRAGMA query_only = ON"));
  return database;
}

}  // namespace

absl::StatusOr<SqliteStore::Writer> SqliteStore::OpenWriter(const fs::path& folder) {
  LENET_ASSIGN_OR_RETURN(Database database, Database::Open(DatabaseFile(folder), SQLITE_OPEN_READWRITE));
  database.KeepWal(true);
  LENET_RETURN_IF_ERROR(database.Execute("PRAGMA foreign_keys = ON"));
  LENET_RETURN_IF_ERROR(Migrate(&database, folder));
  LENET_RETURN_IF_ERROR(CheckIntegrity(&database));
  database.KeepWal(false);
  LENET_RETURN_IF_ERROR(database.Execute("PRAGMA journal_mode = WAL"));
  LENET_RETURN_IF_ERROR(database.Execute(absl::StrCat("PRAGMA journal_size_limit = ", kKeptWalBytes)));
  Writer writer = {.database = std::move(database)};
  const PreparedSql statements[] = {
      {&writer.insert_job,
       "INSERT INTO jobs (id, request_id, state, revision, first_sequence, batches, log_bytes, job) "
       "VALUES (?1, ?2, ?3, ?4, 1, 0, 0, '')"},
      {&writer.find_job, absl::StrCat(kRowColumns, "WHERE id = ?1")},
      {&writer.find_request, absl::StrCat(kRowColumns, "WHERE request_id = ?1")},
      {&writer.update_job,
       "UPDATE jobs SET state = ?2, revision = ?3, ended_revision = ?4, first_sequence = ?5, batches = ?6, "
       "log_bytes = ?7, job = ?8, ended = ?9 WHERE number = ?1"},
      {&writer.update_log, "UPDATE jobs SET first_sequence = ?2, batches = ?3, log_bytes = ?4 WHERE number = ?1"},
      {&writer.delete_job, absl::StrCat(kDeleteJobs, "id = ?1 AND ended_revision IS NOT NULL", kDeletedColumns)},
      {&writer.delete_first,
       absl::StrCat(kDeleteJobs, "ended_revision IS NOT NULL ORDER BY ended_revision LIMIT ?1", kDeletedColumns)},
      {&writer.delete_old, absl::StrCat(kDeleteJobs, "ended < ?1", kDeletedColumns)},
      {&writer.insert_attempt, "INSERT INTO attempts (job, number, started, end_state) VALUES (?1, ?2, ?3, 0)"},
      {&writer.end_attempt,
       "UPDATE attempts SET ended = ?2, end_state = ?3 WHERE job = ?1 AND ended IS NULL AND "
       "number = (SELECT MAX(number) FROM attempts WHERE job = ?1)"},
      {&writer.insert_epoch, "INSERT INTO log_epochs (job, number, first_sequence) VALUES (?1, ?2, ?3)"},
      {&writer.insert_batch, "INSERT INTO records (job, first_sequence, last_sequence, batch) VALUES (?1, ?2, ?3, ?4)"},
      {&writer.oldest_batch,
       "SELECT number, last_sequence, LENGTH(batch) FROM records WHERE job = ?1 ORDER BY last_sequence LIMIT 1"},
      {&writer.delete_batch, "DELETE FROM records WHERE number = ?1"},
      {&writer.first_trimmable,
       "SELECT number, id, first_sequence, batches, log_bytes FROM jobs "
       "WHERE ended_revision IS NOT NULL AND batches > 1 ORDER BY ended_revision LIMIT 1"},
  };
  LENET_RETURN_IF_ERROR(PrepareAll(writer.database, statements));
  return writer;
}

absl::StatusOr<SqliteStore::Reader> SqliteStore::OpenReader(const fs::path& folder) {
  LENET_ASSIGN_OR_RETURN(Database database, OpenForReading(folder));
  Reader reader = {.database = std::move(database)};
  const PreparedSql statements[] = {
      {&reader.job, absl::StrCat(kRowColumns, "WHERE id = ?1")},
      {&reader.request, absl::StrCat(kRowColumns, "WHERE request_id = ?1")},
      {&reader.jobs, absl::StrCat(kRowColumns, "WHERE id < ?1 ORDER BY id DESC")},
      {&reader.states, "SELECT state, COUNT(*) FROM jobs GROUP BY state"},
      {&reader.changes, absl::StrCat(kRowColumns, "WHERE revision > ?1 ORDER BY revision")},
      {&reader.attempts, "SELECT number, started, ended, end_state FROM attempts WHERE job = ?1 ORDER BY number"},
  };
  LENET_RETURN_IF_ERROR(PrepareAll(reader.database, statements));
  return reader;
}

absl::StatusOr<SqliteStore::LogReader> SqliteStore::OpenLogReader(const fs::path& folder) {
  LENET_ASSIGN_OR_RETURN(Database database, OpenForReading(folder));
  LogReader reader = {.database = std::move(database)};
  const PreparedSql statements[] = {
      {&reader.job, absl::StrCat(kRowColumns, "WHERE id = ?1")},
      {&reader.epochs, "SELECT first_sequence FROM log_epochs WHERE job = ?1 ORDER BY number"},
      {&reader.batches, "SELECT batch FROM records WHERE job = ?1 AND last_sequence >= ?2 ORDER BY last_sequence"},
  };
  LENET_RETURN_IF_ERROR(PrepareAll(reader.database, statements));
  return reader;
}

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const fs::path& folder, const StoreLimits& limits,
                                                               const std::string& boot_id) {
  LENET_ASSIGN_OR_RETURN(StateLock lock, LockState(folder));
  LENET_ASSIGN_OR_RETURN(Writer writer, OpenWriter(folder));
  LENET_ASSIGN_OR_RETURN(Reader reader, OpenReader(folder));
  LENET_ASSIGN_OR_RETURN(LogReader log_reader, OpenLogReader(folder));
  Totals totals;
  LENET_ASSIGN_OR_RETURN(totals.revision, writer.database.Integer("SELECT MAX(revision) FROM jobs"));
  LENET_ASSIGN_OR_RETURN(totals.log_bytes, writer.database.Integer("SELECT SUM(log_bytes) FROM jobs"));
  LENET_ASSIGN_OR_RETURN(totals.ended_jobs, writer.database.Integer("SELECT COUNT(ended_revision) FROM jobs"));
  auto store = std::unique_ptr<SqliteStore>(new SqliteStore(limits, std::move(lock), folder, std::move(writer),
                                                            std::move(reader), std::move(log_reader), totals));
  LENET_RETURN_IF_ERROR(store->Begin(boot_id, absl::Now()));
  return store;
}

SqliteStore::SqliteStore(const StoreLimits& limits, StateLock lock, const fs::path& folder, Writer writer,
                         Reader reader, LogReader log_reader, const Totals& totals)
    : limits_(limits),
      lock_(std::move(lock)),
      revision_(static_cast<uint64_t>(totals.revision)),
      wal_path_(absl::StrCat(DatabaseFile(folder).string(), "-wal")),
      jobs_folder_(JobsFolder(folder).string()),
      max_age_(limits.max_age),
      writer_(std::move(writer)),
      totals_(totals),
      reader_(std::move(reader)),
      log_reader_(std::move(log_reader)) {}

SqliteStore::~SqliteStore() {
  MutexLock lock(&write_mutex_);
  if (!begun_) return;
  absl::Status status = SetDurability(Durability::kPower);
  if (status.ok()) status = writer_.database.Execute("UPDATE last_opening SET closed = 1");
  if (!status.ok()) Log(LogLevel::kError, absl::StrCat("the database is not closed in order: ", status.ToString()));
}

absl::Status SqliteStore::Begin(const std::string& boot_id, absl::Time now) {
  ForgottenJobs forgotten(&limits_);
  MutexLock lock(&write_mutex_);
  LENET_RETURN_IF_ERROR(SetDurability(Durability::kPower));
  LENET_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_.database));
  LENET_ASSIGN_OR_RETURN(Statement last,
                         Statement::Prepare(writer_.database, "SELECT closed, boot_id FROM last_opening"));
  LENET_ASSIGN_OR_RETURN(const bool found, last.Step(writer_.database));
  if (!found) return Damaged("its last opening");
  const bool complete = last.Integer(0) != 0 || (!boot_id.empty() && last.Bytes(1) == absl::string_view(boot_id));
  last.Reset();
  if (!complete) LENET_RETURN_IF_ERROR(BeginEpochs());
  LENET_ASSIGN_OR_RETURN(Statement note,
                         Statement::Prepare(writer_.database, "UPDATE last_opening SET closed = 0, boot_id = ?1"));
  note.Bind(1, boot_id);
  LENET_RETURN_IF_ERROR(note.Run(writer_.database));
  Totals totals = totals_;
  LENET_RETURN_IF_ERROR(ForgetEnded(now, &totals, &forgotten));
  LENET_RETURN_IF_ERROR(Commit(&transaction, totals));
  forgotten.Commit();
  begun_ = true;
  return absl::OkStatus();
}

absl::Status SqliteStore::BeginEpochs() {
  LENET_ASSIGN_OR_RETURN(
      Statement open, Statement::Prepare(writer_.database, absl::StrCat(kRowColumns, "WHERE ended_revision IS NULL")));
  std::vector<Row> rows;
  while (true) {
    LENET_ASSIGN_OR_RETURN(const bool found, open.Step(writer_.database));
    if (!found) break;
    Row row;
    // A damaged job has no readers.
    if (ReadRow(open, &row).ok()) rows.push_back(std::move(row));
  }
  for (Row& row : rows) {
    row.job.set_log_epoch(row.job.log_epoch() + 1);
    writer_.insert_epoch.Bind(1, row.number);
    writer_.insert_epoch.Bind(2, int64_t{row.job.log_epoch()});
    writer_.insert_epoch.Bind(3, static_cast<int64_t>(row.job.last_sequence()) + 1);
    LENET_RETURN_IF_ERROR(writer_.insert_epoch.Run(writer_.database));
    LENET_RETURN_IF_ERROR(Write(row));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::SetDurability(Durability durability) {
  if (durability_ == durability) return absl::OkStatus();
  durability_.reset();
  LENET_RETURN_IF_ERROR(writer_.database.Execute(durability == Durability::kPower ? "PRAGMA synchronous = FULL"
                                                                                  : "PRAGMA synchronous = NORMAL"));
  durability_ = durability;
  return absl::OkStatus();
}

absl::StatusOr<SqliteStore::Row> SqliteStore::Find(absl::string_view id) {
  LENET_ASSIGN_OR_RETURN(std::optional<Row> row, ReadOne(writer_.database, id, &writer_.find_job));
  if (!row) return UnknownJob(id);
  return *std::move(row);
}

void SqliteStore::Touch(Row* row, Totals* totals) const { row->revision = ++totals->revision; }

absl::Status SqliteStore::Append(Row* row, Totals* totals, std::span<v1::MetricRecord> records) {
  if (records.empty()) return absl::OkStatus();
  const uint64_t first = row->job.last_sequence() + 1;
  v1::StreamMetricsResponse batch;
  for (v1::MetricRecord& record : records) {
    Number(&row->job, &record);
    ShortenPath(&record);
    batch.add_records()->Swap(&record);
  }
  const std::string bytes = batch.SerializeAsString();
  writer_.insert_batch.Bind(1, row->number);
  writer_.insert_batch.Bind(2, static_cast<int64_t>(first));
  writer_.insert_batch.Bind(3, static_cast<int64_t>(row->job.last_sequence()));
  writer_.insert_batch.BindBlob(4, bytes);
  const absl::Status status = writer_.insert_batch.Run(writer_.database);
  // They get their numbers when the transaction is through.
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].Swap(batch.mutable_records(static_cast<int>(i)));
    CompletePath(jobs_folder_, row->id, &records[i]);
    records[i].clear_sequence();
    records[i].clear_attempt();
  }
  LENET_RETURN_IF_ERROR(status);
  ++row->batches;
  row->log_bytes += static_cast<int64_t>(bytes.size());
  totals->log_bytes += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status SqliteStore::DropOldest(Row* row, Totals* totals) {
  writer_.oldest_batch.Bind(1, row->number);
  LENET_ASSIGN_OR_RETURN(const bool found, writer_.oldest_batch.Step(writer_.database));
  if (!found) return Damaged(absl::StrCat("the log of job ", row->id));
  const int64_t number = writer_.oldest_batch.Integer(0);
  row->first_sequence = writer_.oldest_batch.Integer(1) + 1;
  const int64_t bytes = writer_.oldest_batch.Integer(2);
  writer_.oldest_batch.Reset();
  writer_.delete_batch.Bind(1, number);
  LENET_RETURN_IF_ERROR(writer_.delete_batch.Run(writer_.database));
  --row->batches;
  row->log_bytes -= bytes;
  totals->log_bytes -= bytes;
  return absl::OkStatus();
}

absl::Status SqliteStore::Write(const Row& row) {
  Statement& update = writer_.update_job;
  update.Bind(1, row.number);
  update.Bind(2, int64_t{row.job.state()});
  update.Bind(3, row.revision);
  if (row.ended_revision) update.Bind(4, *row.ended_revision);
  update.Bind(5, row.first_sequence);
  update.Bind(6, row.batches);
  update.Bind(7, row.log_bytes);
  v1::Job stored = row.job;
  ShortenPaths(&stored);
  update.BindBlob(8, stored.SerializeAsString());
  if (row.ended_revision) update.Bind(9, absl::ToUnixMicros(FromTimestamp(row.job.ended_at())));
  return update.Run(writer_.database);
}

absl::Status SqliteStore::TrimEnded(Row* row, Totals* totals) {
  while (totals->log_bytes > limits_.max_total_log_bytes && row->batches > 1) {
    LENET_RETURN_IF_ERROR(DropOldest(row, totals));
  }
  writer_.update_log.Bind(1, row->number);
  writer_.update_log.Bind(2, row->first_sequence);
  writer_.update_log.Bind(3, row->batches);
  writer_.update_log.Bind(4, row->log_bytes);
  return writer_.update_log.Run(writer_.database);
}

absl::Status SqliteStore::Finish(Row* row, Totals* totals) {
  while (row->log_bytes > limits_.max_log_bytes && row->batches > 1) {
    LENET_RETURN_IF_ERROR(DropOldest(row, totals));
  }
  LENET_RETURN_IF_ERROR(Write(*row));
  while (totals->log_bytes > limits_.max_total_log_bytes) {
    LENET_ASSIGN_OR_RETURN(const bool trimmable, writer_.first_trimmable.Step(writer_.database));
    if (!trimmable) break;
    Row ended;
    ended.number = writer_.first_trimmable.Integer(0);
    ended.id = std::string(writer_.first_trimmable.Bytes(1));
    ended.first_sequence = writer_.first_trimmable.Integer(2);
    ended.batches = writer_.first_trimmable.Integer(3);
    ended.log_bytes = writer_.first_trimmable.Integer(4);
    writer_.first_trimmable.Reset();
    LENET_RETURN_IF_ERROR(TrimEnded(ended.number == row->number ? row : &ended, totals));
  }
  bool dropped = false;
  for (; totals->log_bytes > limits_.max_total_log_bytes && row->batches > 1; dropped = true) {
    LENET_RETURN_IF_ERROR(DropOldest(row, totals));
  }
  return dropped ? Write(*row) : absl::OkStatus();
}

absl::Status SqliteStore::Forget(Statement* statement, Totals* totals, ForgottenJobs* forgotten) {
  while (true) {
    LENET_ASSIGN_OR_RETURN(const bool deleted, statement->Step(writer_.database));
    if (!deleted) return absl::OkStatus();
    forgotten->Add(std::string(statement->Bytes(0)));
    --totals->ended_jobs;
    totals->log_bytes -= statement->Integer(1);
  }
}

absl::Status SqliteStore::ForgetEnded(absl::Time now, Totals* totals, ForgottenJobs* forgotten) {
  if (totals->ended_jobs > limits_.max_ended_jobs) {
    writer_.delete_first.Bind(1, totals->ended_jobs - limits_.max_ended_jobs);
    LENET_RETURN_IF_ERROR(Forget(&writer_.delete_first, totals, forgotten));
  }
  if (max_age_ == absl::InfiniteDuration()) return absl::OkStatus();
  writer_.delete_old.Bind(1, absl::ToUnixMicros(now - max_age_));
  return Forget(&writer_.delete_old, totals, forgotten);
}

absl::Status SqliteStore::Commit(Transaction* transaction, const Totals& totals) {
  LENET_RETURN_IF_ERROR(transaction->Commit());
  totals_ = totals;
  revision_.store(static_cast<uint64_t>(totals.revision), std::memory_order_release);
  BoundWal();
  return absl::OkStatus();
}

void SqliteStore::BoundWal() {
  std::error_code error;
  if (const uintmax_t bytes = fs::file_size(wal_path_, error); error || bytes <= kMaxWalBytes) return;
  MutexLock read_lock(&read_mutex_);
  MutexLock log_lock(&log_mutex_);
  writer_.database.CutWal().IgnoreError();  // the next write meets the same and tells of it
}

absl::StatusOr<CreateResult> SqliteStore::CreateJob(const v1::Job& job, std::vector<v1::MetricRecord> records) {
  LENET_RETURN_IF_ERROR(CheckNew(job));
  MutexLock lock(&write_mutex_);
  LENET_RETURN_IF_ERROR(SetDurability(Durability::kPower));
  LENET_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_.database));
  if (!job.request_id().empty()) {
    LENET_ASSIGN_OR_RETURN(std::optional<Row> known,
                           ReadOne(writer_.database, job.request_id(), &writer_.find_request));
    if (known) return CreateResult{.job = std::move(known->job), .created = false};
  }
  LENET_ASSIGN_OR_RETURN(const std::optional<Row> taken, ReadOne(writer_.database, job.id(), &writer_.find_job));
  if (taken) return TakenId(job.id());
  Totals totals = totals_;
  Row row = {.id = job.id(), .job = job};
  ApplyCreation(&row.job);
  Touch(&row, &totals);
  writer_.insert_job.Bind(1, job.id());
  if (!job.request_id().empty()) writer_.insert_job.Bind(2, job.request_id());
  writer_.insert_job.Bind(3, int64_t{job.state()});
  writer_.insert_job.Bind(4, row.revision);
  LENET_RETURN_IF_ERROR(writer_.insert_job.Run(writer_.database));
  row.number = sqlite3_last_insert_rowid(writer_.database.get());
  LENET_RETURN_IF_ERROR(Append(&row, &totals, records));
  LENET_RETURN_IF_ERROR(Finish(&row, &totals));
  LENET_RETURN_IF_ERROR(Commit(&transaction, totals));
  return CreateResult{.job = std::move(row.job), .created = true};
}

absl::StatusOr<v1::Job> SqliteStore::ChangeState(absl::string_view id, StateUpdate update) {
  LENET_RETURN_IF_ERROR(CheckLegal(id, update));
  ForgottenJobs forgotten(&limits_);
  MutexLock lock(&write_mutex_);
  LENET_RETURN_IF_ERROR(SetDurability(Durability::kPower));
  LENET_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_.database));
  LENET_ASSIGN_OR_RETURN(Row row, Find(id));
  LENET_RETURN_IF_ERROR(CheckFrom(row.job, update));
  Totals totals = totals_;
  ApplyChange(update, &row.job);
  Touch(&row, &totals);
  if (update.to == v1::STARTING) {
    writer_.insert_attempt.Bind(1, row.number);
    writer_.insert_attempt.Bind(2, int64_t{row.job.attempt()});
    writer_.insert_attempt.Bind(3, absl::ToUnixMicros(update.time));
    LENET_RETURN_IF_ERROR(writer_.insert_attempt.Run(writer_.database));
  }
  if (IsTerminal(update.to)) {
    row.ended_revision = row.revision;
    ++totals.ended_jobs;
  }
  if (EndsAttempt(update.to)) {
    writer_.end_attempt.Bind(1, row.number);
    writer_.end_attempt.Bind(2, absl::ToUnixMicros(update.time));
    writer_.end_attempt.Bind(3, int64_t{update.to});
    LENET_RETURN_IF_ERROR(writer_.end_attempt.Run(writer_.database));
  }
  if (update.edit) update.edit(&row.job);
  LENET_RETURN_IF_ERROR(Append(&row, &totals, update.records));
  LENET_RETURN_IF_ERROR(Finish(&row, &totals));
  if (IsTerminal(update.to)) LENET_RETURN_IF_ERROR(ForgetEnded(update.time, &totals, &forgotten));
  LENET_RETURN_IF_ERROR(Commit(&transaction, totals));
  forgotten.Commit();
  return std::move(row.job);
}

absl::Status SqliteStore::DeleteJob(absl::string_view id) {
  ForgottenJobs forgotten(&limits_);
  MutexLock lock(&write_mutex_);
  LENET_RETURN_IF_ERROR(SetDurability(Durability::kPower));
  LENET_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_.database));
  const absl::StatusOr<Row> row = Find(id);
  if (!row.ok() && !absl::IsDataLoss(row.status())) return row.status();
  if (row.ok()) LENET_RETURN_IF_ERROR(CheckEnded(row->job));
  Totals totals = totals_;
  writer_.delete_job.Bind(1, id);
  LENET_RETURN_IF_ERROR(Forget(&writer_.delete_job, &totals, &forgotten));
  if (forgotten.empty()) return row.status();  // damaged, and has not ended
  LENET_RETURN_IF_ERROR(Commit(&transaction, totals));
  forgotten.Commit();
  return absl::OkStatus();
}

void SqliteStore::SetMaxAge(absl::Duration max_age) {
  MutexLock lock(&write_mutex_);
  max_age_ = max_age;
}

absl::Status SqliteStore::ForgetOld(absl::Time now) {
  ForgottenJobs forgotten(&limits_);
  MutexLock lock(&write_mutex_);
  LENET_RETURN_IF_ERROR(SetDurability(Durability::kPower));
  LENET_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_.database));
  Totals totals = totals_;
  LENET_RETURN_IF_ERROR(ForgetEnded(now, &totals, &forgotten));
  LENET_RETURN_IF_ERROR(Commit(&transaction, totals));
  forgotten.Commit();
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> SqliteStore::UpdateJob(absl::string_view id, const JobEdit& edit) {
  MutexLock lock(&write_mutex_);
  LENET_RETURN_IF_ERROR(SetDurability(Durability::kPower));
  LENET_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_.database));
  LENET_ASSIGN_OR_RETURN(Row row, Find(id));
  edit(&row.job);
  LENET_RETURN_IF_ERROR(Write(row));
  LENET_RETURN_IF_ERROR(transaction.Commit());
  return std::move(row.job);
}

absl::StatusOr<uint64_t> SqliteStore::AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) {
  // Older checkpoints are deleted once it is recorded.
  const bool saved = std::any_of(records.begin(), records.end(),
                                 [](const v1::MetricRecord& record) { return record.has_checkpoint_saved(); });
  MutexLock lock(&write_mutex_);
  LENET_RETURN_IF_ERROR(SetDurability(saved ? Durability::kPower : Durability::kProcess));
  LENET_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_.database));
  LENET_ASSIGN_OR_RETURN(Row row, Find(id));
  LENET_RETURN_IF_ERROR(CheckLogOpen(row.job));
  Totals totals = totals_;
  LENET_RETURN_IF_ERROR(Append(&row, &totals, records));
  const uint64_t last = row.job.last_sequence();
  LENET_RETURN_IF_ERROR(Finish(&row, &totals));
  LENET_RETURN_IF_ERROR(Commit(&transaction, totals));
  uint64_t sequence = last - records.size();
  for (v1::MetricRecord& record : records) {
    record.set_sequence(++sequence);
    record.set_attempt(row.job.attempt());
  }
  return last;
}

}  // namespace lenet
