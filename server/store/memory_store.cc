#include "server/store/memory_store.h"

#include <utility>

#include "server/store/job_state.h"
#include "server/store/store_rules.h"
#include "server/store/timestamp.h"
#include "trainer/base/status.h"

namespace lenet {

MemoryStore::MemoryStore(const StoreLimits& limits) : limits_(limits), max_age_(limits.max_age) {}

absl::StatusOr<CreateResult> MemoryStore::CreateJob(const v1::Job& job, std::vector<v1::MetricRecord> records) {
  LENET_RETURN_IF_ERROR(CheckNew(job));
  MutexLock lock(&mutex_);
  if (!job.request_id().empty()) {
    const auto known = ids_by_request_.find(job.request_id());
    if (known != ids_by_request_.end()) return CreateResult{.job = rows_.at(known->second).job, .created = false};
  }
  const auto [it, inserted] = rows_.try_emplace(job.id());
  if (!inserted) return TakenId(job.id());
  if (!job.request_id().empty()) ids_by_request_[job.request_id()] = job.id();
  Row* row = &it->second;
  row->job = job;
  ApplyCreation(&row->job);
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
  if (known == ids_by_request_.end()) return UnknownRequest(request_id);
  return rows_.at(known->second).job;
}

absl::StatusOr<JobPage> MemoryStore::ListJobs(const JobQuery& query) const {
  LENET_RETURN_IF_ERROR(CheckPageToken(query));
  MutexLock lock(&mutex_);
  JobPage page;
  int64_t bytes = 0;
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

absl::StatusOr<std::map<v1::JobState, int64_t>> MemoryStore::CountJobs() const {
  MutexLock lock(&mutex_);
  std::map<v1::JobState, int64_t> counts;
  for (const auto& [id, row] : rows_) ++counts[row.job.state()];
  return counts;
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
  LENET_RETURN_IF_ERROR(CheckLegal(id, update));
  ForgottenJobs forgotten(&limits_);
  MutexLock lock(&mutex_);
  LENET_ASSIGN_OR_RETURN(Row * row, Find(id));
  v1::Job& job = row->job;
  LENET_RETURN_IF_ERROR(CheckFrom(job, update));
  ApplyChange(update, &job);
  if (update.to == v1::STARTING) row->attempts.push_back({.number = job.attempt(), .started_at = update.time});
  const bool ended = IsTerminal(update.to);
  if (EndsAttempt(update.to) && !row->attempts.empty() && !row->attempts.back().ended_at) {
    row->attempts.back().ended_at = update.time;
    row->attempts.back().end_state = update.to;
  }
  if (update.edit) update.edit(&job);
  Touch(row);
  Append(row, update.records);
  if (ended) {
    ended_[row->revision] = row;
    trimmable_[row->revision] = row;
  }
  v1::Job result = job;
  Retain(row);
  if (ended) ForgetEnded(update.time, &forgotten);
  return result;
}

absl::StatusOr<v1::Job> MemoryStore::UpdateJob(absl::string_view id, const JobEdit& edit) {
  MutexLock lock(&mutex_);
  LENET_ASSIGN_OR_RETURN(Row * row, Find(id));
  edit(&row->job);
  return row->job;
}

absl::Status MemoryStore::DeleteJob(absl::string_view id) {
  ForgottenJobs forgotten(&limits_);
  MutexLock lock(&mutex_);
  LENET_ASSIGN_OR_RETURN(Row * row, Find(id));
  LENET_RETURN_IF_ERROR(CheckEnded(row->job));
  Forget(row, &forgotten);
  return absl::OkStatus();
}

void MemoryStore::SetMaxAge(absl::Duration max_age) {
  MutexLock lock(&mutex_);
  max_age_ = max_age;
}

absl::Status MemoryStore::ForgetOld(absl::Time now) {
  ForgottenJobs forgotten(&limits_);
  MutexLock lock(&mutex_);
  ForgetEnded(now, &forgotten);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Attempt>> MemoryStore::ListAttempts(absl::string_view id) const {
  MutexLock lock(&mutex_);
  LENET_ASSIGN_OR_RETURN(const Row* row, Find(id));
  return row->attempts;
}

absl::StatusOr<uint64_t> MemoryStore::AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) {
  MutexLock lock(&mutex_);
  LENET_ASSIGN_OR_RETURN(Row * row, Find(id));
  LENET_RETURN_IF_ERROR(CheckLogOpen(row->job));
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
  page.log_epoch = row->job.log_epoch();
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
    Number(&row->job, &record);
    const int64_t bytes = static_cast<int64_t>(record.SpaceUsedLong());
    row->records.push_back({std::make_shared<const v1::MetricRecord>(record), bytes});
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
  while (row->log_bytes > limits_.max_log_bytes && row->records.size() > 1) DropOldest(row);
  while (total_log_bytes_ > limits_.max_total_log_bytes && !trimmable_.empty()) {
    Row* ended = trimmable_.begin()->second;
    if (ended->records.size() > 1) {
      DropOldest(ended);
    } else {
      trimmable_.erase(trimmable_.begin());
    }
  }
  while (total_log_bytes_ > limits_.max_total_log_bytes && row->records.size() > 1) DropOldest(row);
}

void MemoryStore::ForgetEnded(absl::Time now, ForgottenJobs* forgotten) {
  while (static_cast<int64_t>(ended_.size()) > limits_.max_ended_jobs) Forget(ended_.begin()->second, forgotten);
  if (max_age_ == absl::InfiniteDuration()) return;
  for (auto it = ended_.begin(); it != ended_.end();) {
    Row* const row = (it++)->second;
    if (now - FromTimestamp(row->job.ended_at()) > max_age_) Forget(row, forgotten);
  }
}

void MemoryStore::Forget(Row* row, ForgottenJobs* forgotten) {
  total_log_bytes_ -= row->log_bytes;
  if (!row->job.request_id().empty()) ids_by_request_.erase(row->job.request_id());
  rows_by_revision_.erase(row->revision);
  ended_.erase(row->revision);
  trimmable_.erase(row->revision);
  const std::string id = row->job.id();
  rows_.erase(id);
  forgotten->Add(id);
  forgotten->Commit();
}

}  // namespace lenet
