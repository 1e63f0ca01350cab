// The calls that change nothing.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "lenet/v1/training_service.pb.h"
#include "server/store/job_state.h"
#include "server/store/sqlite_store.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

// Far above what any job can have, far below what memory could not hold.
constexpr int kMaxRanks = 1 << 16;

}  // namespace

absl::Status SqliteStore::ReadRow(const Statement& statement, Row* row) const {
  row->number = statement.Integer(0);
  row->id = std::string(statement.Bytes(1));
  row->revision = statement.Integer(2);
  if (!statement.IsNull(3)) row->ended_revision = statement.Integer(3);
  row->first_sequence = statement.Integer(4);
  row->batches = statement.Integer(5);
  row->log_bytes = statement.Integer(6);
  const absl::string_view bytes = statement.Bytes(7);
  const v1::Job& job = row->job;
  const bool whole = row->job.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) && job.id() == row->id &&
                     job.state() == statement.Integer(kStateColumn) && v1::JobState_IsValid(job.state()) &&
                     IsTerminal(job.state()) == row->ended_revision.has_value() && job.resolved().ranks() >= 1 &&
                     job.resolved().ranks() <= kMaxRanks;
  if (!whole) return Damaged(absl::StrCat("job ", row->id));
  CompletePaths(jobs_folder_, &row->job);
  return absl::OkStatus();
}

absl::StatusOr<bool> SqliteStore::ReadListed(const Statement& statement, Row* row) const {
  const absl::Status status = ReadRow(statement, row);
  if (status.ok()) return true;
  if (!row->ended_revision) return status;
  if (left_out_.insert(row->id).second) {
    Log(LogLevel::kWarning, absl::StrCat(status.message(), "; lists go on without it, and it can be deleted"));
  }
  return false;
}

absl::StatusOr<std::optional<SqliteStore::Row>> SqliteStore::ReadOne(const Database& database, absl::string_view key,
                                                                     Statement* statement) const {
  const absl::Cleanup reset = [statement] { statement->Reset(); };
  statement->Bind(1, key);
  LENET_ASSIGN_OR_RETURN(const bool found, statement->Step(database));
  if (!found) return std::optional<Row>();
  Row row;
  LENET_RETURN_IF_ERROR(ReadRow(*statement, &row));
  return std::optional<Row>(std::move(row));
}

absl::StatusOr<SqliteStore::Row> SqliteStore::Look(absl::string_view id) const {
  LENET_ASSIGN_OR_RETURN(std::optional<Row> row, ReadOne(reader_.database, id, &reader_.job));
  if (!row) return UnknownJob(id);
  return *std::move(row);
}

void SqliteStore::AwaitAnswers() {
  const std::string one_row = "SELECT closed FROM last_opening";
  {
    MutexLock lock(&write_mutex_);
    (void)writer_.database.Integer(one_row);
  }
  {
    MutexLock lock(&read_mutex_);
    (void)reader_.database.Integer(one_row);
  }
  MutexLock lock(&log_mutex_);
  (void)log_reader_.database.Integer(one_row);
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
    const auto state = static_cast<int>(reader_.jobs.Integer(kStateColumn));
    if (v1::JobState_IsValid(state) && !Wanted(query, static_cast<v1::JobState>(state))) continue;
    Row row;
    LENET_ASSIGN_OR_RETURN(const bool whole, ReadListed(reader_.jobs, &row));
    if (!whole) continue;
    bytes += static_cast<int64_t>(row.job.ByteSizeLong());
    if (static_cast<int>(page.jobs.size()) == query.limit || (bytes > query.max_bytes && !page.jobs.empty())) {
      page.next_page_token = page.jobs.back().id();
      return page;
    }
    page.jobs.push_back(std::move(row.job));
  }
}

absl::StatusOr<std::map<v1::JobState, int64_t>> SqliteStore::CountJobs() const {
  MutexLock lock(&read_mutex_);
  const absl::Cleanup reset = [statement = &reader_.states] { statement->Reset(); };
  std::map<v1::JobState, int64_t> counts;
  while (true) {
    LENET_ASSIGN_OR_RETURN(const bool found, reader_.states.Step(reader_.database));
    if (!found) return counts;
    const auto state = static_cast<int>(reader_.states.Integer(0));
    counts[v1::JobState_IsValid(state) ? static_cast<v1::JobState>(state) : v1::JOB_STATE_UNSPECIFIED] +=
        reader_.states.Integer(1);
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
    LENET_ASSIGN_OR_RETURN(const bool whole, ReadListed(reader_.changes, &row));
    if (!whole) {
      page.revision = static_cast<uint64_t>(row.revision);
      continue;
    }
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
  MutexLock lock(&log_mutex_);
  // One view of the file for both reads.
  LENET_RETURN_IF_ERROR(log_reader_.database.Execute("BEGIN"));
  absl::StatusOr<RecordPage> page = ReadRecordsInView(id, from_sequence, max_bytes);
  const absl::Status ended = log_reader_.database.Execute("ROLLBACK");
  if (page.ok() && !ended.ok()) return ended;
  return page;
}

absl::Status SqliteStore::ReadEpochs(int64_t job, std::vector<uint64_t>* starts) const {
  log_reader_.epochs.Bind(1, job);
  while (true) {
    LENET_ASSIGN_OR_RETURN(const bool more, log_reader_.epochs.Step(log_reader_.database));
    if (!more) return absl::OkStatus();
    starts->push_back(static_cast<uint64_t>(log_reader_.epochs.Integer(0)));
  }
}

absl::StatusOr<RecordPage> SqliteStore::ReadRecordsInView(absl::string_view id, uint64_t from_sequence,
                                                          int64_t max_bytes) const {
  LENET_ASSIGN_OR_RETURN(const std::optional<Row> found, ReadOne(log_reader_.database, id, &log_reader_.job));
  if (!found) return UnknownJob(id);
  const Row& row = *found;
  const absl::Cleanup reset = [statement = &log_reader_.batches] { statement->Reset(); };
  RecordPage page;
  page.last_sequence = row.job.last_sequence();
  page.first_sequence = static_cast<uint64_t>(row.first_sequence);
  page.ended = IsTerminal(row.job.state());
  page.log_epoch = row.job.log_epoch();
  if (page.log_epoch > 1) LENET_RETURN_IF_ERROR(ReadEpochs(row.number, &page.epoch_starts));
  if (from_sequence > page.last_sequence) return page;
  int64_t bytes = 0;
  log_reader_.batches.Bind(1, row.number);
  log_reader_.batches.Bind(2, static_cast<int64_t>(std::max(from_sequence, page.first_sequence)));
  while (true) {
    LENET_ASSIGN_OR_RETURN(const bool more, log_reader_.batches.Step(log_reader_.database));
    if (!more) return page;
    v1::StreamMetricsResponse batch;
    const absl::string_view packed = log_reader_.batches.Bytes(0);
    if (!batch.ParseFromArray(packed.data(), static_cast<int>(packed.size()))) {
      return Damaged(absl::StrCat("the log of job ", id));
    }
    for (v1::MetricRecord& record : *batch.mutable_records()) {
      if (record.sequence() < from_sequence) continue;
      CompletePath(jobs_folder_, id, &record);
      bytes += static_cast<int64_t>(record.SpaceUsedLong());
      if (bytes > max_bytes && !page.records.empty()) return page;
      page.records.push_back(std::make_shared<const v1::MetricRecord>(std::move(record)));
    }
  }
}

}  // namespace lenet
