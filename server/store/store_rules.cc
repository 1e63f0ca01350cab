#include "server/store/store_rules.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/store/job_state.h"
#include "server/store/timestamp.h"

namespace lenet {
namespace {

void AddCheckpoint(const v1::MetricRecord& record, v1::Job* job) {
  const v1::CheckpointSaved& saved = record.checkpoint_saved();
  job->set_checkpoint(saved.path());
  auto& checkpoints = *job->mutable_checkpoints();
  const auto place = std::find_if(checkpoints.begin(), checkpoints.end(),
                                  [&saved](const v1::Checkpoint& other) { return other.step() >= saved.step(); });
  auto index = static_cast<int>(place - checkpoints.begin());
  if (place == checkpoints.end() || place->step() != saved.step()) {
    checkpoints.Add();
    for (int i = checkpoints.size() - 1; i > index; --i) checkpoints.SwapElements(i, i - 1);
  }
  v1::Checkpoint& checkpoint = checkpoints[index];
  checkpoint.Clear();
  checkpoint.set_step(saved.step());
  checkpoint.set_epoch(saved.epoch());
  checkpoint.set_path(saved.path());
  checkpoint.set_bytes(saved.bytes());
  checkpoint.set_weights_checksum(saved.weights_checksum());
  if (saved.has_accuracy()) checkpoint.set_accuracy(saved.accuracy());
  *checkpoint.mutable_saved_at() = record.time();
}

}  // namespace

absl::Status UnknownJob(absl::string_view id) { return absl::NotFoundError(absl::StrCat("no job \"", id, "\"")); }

absl::Status UnknownRequest(absl::string_view request_id) {
  return absl::NotFoundError(absl::StrCat("no job with request_id \"", request_id, "\""));
}

absl::Status TakenId(absl::string_view id) { return absl::AlreadyExistsError(absl::StrCat("job \"", id, "\" exists")); }

absl::Status CheckNew(const v1::Job& job) {
  if (job.state() == v1::QUEUED) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("job \"", job.id(), "\" created in ", StateName(job.state())));
}

absl::Status CheckLegal(absl::string_view id, const StateUpdate& update) {
  if (IsLegalChange(update.from, update.to)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("job \"", id, "\": no change from ", StateName(update.from), " to ", StateName(update.to)));
}

absl::Status CheckFrom(const v1::Job& job, const StateUpdate& update) {
  if (job.state() == update.from) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("job \"", job.id(), "\" is ", StateName(job.state()), ", not ", StateName(update.from)));
}

absl::Status CheckLogOpen(const v1::Job& job) {
  if (!IsTerminal(job.state())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", job.id(), "\" is ", StateName(job.state()), ": its log is closed"));
}

absl::Status CheckEnded(const v1::Job& job) {
  if (IsTerminal(job.state())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", job.id(), "\" is ", StateName(job.state()), ": it has not ended"));
}

absl::Status CheckPageToken(const JobQuery& query) {
  // A token is the last id of its page, which may have been forgotten since.
  if (std::all_of(query.page_token.begin(), query.page_token.end(), absl::ascii_isalnum)) return absl::OkStatus();
  return absl::InvalidArgumentError("page_token is not one that a page came with");
}

bool Wanted(const JobQuery& query, v1::JobState state) {
  return query.states.empty() || std::find(query.states.begin(), query.states.end(), state) != query.states.end();
}

void ApplyCreation(v1::Job* job) { job->set_log_epoch(1); }

void ApplyChange(const StateUpdate& update, v1::Job* job) {
  job->set_state(update.to);
  job->set_reason(update.reason);
  if (update.to == v1::STARTING) {
    job->set_attempt(job->attempt() + 1);
    if (!job->has_started_at()) *job->mutable_started_at() = ToTimestamp(update.time);
  }
  if (IsTerminal(update.to)) *job->mutable_ended_at() = ToTimestamp(update.time);
}

void Number(v1::Job* job, v1::MetricRecord* record) {
  job->set_last_sequence(job->last_sequence() + 1);
  record->set_sequence(job->last_sequence());
  record->set_attempt(job->attempt());
  if (record->has_checkpoint_saved()) AddCheckpoint(*record, job);
}

ForgottenJobs::~ForgottenJobs() {
  if (!committed_ || !limits_->forgotten) return;
  for (const std::string& id : ids_) limits_->forgotten(id);
}

}  // namespace lenet
