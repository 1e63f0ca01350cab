#include "server/store/sqlite_store.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "lenet/v1/training_service.pb.h"
#include "server/store/job_state.h"
#include "server/store/store_rules.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;

// PRAGMA application_id: tells the file from other programs' databases.
constexpr int64_t kApplicationId = 0x6c6e6574;
// PRAGMA user_version. A change of the tables below needs the next one, and the way from the one before in Migrate.
constexpr int64_t kSchemaVersion = 1;

// `job` is a lenet.v1.Job, `batch` a lenet.v1.StreamMetricsResponse. Times are microseconds since 1970.
constexpr char kSchema[] = R"(
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  request_id TEXT UNIQUE,
  state INTEGER NOT NULL,
  revision INTEGER NOT NULL UNIQUE,
  ended_revision INTEGER,
  first_sequence INTEGER NOT NULL,
  batches INTEGER NOT NULL,
  log_bytes INTEGER NOT NULL,
  job BLOB NOT NULL);
CREATE INDEX jobs_ended ON jobs (ended_revision) WHERE ended_revision IS NOT NULL;
CREATE INDEX jobs_trimmable ON jobs (ended_revision) WHERE ended_revision IS NOT NULL AND batches > 1;
CREATE TABLE attempts (
  job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
  number INTEGER NOT NULL,
  started INTEGER NOT NULL,
  ended INTEGER,
  end_state INTEGER NOT NULL,
  PRIMARY KEY (job, number)) WITHOUT ROWID;
CREATE TABLE records (
  number INTEGER PRIMARY KEY,
  job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
  first_sequence INTEGER NOT NULL,
  last_sequence INTEGER NOT NULL,
  batch BLOB NOT NULL);
CREATE UNIQUE INDEX records_by_job ON records (job, last_sequence);
)";

constexpr char kRowColumns[] =
    "SELECT number, revision, ended_revision, first_sequence, batches, log_bytes, job FROM jobs ";

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the database is damaged: ", what, " cannot be read"));
}

absl::StatusOr<UniqueDescriptor> LockFolder(const fs::path& folder) {
  const std::string path = (folder / "lenetd.lock").string();
  UniqueDescriptor lock(Descriptor{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)});
  if (!lock) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open '", path, "'"));
  if (::flock(lock.get().number, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock '", path, "'"));
  return absl::UnavailableError(
      absl::StrCat("another lenetd has '", folder.string(), "' in use: it holds '", path, "'"));
}

absl::Status Migrate(Database* database) {
  LENET_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database));
  LENET_ASSIGN_OR_RETURN(const int64_t application, database->Integer("PRAGMA application_id"));
  LENET_ASSIGN_OR_RETURN(const int64_t version, database->Integer("PRAGMA user_version"));
  LENET_ASSIGN_OR_RETURN(const int64_t tables, database->Integer("SELECT COUNT(*) FROM sqlite_schema"));
  if (version == 0 && application == 0 && tables == 0) {
    LENET_RETURN_IF_ERROR(database->Execute(kSchema));
    LENET_RETURN_IF_ERROR(database->Execute(absl::StrCat("PRAGMA application_id = ", kApplicationId)));
    LENET_RETURN_IF_ERROR(database->Execute(absl::StrCat("PRAGMA user_version = ", kSchemaVersion)));
    return transaction.Commit();
  }
  if (application != kApplicationId) return absl::FailedPreconditionError("it is another program's database");
  if (version != kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("its version is ", version, ": this lenetd knows ", kSchemaVersion));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SqliteStore::Writer> SqliteStore::OpenWriter(const fs::path& path) {
  LENET_ASSIGN_OR_RETURN(Database database, Database::Open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  LENET_RETURN_IF_ERROR(database.Execute("PRAGMA foreign_keys = ON"));
  LENET_RETURN_IF_ERROR(Annotate(Migrate(&database), absl::StrCat("database '", path.string(), "'")));
  LENET_RETURN_IF_ERROR(database.Execute("PRAGMA journal_mode = WAL"));
  Writer writer = {.database = std::move(database)};
  const std::pair<Statement*, std::string> statements[] = {
      {&writer.insert_job,
       "INSERT INTO jobs (id, request_id, state, revision, first_sequence, batches, log_bytes, job) "
       "VALUES (?1, ?2, ?3, ?4, 1, 0, 0, '')"},
      {&writer.find_job, absl::StrCat(kRowColumns, "WHERE id = ?1")},
      {&writer.find_request, absl::StrCat(kRowColumns, "WHERE request_id = ?1")},
      {&writer.update_job,
       "UPDATE jobs SET state = ?2, revision = ?3, ended_revision = ?4, first_sequence = ?5, batches = ?6, "
       "log_bytes = ?7, job = ?8 WHERE number = ?1"},
      {&writer.forget_jobs,
       "DELETE FROM jobs WHERE number IN (SELECT number FROM jobs WHERE ended_revision IS NOT NULL "
       "ORDER BY ended_revision LIMIT ?1) RETURNING log_bytes"},
      {&writer.insert_attempt, "INSERT INTO attempts (job, number, started, end_state) VALUES (?1, ?2, ?3, 0)"},
      {&writer.end_attempt,
       "UPDATE attempts SET ended = ?2, end_state = ?3 WHERE job = ?1 AND ended IS NULL AND "
       "number = (SELECT MAX(number) FROM attempts WHERE job = ?1)"},
      {&writer.insert_batch, "INSERT INTO records (job, first_sequence, last_sequence, batch) VALUES (?1, ?2, ?3, ?4)"},
      {&writer.oldest_batch,
       "SELECT number, last_sequence, LENGTH(batch) FROM records WHERE job = ?1 ORDER BY last_sequence LIMIT 1"},
      {&writer.delete_batch, "DELETE FROM records WHERE number = ?1"},
      {&writer.first_trimmable,
       "SELECT id FROM jobs WHERE ended_revision IS NOT NULL AND batches > 1 ORDER BY ended_revision LIMIT 1"},
  };
  for (const auto& [statement, sql] : statements) {
    LENET_ASSIGN_OR_RETURN(*statement, Statement::Prepare(writer.database, sql));
  }
  return writer;
}

absl::StatusOr<SqliteStore::Reader> SqliteStore::OpenReader(const fs::path& path) {
  LENET_ASSIGN_OR_RETURN(Database database, Database::Open(path, SQLITE_OPEN_READWRITE));
  LENET_RETURN_IF_ERROR(database.Execute("PRAGMA query_only = ON"));
  Reader reader = {.database = std::move(database)};
  const std::pair<Statement*, std::string> statements[] = {
      {&reader.job, absl::StrCat(kRowColumns, "WHERE id = ?1")},
      {&reader.request, absl::StrCat(kRowColumns, "WHERE request_id = ?1")},
      {&reader.jobs, absl::StrCat(kRowColumns, "WHERE id < ?1 ORDER BY id DESC")},
      {&reader.changes, absl::StrCat(kRowColumns, "WHERE revision > ?1 ORDER BY revision")},
      {&reader.attempts, "SELECT number, started, ended, end_state FROM attempts WHERE job = ?1 ORDER BY number"},
      {&reader.batches, "SELECT batch FROM records WHERE job = ?1 AND last_sequence >= ?2 ORDER BY last_sequence"},
  };
  for (const auto& [statement, sql] : statements) {
    LENET_ASSIGN_OR_RETURN(*statement, Statement::Prepare(reader.database, sql));
  }
  return reader;
}

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const fs::path& folder, const StoreLimits& limits) {
  LENET_ASSIGN_OR_RETURN(UniqueDescriptor lock, LockFolder(folder));
  const fs::path path = folder / "lenetd.db";
  LENET_ASSIGN_OR_RETURN(Writer writer, OpenWriter(path));
  LENET_ASSIGN_OR_RETURN(Reader reader, OpenReader(path));
  Totals totals;
  LENET_ASSIGN_OR_RETURN(totals.revision, writer.database.Integer("SELECT MAX(revision) FROM jobs"));
  LENET_ASSIGN_OR_RETURN(totals.log_bytes, writer.database.Integer("SELECT SUM(log_bytes) FROM jobs"));
  LENET_ASSIGN_OR_RETURN(totals.ended_jobs, writer.database.Integer("SELECT COUNT(ended_revision) FROM jobs"));
  return std::unique_ptr<SqliteStore>(
      new SqliteStore(limits, std::move(lock), std::move(writer), std::move(reader), totals));
}

SqliteStore::SqliteStore(const StoreLimits& limits, UniqueDescriptor lock, Writer writer, Reader reader,
                         const Totals& totals)
    : limits_(limits),
      lock_(std::move(lock)),
      revision_(static_cast<uint64_t>(totals.revision)),
      writer_(std::move(writer)),
      totals_(totals),
      reader_(std::move(reader)) {}

absl::Status SqliteStore::SetDurability(Durability durability) {
  if (durability_ == durability) return absl::OkStatus();
  durability_.reset();
  LENET_RETURN_IF_ERROR(writer_.database.Execute(durability == Durability::kPower ? "PRAGMA synchronous = FULL"
                                                                                  : "PRAGMA synchronous = NORMAL"));
  durability_ = durability;
  return absl::OkStatus();
}

absl::Status SqliteStore::ReadRow(const Statement& statement, Row* row) {
  row->number = statement.Integer(0);
  row->revision = statement.Integer(1);
  if (!statement.IsNull(2)) row->ended_revision = statement.Integer(2);
  row->first_sequence = statement.Integer(3);
  row->batches = statement.Integer(4);
  row->log_bytes = statement.Integer(5);
  const absl::string_view bytes = statement.Bytes(6);
  if (!row->job.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Damaged(absl::StrCat("job ", row->number));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<SqliteStore::Row>> SqliteStore::ReadOne(const Database& database, absl::string_view key,
                                                                     Statement* statement) {
  const absl::Cleanup reset = [statement] { statement->Reset(); };
  statement->Bind(1, key);
  LENET_ASSIGN_OR_RETURN(const bool found, statement->Step(database));
  if (!found) return std::optional<Row>();
  Row row;
  LENET_RETURN_IF_ERROR(ReadRow(*statement, &row));
  return std::optional<Row>(std::move(row));
}

absl::StatusOr<SqliteStore::Row> SqliteStore::Find(absl::string_view id) {
  LENET_ASSIGN_OR_RETURN(std::optional<Row> row, ReadOne(writer_.database, id, &writer_.find_job));
  if (!row) return UnknownJob(id);
  return *std::move(row);
}

absl::StatusOr<SqliteStore::Row> SqliteStore::Look(absl::string_view id) const {
  LENET_ASSIGN_OR_RETURN(std::optional<Row> row, ReadOne(reader_.database, id, &reader_.job));
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
    batch.add_records()->Swap(&record);
  }
  const std::string bytes = batch.SerializeAsString();
  writer_.insert_batch.Bind(1, row->number);
  writer_.insert_batch.Bind(2, static_cast<int64_t>(first));
  writer_.insert_batch.Bind(3, static_cast<int64_t>(row->job.last_sequence()));
  writer_.insert_batch.BindBlob(4, bytes);
  const absl::Status status = writer_.insert_batch.Run(writer_.database);
  // They are the caller's until the transaction is through.
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].Swap(batch.mutable_records(static_cast<int>(i)));
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
  if (!found) return Damaged(absl::StrCat("the log of job ", row->number));
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
  update.BindBlob(8, row.job.SerializeAsString());
  return update.Run(writer_.database);
}

absl::Status SqliteStore::Finish(Row* row, Totals* totals) {
  while (row->log_bytes > limits_.max_log_bytes && row->batches > 1) {
    LENET_RETURN_IF_ERROR(DropOldest(row, totals));
  }
  LENET_RETURN_IF_ERROR(Write(*row));
  while (totals->log_bytes > limits_.max_total_log_bytes) {
    LENET_ASSIGN_OR_RETURN(const bool trimmable, writer_.first_trimmable.Step(writer_.database));
    if (!trimmable) break;
    const std::string id(writer_.first_trimmable.Bytes(0));
    writer_.first_trimmable.Reset();
    LENET_ASSIGN_OR_RETURN(Row ended, Find(id));
    while (totals->log_bytes > limits_.max_total_log_bytes && ended.batches > 1) {
      LENET_RETURN_IF_ERROR(DropOldest(&ended, totals));
    }
    LENET_RETURN_IF_ERROR(Write(ended));
    if (ended.number == row->number) *row = std::move(ended);
  }
  bool dropped = false;
  for (; totals->log_bytes > limits_.max_total_log_bytes && row->batches > 1; dropped = true) {
    LENET_RETURN_IF_ERROR(DropOldest(row, totals));
  }
  if (dropped) LENET_RETURN_IF_ERROR(Write(*row));
  if (totals->ended_jobs <= limits_.max_ended_jobs) return absl::OkStatus();
  writer_.forget_jobs.Bind(1, totals->ended_jobs - limits_.max_ended_jobs);
  while (true) {
    LENET_ASSIGN_OR_RETURN(const bool forgotten, writer_.forget_jobs.Step(writer_.database));
    if (!forgotten) return absl::OkStatus();
    --totals->ended_jobs;
    totals->log_bytes -= writer_.forget_jobs.Integer(0);
  }
}

absl::Status SqliteStore::Commit(Transaction* transaction, const Totals& totals) {
  LENET_RETURN_IF_ERROR(transaction->Commit());
  totals_ = totals;
  revision_.store(static_cast<uint64_t>(totals.revision), std::memory_order_release);
  return absl::OkStatus();
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
  Row row = {.job = job};
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
    writer_.end_attempt.Bind(1, row.number);
    writer_.end_attempt.Bind(2, absl::ToUnixMicros(update.time));
    writer_.end_attempt.Bind(3, int64_t{update.to});
    LENET_RETURN_IF_ERROR(writer_.end_attempt.Run(writer_.database));
  }
  if (update.edit) update.edit(&row.job);
  LENET_RETURN_IF_ERROR(Append(&row, &totals, update.records));
  LENET_RETURN_IF_ERROR(Finish(&row, &totals));
  LENET_RETURN_IF_ERROR(Commit(&transaction, totals));
  return std::move(row.job);
}

absl::StatusOr<v1::Job> SqliteStore::UpdateJob(absl::string_view id, const JobEdit& edit) {
  MutexLock lock(&write_mutex_);
  LENET_RETURN_IF_ERROR(SetDurability(Durability::kProcess));
  LENET_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_.database));
  LENET_ASSIGN_OR_RETURN(Row row, Find(id));
  edit(&row.job);
  LENET_RETURN_IF_ERROR(Write(row));
  LENET_RETURN_IF_ERROR(transaction.Commit());
  return std::move(row.job);
}

absl::StatusOr<uint64_t> SqliteStore::AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) {
  MutexLock lock(&write_mutex_);
  LENET_RETURN_IF_ERROR(SetDurability(Durability::kProcess));
  LENET_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&writer_.database));
  LENET_ASSIGN_OR_RETURN(Row row, Find(id));
  LENET_RETURN_IF_ERROR(CheckLogOpen(row.job));
  Totals totals = totals_;
  LENET_RETURN_IF_ERROR(Append(&row, &totals, records));
  const uint64_t last = row.job.last_sequence();
  LENET_RETURN_IF_ERROR(Finish(&row, &totals));
  LENET_RETURN_IF_ERROR(Commit(&transaction, totals));
  for (v1::MetricRecord& record : records) record.Clear();
  return last;
}

absl::StatusOr<v1::Job> SqliteStore::GetJob(absl::string_view id) const {
  MutexLock lock(&read_mutex_);
  LENET_ASSIGN_OR_RETURN(Row row, Look(id));
  return std::move(row.job);
}

absl::StatusOr<v1::Job> SqliteStore::FindByRequestId(absl::string_view request_id) const {
  MutexLock lock(&read_mutex_);
  LENET_ASSIGN_OR_RETURN(std::optional<Row> row, ReadOne(reader_.database, request_id, &reader_.request));
  if (!row) return UnknownRequest(request_id);
  return std::move(row->job);
}

absl::StatusOr<JobPage> SqliteStore::ListJobs(const JobQuery& query) const {
  LENET_RETURN_IF_ERROR(CheckPageToken(query));
  MutexLock lock(&read_mutex_);
  const absl::Cleanup reset = [statement = &reader_.jobs] { statement->Reset(); };
  JobPage page;
  int64_t bytes = 0;
  // Above every id, which are letters and digits.
  reader_.jobs.Bind(1, query.page_token.empty() ? absl::string_view("~") : absl::string_view(query.page_token));
  while (true) {
    LENET_ASSIGN_OR_RETURN(const bool found, reader_.jobs.Step(reader_.database));
    if (!found) return page;
    Row row;
    LENET_RETURN_IF_ERROR(ReadRow(reader_.jobs, &row));
    if (!Wanted(query, row.job.state())) continue;
    bytes += static_cast<int64_t>(row.job.ByteSizeLong());
    if (static_cast<int>(page.jobs.size()) == query.limit || (bytes > query.max_bytes && !page.jobs.empty())) {
      page.next_page_token = page.jobs.back().id();
      return page;
    }
    page.jobs.push_back(std::move(row.job));
  }
}

absl::StatusOr<ChangePage> SqliteStore::ListChanges(uint64_t after, int limit, int64_t max_bytes) const {
  MutexLock lock(&read_mutex_);
  const absl::Cleanup reset = [statement = &reader_.changes] { statement->Reset(); };
  ChangePage page = {.revision = after};
  int64_t bytes = 0;
  reader_.changes.Bind(1, static_cast<int64_t>(after));
  while (true) {
    LENET_ASSIGN_OR_RETURN(const bool found, reader_.changes.Step(reader_.database));
    page.complete = !found;
    if (!found) return page;
    Row row;
    LENET_RETURN_IF_ERROR(ReadRow(reader_.changes, &row));
    bytes += static_cast<int64_t>(row.job.ByteSizeLong());
    if (static_cast<int>(page.jobs.size()) == limit || (bytes > max_bytes && !page.jobs.empty())) return page;
    page.revision = static_cast<uint64_t>(row.revision);
    page.jobs.push_back(std::move(row.job));
  }
}

absl::StatusOr<std::vector<Attempt>> SqliteStore::ListAttempts(absl::string_view id) const {
  MutexLock lock(&read_mutex_);
  LENET_ASSIGN_OR_RETURN(const Row row, Look(id));
  std::vector<Attempt> attempts;
  reader_.attempts.Bind(1, row.number);
  while (true) {
    LENET_ASSIGN_OR_RETURN(const bool more, reader_.attempts.Step(reader_.database));
    if (!more) return attempts;
    Attempt& attempt = attempts.emplace_back();
    attempt.number = static_cast<uint32_t>(reader_.attempts.Integer(0));
    attempt.started_at = absl::FromUnixMicros(reader_.attempts.Integer(1));
    if (!reader_.attempts.IsNull(2)) attempt.ended_at = absl::FromUnixMicros(reader_.attempts.Integer(2));
    attempt.end_state = static_cast<v1::JobState>(reader_.attempts.Integer(3));
  }
}

absl::StatusOr<RecordPage> SqliteStore::ReadRecords(absl::string_view id, uint64_t from_sequence,
                                                    int64_t max_bytes) const {
  MutexLock lock(&read_mutex_);
  // One view of the file for both reads.
  LENET_RETURN_IF_ERROR(reader_.database.Execute("BEGIN"));
  absl::StatusOr<RecordPage> page = ReadRecordsInView(id, from_sequence, max_bytes);
  const absl::Status ended = reader_.database.Execute("ROLLBACK");
  if (page.ok() && !ended.ok()) return ended;
  return page;
}

absl::StatusOr<RecordPage> SqliteStore::ReadRecordsInView(absl::string_view id, uint64_t from_sequence,
                                                          int64_t max_bytes) const {
  LENET_ASSIGN_OR_RETURN(const Row row, Look(id));
  const absl::Cleanup reset = [statement = &reader_.batches] { statement->Reset(); };
  RecordPage page;
  page.last_sequence = row.job.last_sequence();
  page.first_sequence = static_cast<uint64_t>(row.first_sequence);
  page.ended = IsTerminal(row.job.state());
  if (from_sequence > page.last_sequence) return page;
  int64_t bytes = 0;
  reader_.batches.Bind(1, row.number);
  reader_.batches.Bind(2, static_cast<int64_t>(std::max(from_sequence, page.first_sequence)));
  while (true) {
    LENET_ASSIGN_OR_RETURN(const bool more, reader_.batches.Step(reader_.database));
    if (!more) return page;
    v1::StreamMetricsResponse batch;
    const absl::string_view packed = reader_.batches.Bytes(0);
    if (!batch.ParseFromArray(packed.data(), static_cast<int>(packed.size()))) {
      return Damaged(absl::StrCat("the log of job ", id));
    }
    for (v1::MetricRecord& record : *batch.mutable_records()) {
      if (record.sequence() < from_sequence) continue;
      bytes += static_cast<int64_t>(record.SpaceUsedLong());
      if (bytes > max_bytes && !page.records.empty()) return page;
      page.records.push_back(std::make_shared<const v1::MetricRecord>(std::move(record)));
    }
  }
}

}  // namespace lenet
