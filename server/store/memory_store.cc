#include "server/store/memory_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/store/job_state.h"
#include "server/store/timestamp.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

absl::Status UnknownJob(absl::string_view id) { return absl::NotFoundError(absl::StrCat("no job \"", id, "\"")); }

bool Wanted(const JobQuery& query, v1::JobState state) {
  return query.states.empty() || std::find(query.states.begin(), query.states.end(), state) != query.states.end();
}

}  // namespace

MemoryStore::MemoryStore(const MemoryStoreOptions& options) : options_(options) {}

absl::StatusOr<CreateResult> MemoryStore::CreateJob(const v1::Job& job, std::vector<v1::MetricRecord> records) {
  if (job.state() != v1::QUEUED) {
    return absl::InternalError(absl::StrCat("job \"", job.id(), "\" created in ", StateName(job.state())));
  }
  MutexLock lock(&mutex_);
  if (!job.request_id().empty()) {
    const auto known = ids_by_request_.find(job.request_id());
    if (known != ids_by_request_.end()) return CreateResult{.job = rows_.at(known->second).job, .created = false};
  }
  const auto [it, inserted] = rows_.try_emplace(job.id());
  if (!inserted) return absl::AlreadyExistsError(absl::StrCat("job \"", job.id(), "\" exists"));
  if (!job.request_id().empty()) ids_by_request_[job.request_id()] = job.id();
  Row* row = &it->second;
  row->job = job;
  Touch(row);
  Append(row, records);
  Retain(row);
  return CreateResult{.job = row->job, .created = true};
}

absl::StatusOr<v1::Job> MemoryStore::GetJob(absl::string_view id) const {
  MutexLock lock(&mutex_);
  LENET_ASSIGN_OR_RETURN(const Row* row, Find(id));
  return row->job;
}

absl::StatusOr<v1::Job> MemoryStore::FindByRequestId(absl::string_view request_id) const {
  MutexLock lock(&mutex_);
  const auto known = ids_by_request_.find(std::string(request_id));
  if (known == ids_by_request_.end()) {
    return absl::NotFoundError(absl::StrCat("no job with request_id \"", request_id, "\""));
  }
  return rows_.at(known->second).job;
}

absl::StatusOr<JobPage> MemoryStore::ListJobs(const JobQuery& query) const {
  if (!std::all_of(query.page_token.begin(), query.page_token.end(), absl::ascii_isalnum)) {
    return absl::InvalidArgumentError("page_token is not one that a page came with");
  }
  MutexLock lock(&mutex_);
  JobPage page;
  int64_t bytes = 0;
  // A token is the last id of its page, which may have been forgotten since.
  auto it = query.page_token.empty() ? rows_.begin() : rows_.upper_bound(query.page_token);
  for (; it != rows_.end(); ++it) {
    const v1::Job& job = it->second.job;
    if (!Wanted(query, job.state())) continue;
    bytes += static_cast<int64_t>(job.ByteSizeLong());
    if (static_cast<int>(page.jobs.size()) == query.limit || (bytes > query.max_bytes && !page.jobs.empty())) {
      page.next_page_token = page.jobs.back().id();
      break;
    }
    page.jobs.push_back(job);
  }
  return page;
}

absl::StatusOr<ChangePage> MemoryStore::ListChanges(uint64_t after, int limit, int64_t max_bytes) const {
  MutexLock lock(&mutex_);
  ChangePage page = {.revision = after};
  int64_t bytes = 0;
  auto it = rows_by_revision_.upper_bound(after);
  for (; it != rows_by_revision_.end() && static_cast<int>(page.jobs.size()) < limit; ++it) {
    bytes += static_cast<int64_t>(it->second->job.ByteSizeLong());
    if (bytes > max_bytes && !page.jobs.empty()) break;
    page.jobs.push_back(it->second->job);
    page.revision = it->first;
  }
  page.complete = it == rows_by_revision_.end();
  return page;
}

absl::StatusOr<v1::Job> MemoryStore::ChangeState(absl::string_view id, StateUpdate update) {
  if (!IsLegalChange(update.from, update.to)) {
    return absl::InternalError(
        absl::StrCat("job \"", id, "\": no change from ", StateName(update.from), " to ", StateName(update.to)));
  }
  MutexLock lock(&mutex_);
  LENET_ASSIGN_OR_RETURN(Row * row, Find(id));
  v1::Job& job = row->job;
  if (job.state() != update.from) {
    return absl::AbortedError(
        absl::StrCat("job \"", id, "\" is ", StateName(job.state()), ", not ", StateName(update.from)));
  }
  job.set_state(update.to);
  job.set_reason(std::move(update.reason));
  if (update.to == v1::STARTING) {
    job.set_attempt(job.attempt() + 1);
    if (!job.has_started_at()) *job.mutable_started_at() = ToTimestamp(update.time);
    row->attempts.push_back({.number = job.attempt(), .started_at = update.time});
  }
  const bool ended = IsTerminal(update.to);
  if (ended) {
    *job.mutable_ended_at() = ToTimestamp(update.time);
    if (!row->attempts.empty() && !row->attempts.back().ended_at) {
      row->attempts.back().ended_at = update.time;
      row->attempts.back().end_state = update.to;
    }
  }
  if (update.edit) update.edit(&job);
  Touch(row);
  Append(row, update.records);
  if (ended) {
    ended_.push_back(job.id());
    trimmable_.push_back(job.id());
  }
  v1::Job result = job;
  Retain(row);
  return result;
}

absl::StatusOr<v1::Job> MemoryStore::UpdateJob(absl::string_view id, const JobEdit& edit) {
  MutexLock lock(&mutex_);
  LENET_ASSIGN_OR_RETURN(Row * row, Find(id));
  edit(&row->job);
  return row->job;
}

absl::StatusOr<std::vector<Attempt>> MemoryStore::ListAttempts(absl::string_view id) const {
  MutexLock lock(&mutex_);
  LENET_ASSIGN_OR_RETURN(const Row* row, Find(id));
  return row->attempts;
}

absl::StatusOr<uint64_t> MemoryStore::AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) {
  MutexLock lock(&mutex_);
  LENET_ASSIGN_OR_RETURN(Row * row, Find(id));
  if (IsTerminal(row->job.state())) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", id, "\" is ", StateName(row->job.state()), ": its log is closed"));
  }
  Append(row, records);
  const uint64_t last = row->job.last_sequence();
  Retain(row);
  return last;
}

absl::StatusOr<RecordPage> MemoryStore::ReadRecords(absl::string_view id, uint64_t from_sequence,
                                                    int64_t max_bytes) const {
  MutexLock lock(&mutex_);
  LENET_ASSIGN_OR_RETURN(const Row* row, Find(id));
  RecordPage page;
  page.last_sequence = row->job.last_sequence();
  page.first_sequence = page.last_sequence + 1 - row->records.size();
  page.ended = IsTerminal(row->job.state());
  if (from_sequence > page.last_sequence) return page;
  size_t i = from_sequence > page.first_sequence ? static_cast<size_t>(from_sequence - page.first_sequence) : 0;
  int64_t bytes = 0;
  for (; i < row->records.size(); ++i) {
    bytes += row->records[i].bytes;
    if (bytes > max_bytes && !page.records.empty()) break;
    page.records.push_back(row->records[i].record);
  }
  return page;
}

absl::StatusOr<MemoryStore::Row*> MemoryStore::Find(absl::string_view id) {
  const auto it = rows_.find(std::string(id));
  if (it == rows_.end()) return UnknownJob(id);
  return &it->second;
}

absl::StatusOr<const MemoryStore::Row*> MemoryStore::Find(absl::string_view id) const {
  const auto it = rows_.find(std::string(id));
  if (it == rows_.end()) return UnknownJob(id);
  return &it->second;
}

void MemoryStore::Touch(Row* row) {
  if (row->revision != 0) rows_by_revision_.erase(row->revision);
  row->revision = revision_.load(std::memory_order_relaxed) + 1;
  rows_by_revision_[row->revision] = row;
  revision_.store(row->revision, std::memory_order_release);
}

void MemoryStore::Append(Row* row, std::span<v1::MetricRecord> records) {
  for (v1::MetricRecord& record : records) {
    row->job.set_last_sequence(row->job.last_sequence() + 1);
    record.set_sequence(row->job.last_sequence());
    record.set_attempt(row->job.attempt());
    if (record.has_checkpoint_saved()) row->job.set_checkpoint(record.checkpoint_saved().path());
    const int64_t bytes = static_cast<int64_t>(record.SpaceUsedLong());
    row->records.push_back({std::make_shared<const v1::MetricRecord>(std::move(record)), bytes});
    row->log_bytes += bytes;
    total_log_bytes_ += bytes;
  }
}

void MemoryStore::DropOldest(Row* row) {
  const int64_t bytes = row->records.front().bytes;
  row->log_bytes -= bytes;
  total_log_bytes_ -= bytes;
  row->records.pop_front();
}

void MemoryStore::Retain(Row* row) {
  while (row->log_bytes > options_.max_log_bytes && row->records.size() > 1) DropOldest(row);
  while (total_log_bytes_ > options_.max_total_log_bytes && !trimmable_.empty()) {
    Row* ended = &rows_.at(trimmable_.front());
    if (ended->records.size() > 1) {
      DropOldest(ended);
    } else {
      trimmable_.pop_front();
    }
  }
  while (total_log_bytes_ > options_.max_total_log_bytes && row->records.size() > 1) DropOldest(row);
  while (ended_.size() > options_.max_ended_jobs) Forget(std::string(ended_.front()));
}

// The job is the first of ended_, so if it is in trimmable_, it is the first there too.
void MemoryStore::Forget(const std::string& id) {
  const auto it = rows_.find(id);
  Row& row = it->second;
  total_log_bytes_ -= row.log_bytes;
  if (!row.job.request_id().empty()) ids_by_request_.erase(row.job.request_id());
  rows_by_revision_.erase(row.revision);
  ended_.pop_front();
  if (!trimmable_.empty() && trimmable_.front() == id) trimmable_.pop_front();
  rows_.erase(it);
}

}  // namespace lenet
