#include "server/store/counting_store.h"

#include <chrono>
#include <utility>

namespace lenet {
namespace {

const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// As JobStore lists the storage's own errors.
bool IsFailure(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kInternal:
      return true;
    default:
      return false;
  }
}

template <typename Call>
auto Write(StoreCounters::Operation* operation, const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = call();
  operation->seconds.Observe(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (IsFailure(StatusOf(result))) operation->failures.Add();
  return result;
}

template <typename Result>
Result Read(StoreCounters* counters, Result result) {
  if (IsFailure(StatusOf(result))) counters->read_failures.Add();
  return result;
}

}  // namespace

absl::StatusOr<CreateResult> CountingStore::CreateJob(const v1::Job& job, std::vector<v1::MetricRecord> records) {
  absl::StatusOr<CreateResult> result =
      Write(&counters_.create, [&] { return store_->CreateJob(job, std::move(records)); });
  if (result.ok() && result->created) counters_.accepted.Add();
  return result;
}

absl::StatusOr<v1::Job> CountingStore::ChangeState(absl::string_view id, StateUpdate update) {
  const v1::JobState to = update.to;
  absl::StatusOr<v1::Job> job =
      Write(&counters_.change_state, [&] { return store_->ChangeState(id, std::move(update)); });
  if (!job.ok()) return job;
  if (to == v1::SUCCEEDED) counters_.succeeded.Add();
  if (to == v1::FAILED) counters_.failed.Add();
  if (to == v1::STOPPED) counters_.stopped.Add();
  return job;
}

absl::StatusOr<v1::Job> CountingStore::UpdateJob(absl::string_view id, const JobEdit& edit) {
  return Write(&counters_.update, [&] { return store_->UpdateJob(id, edit); });
}

absl::Status CountingStore::DeleteJob(absl::string_view id) {
  return Write(&counters_.remove, [&] { return store_->DeleteJob(id); });
}

absl::Status CountingStore::ForgetOld(absl::Time now) {
  return Write(&counters_.remove, [&] { return store_->ForgetOld(now); });
}

absl::StatusOr<uint64_t> CountingStore::AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) {
  return Write(&counters_.append, [&] { return store_->AppendRecords(id, records); });
}

absl::StatusOr<v1::Job> CountingStore::GetJob(absl::string_view id) const {
  return Read(&counters_, store_->GetJob(id));
}

absl::StatusOr<v1::Job> CountingStore::FindByRequestId(absl::string_view request_id) const {
  return Read(&counters_, store_->FindByRequestId(request_id));
}

absl::StatusOr<JobPage> CountingStore::ListJobs(const JobQuery& query) const {
  return Read(&counters_, store_->ListJobs(query));
}

absl::StatusOr<std::map<v1::JobState, int64_t>> CountingStore::CountJobs() const {
  return Read(&counters_, store_->CountJobs());
}

absl::StatusOr<ChangePage> CountingStore::ListChanges(uint64_t after, int limit, int64_t max_bytes) const {
  return Read(&counters_, store_->ListChanges(after, limit, max_bytes));
}

absl::StatusOr<std::vector<Attempt>> CountingStore::ListAttempts(absl::string_view id) const {
  return Read(&counters_, store_->ListAttempts(id));
}

absl::StatusOr<RecordPage> CountingStore::ReadRecords(absl::string_view id, uint64_t from_sequence,
                                                      int64_t max_bytes) const {
  return Read(&counters_, store_->ReadRecords(id, from_sequence, max_bytes));
}

}  // namespace lenet
