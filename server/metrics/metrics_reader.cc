#include "server/metrics/metrics_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

// Bounds the work of one Read() whose filter drops nearly everything.
constexpr int kMaxPages = 16;

v1::MetricRecord TruncatedRecord(uint64_t next, const RecordPage& page) {
  v1::MetricRecord record;
  record.set_sequence(page.first_sequence - 1);
  record.mutable_truncated()->set_count(page.first_sequence - next);
  if (!page.records.empty()) {
    record.set_attempt(page.records.front()->attempt());
    *record.mutable_time() = page.records.front()->time();
  }
  return record;
}

}  // namespace

absl::Status UnrecordedEnd(absl::string_view job_id, absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat("job \"", job_id, "\" is over, but its end is not recorded", why.empty() ? "" : ": ", why));
}

MetricsReader::MetricsReader(const JobStore* store, std::string job_id, std::shared_ptr<const MetricsLog> log,
                             uint64_t from_sequence, RecordWishes wishes)
    : store_(store),
      job_id_(std::move(job_id)),
      log_(std::move(log)),
      next_(std::max<uint64_t>(from_sequence, 1)),
      filter_(std::move(wishes)) {}

absl::StatusOr<MetricsReader::Place> MetricsReader::Read(int64_t max_bytes,
                                                         google::protobuf::RepeatedPtrField<v1::MetricRecord>* out) {
  for (int i = 0; i < kMaxPages; ++i) {
    // The end before `last_sequence`: a log that has ended, or is closed, does not grow.
    if (log_ != nullptr) {
      const bool ended = log_->ended();
      const absl::Status closed = log_->closed();
      if (log_->last_sequence() < next_) {
        if (ended) return Place::kEnd;
        LENET_RETURN_IF_ERROR(closed);
        return Place::kNewest;
      }
    }
    LENET_ASSIGN_OR_RETURN(RecordPage page, store_->ReadRecords(job_id_, next_, max_bytes));
    bool any = false;
    if (next_ < page.first_sequence) {
      *out->Add() = TruncatedRecord(next_, page);
      next_ = page.first_sequence;
      any = true;
    }
    for (const RecordPtr& record : page.records) {
      next_ = record->sequence() + 1;
      if (const RecordPtr wanted = filter_.Apply(record)) {
        *out->Add() = *wanted;
        any = true;
      }
    }
    if (next_ > page.last_sequence && page.ended) return Place::kEnd;
    if (next_ > page.last_sequence && log_ != nullptr) return Place::kNewest;
    if (any) return Place::kMore;
    if (next_ > page.last_sequence) {
      return UnrecordedEnd(job_id_, "");
    }
  }
  return Place::kMore;
}

}  // namespace lenet
