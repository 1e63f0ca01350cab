#include "server/metrics/metrics_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

// Bounds the work of one Read() whose filter drops nearly everything.
constexpr int kMaxPages = 16;

// A record of the stream alone, dated as the one after it.
v1::MetricRecord Announcement(uint64_t sequence, const RecordPage& page) {
  v1::MetricRecord record;
  record.set_sequence(sequence);
  if (!page.records.empty()) {
    record.set_attempt(page.records.front()->attempt());
    *record.mutable_time() = page.records.front()->time();
  }
  return record;
}

v1::MetricRecord TruncatedRecord(uint64_t next, const RecordPage& page) {
  v1::MetricRecord record = Announcement(page.first_sequence - 1, page);
  record.mutable_truncated()->set_count(page.first_sequence - next);
  return record;
}

}  // namespace

absl::Status UnrecordedEnd(absl::string_view job_id, absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat("job \"", job_id, "\" is over, but its end is not recorded", why.empty() ? "" : ": ", why));
}

MetricsReader::MetricsReader(const JobStore* store, std::string job_id, std::shared_ptr<MetricsLog> log,
                             uint64_t from_sequence, RecordWishes wishes, uint32_t known_epoch)
    : store_(store),
      job_id_(std::move(job_id)),
      log_(std::move(log)),
      known_epoch_(known_epoch),
      next_(std::max<uint64_t>(from_sequence, 1)),
      filter_(std::move(wishes)) {}

absl::StatusOr<MetricsReader::Place> MetricsReader::Read(int64_t max_bytes,
                                                         google::protobuf::RepeatedPtrField<v1::MetricRecord>* out) {
  const int before = out->size();
  for (int i = 0; i < kMaxPages; ++i) {
    // The end before `last_sequence`: a log that has ended, or is closed, does not grow. The first page has the epoch.
    if (log_ != nullptr && log_epoch_ != 0) {
      const bool ended = log_->ended();
      const absl::Status closed = log_->closed();
      if (log_->last_sequence() < next_) {
        if (ended) return Place::kEnd;
        LENET_RETURN_IF_ERROR(closed);
        return Place::kNewest;
      }
    }
    LENET_ASSIGN_OR_RETURN(RecordPage page, ReadPage(max_bytes));
    if (log_epoch_ == 0) LENET_RETURN_IF_ERROR(Rewind(max_bytes, &page, out));
    if (next_ < page.first_sequence) {
      *out->Add() = TruncatedRecord(next_, page);
      next_ = page.first_sequence;
    }
    for (const RecordPtr& record : page.records) {
      next_ = record->sequence() + 1;
      if (const RecordPtr wanted = filter_.Apply(record)) *out->Add() = *wanted;
    }
    const bool newest = next_ > page.last_sequence;
    if (newest && page.ended) return Place::kEnd;
    if (newest && log_ != nullptr) return Place::kNewest;
    if (out->size() > before) return Place::kMore;
    if (newest) return UnrecordedEnd(job_id_, "");
  }
  return Place::kMore;
}

absl::StatusOr<RecordPage> MetricsReader::ReadPage(int64_t max_bytes) {
  if (log_ != nullptr && log_epoch_ != 0) {
    RecordPage page = {.first_sequence = next_, .last_sequence = log_->last_sequence(), .log_epoch = log_epoch_};
    page.records = log_->Recent(next_, max_bytes);
    if (!page.records.empty()) return page;
  }
  return store_->ReadRecords(job_id_, next_, max_bytes);
}

absl::Status MetricsReader::Rewind(int64_t max_bytes, RecordPage* page,
                                   google::protobuf::RepeatedPtrField<v1::MetricRecord>* out) {
  uint64_t start = next_;
  if (known_epoch_ == 0) {
    // It has read nothing that could be lost.
  } else if (known_epoch_ <= page->epoch_starts.size()) {
    // Of the epochs that followed, the first one began at the lowest sequence.
    start = page->epoch_starts[known_epoch_ - 1];
  } else if (known_epoch_ > page->log_epoch || next_ > page->last_sequence + 1) {
    // It has what this log never had: the store is an older copy.
    start = 1;
  }
  if (start < next_) {
    LENET_ASSIGN_OR_RETURN(*page, store_->ReadRecords(job_id_, start, max_bytes));
    next_ = start;
    v1::MetricRecord record = Announcement(start - 1, *page);
    record.mutable_rewound()->set_log_epoch(page->log_epoch);
    record.mutable_rewound()->set_first_sequence(start);
    *out->Add() = std::move(record);
  }
  log_epoch_ = page->log_epoch;
  return absl::OkStatus();
}

}  // namespace lenet
