#include "server/metrics/metrics_log.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/store/job_state.h"
#include "server/store/timestamp.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

// Moves the records away.
std::vector<RecordPtr> Share(std::vector<v1::MetricRecord>* records) {
  std::vector<RecordPtr> shared;
  shared.reserve(records->size());
  for (v1::MetricRecord& record : *records) {
    shared.push_back(std::make_shared<const v1::MetricRecord>(std::move(record)));
  }
  records->clear();
  return shared;
}

}  // namespace

MetricsLog::MetricsLog(JobStore* store, std::string job_id, uint64_t last_sequence, Hooks hooks, const Options& options)
    : store_(store),
      job_id_(std::move(job_id)),
      hooks_(std::move(hooks)),
      options_(options),
      recent_(options.recent_records, options.recent_bytes),
      last_sequence_(last_sequence) {}

void MetricsLog::AddLosses(int rank, int64_t first_step, std::span<const float> losses) {
  if (losses.empty()) return;
  bool wake = false;
  {
    MutexLock lock(&pending_mutex_);
    bool full = false;
    while (!losses.empty()) {
      const std::span<const float> part = losses.first(std::min(losses.size(), kMaxLosses - losses_.size()));
      for (size_t i = 0; i < part.size(); ++i) steps_.push_back(first_step + static_cast<int64_t>(i));
      ranks_.insert(ranks_.end(), part.size(), rank);
      losses_.insert(losses_.end(), part.begin(), part.end());
      first_step += static_cast<int64_t>(part.size());
      losses = losses.subspan(part.size());
      if (losses_.size() == kMaxLosses) {
        CloseLosses();
        full = true;
      }
    }
    wake = Hasten(full);
  }
  if (wake && hooks_.wake) hooks_.wake();
}

void MetricsLog::Add(v1::MetricRecord record) {
  *record.mutable_time() = ToTimestamp(absl::Now());
  bool wake = false;
  {
    MutexLock lock(&pending_mutex_);
    CloseLosses();
    complete_.push_back(std::move(record));
    wake = Hasten(/*full=*/false);
  }
  if (wake && hooks_.wake) hooks_.wake();
}

void MetricsLog::AwaitMore() {
  if (awaited_.exchange(true)) return;
  bool wake = false;
  {
    MutexLock lock(&pending_mutex_);
    wake = due() != Clock::time_point::max() && Hasten(/*full=*/false);
  }
  if (wake && hooks_.wake) hooks_.wake();
}

bool MetricsLog::Hasten(bool full) {
  Clock::time_point earliest = due();
  if (full) {
    earliest = Clock::time_point::min();
  } else if (awaited_) {
    earliest = last_write_ + options_.reader_patience;
  } else if (earliest == Clock::time_point::max()) {
    earliest = Clock::now() + options_.patience;
  }
  if (earliest >= due()) return false;
  due_.store(earliest, std::memory_order_release);
  return true;
}

absl::Status MetricsLog::Flush() {
  absl::Status status;
  absl::Status stuck;
  {
    MutexLock lock(&commit_mutex_);
    status = FlushLocked(&stuck);
  }
  TellStuck(stuck);
  return status;
}

absl::StatusOr<v1::Job> MetricsLog::ChangeState(StateUpdate update, const v1::Terminal& terminal) {
  absl::StatusOr<v1::Job> job;
  absl::Status stuck;
  {
    MutexLock lock(&commit_mutex_);
    job = ChangeStateLocked(std::move(update), terminal, &stuck);
  }
  TellStuck(stuck);
  return job;
}

void MetricsLog::GiveUpUnsaved() {
  MutexLock lock(&commit_mutex_);
  stuck_ = true;
}

void MetricsLog::Close(const absl::Status& why) {
  recent_.Clear();
  MutexLock lock(&closed_mutex_);
  closed_ = why;
}

absl::Status MetricsLog::closed() const {
  MutexLock lock(&closed_mutex_);
  return closed_;
}

absl::StatusOr<v1::Job> MetricsLog::ChangeStateLocked(StateUpdate update, const v1::Terminal& terminal,
                                                      absl::Status* stuck) {
  const bool ends = IsTerminal(update.to);
  // One that has just become stuck gets its hook before its end.
  const bool drop = ends && stuck_;
  const absl::Status flushed = FlushLocked(stuck);
  if (!flushed.ok() && !drop) return flushed;
  v1::MetricRecord record;
  *record.mutable_time() = ToTimestamp(update.time);
  if (!flushed.ok()) {
    record.mutable_warning()->set_message(
        absl::StrCat(unsaved_.size(), " records before the end could not be stored: ", flushed.ToString()));
    update.records.push_back(record);
  }
  record.mutable_state_change()->set_from(update.from);
  record.mutable_state_change()->set_to(update.to);
  record.mutable_state_change()->set_reason(update.reason);
  update.records.push_back(record);
  if (ends) {
    *record.mutable_terminal() = terminal;
    update.records.push_back(record);
  }
  // Of jobs that do not run nothing is kept in memory, however long a reader holds the log.
  const bool rests = EndsAttempt(update.to);
  std::vector<v1::MetricRecord> records;
  if (!rests) records = update.records;
  LENET_ASSIGN_OR_RETURN(v1::Job job, store_->ChangeState(job_id_, std::move(update)));
  if (ends) unsaved_.clear();
  if (rests) {
    recent_.Clear();
  } else {
    uint64_t sequence = job.last_sequence() - records.size();
    for (v1::MetricRecord& numbered : records) {
      numbered.set_sequence(++sequence);
      numbered.set_attempt(job.attempt());
    }
    recent_.Add(Share(&records));
  }
  last_sequence_.store(job.last_sequence(), std::memory_order_release);
  if (ends) ended_.store(true, std::memory_order_release);
  if (hooks_.written) hooks_.written();
  return job;
}

void MetricsLog::TellStuck(const absl::Status& stuck) const {
  if (!stuck.ok() && hooks_.stuck) hooks_.stuck(stuck);
}

// Built to its size, as the store counts what a record takes.
void MetricsLog::CloseLosses() {
  if (losses_.empty()) return;
  v1::MetricRecord& record = complete_.emplace_back();
  *record.mutable_time() = ToTimestamp(absl::Now());
  v1::StepLosses& batch = *record.mutable_step_losses();
  batch.mutable_steps()->Add(steps_.begin(), steps_.end());
  batch.mutable_ranks()->Add(ranks_.begin(), ranks_.end());
  batch.mutable_losses()->Add(losses_.begin(), losses_.end());
  steps_.clear();
  ranks_.clear();
  losses_.clear();
}

absl::Status MetricsLog::FlushLocked(absl::Status* stuck) {
  std::vector<v1::MetricRecord> complete;
  {
    MutexLock lock(&pending_mutex_);
    CloseLosses();
    complete.swap(complete_);
    due_.store(Clock::time_point::max(), std::memory_order_release);
    if (!complete.empty()) {
      awaited_ = false;
      last_write_ = Clock::now();  // for what is added during it
    }
  }
  if (unsaved_.empty()) {
    unsaved_ = std::move(complete);
  } else {
    unsaved_.insert(unsaved_.end(), std::make_move_iterator(complete.begin()), std::make_move_iterator(complete.end()));
  }
  if (unsaved_.empty()) return absl::OkStatus();
  const absl::StatusOr<uint64_t> last = store_->AppendRecords(job_id_, unsaved_);
  {
    MutexLock lock(&pending_mutex_);
    last_write_ = Clock::now();
    if (!last.ok()) due_.store(std::min(due(), last_write_ + options_.patience), std::memory_order_release);
  }
  if (!last.ok()) {
    if (unsaved_.size() > kMaxUnsaved && !stuck_) {
      stuck_ = true;
      *stuck = last.status();
    }
    return last.status();
  }
  recent_.Add(Share(&unsaved_));
  last_sequence_.store(*last, std::memory_order_release);
  if (hooks_.written) hooks_.written();
  return absl::OkStatus();
}

}  // namespace lenet
