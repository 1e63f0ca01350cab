// A subscriber's place in a job's metrics log.
#ifndef LENET_SERVER_METRICS_METRICS_READER_H_
#define LENET_SERVER_METRICS_METRICS_READER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "server/metrics/metrics_log.h"
#include "server/metrics/record_filter.h"
#include "server/store/job_store.h"

namespace lenet {

// DATA_LOSS for a job that is over while the store has it otherwise; `why` may be empty.
absl::Status UnrecordedEnd(absl::string_view job_id, absl::string_view why);

// A cursor: it holds a sequence and no records, so a reader that stands still costs nothing. One thread at a time.
class MetricsReader {
 public:
  // Starts at `from_sequence` (0: 1). `log` is the live log, or null if the job is over. The store outlives it.
  // `known_epoch` is the log epoch in which what lies before `from_sequence` was read; 0: not known, or nothing was.
  MetricsReader(const JobStore* store, std::string job_id, std::shared_ptr<MetricsLog> log, uint64_t from_sequence,
                RecordWishes wishes, uint32_t known_epoch = 0);

  enum class Place {
    kMore,    // there is more to read now
    kNewest,  // all that is written has been read
    kEnd,     // nothing will follow
  };

  // Appends the next wanted records to `out`, about `max_bytes` of them. Where retention has removed some, a truncated
  // record tells how many. If records that were read in an earlier epoch were lost, a rewound record comes first, and
  // the reader goes on where the next epoch began; or at 1, if what was read is not of this log. NOT_FOUND if the whole
  // job has been removed meanwhile; DATA_LOSS, after all records, if the job is over but its end is not in the store;
  // the store's errors.
  absl::StatusOr<Place> Read(int64_t max_bytes, google::protobuf::RepeatedPtrField<v1::MetricRecord>* out);

  // What comes next should be written soon: for a reader that is at kNewest, and waits.
  void AwaitMore() { log_->AwaitMore(); }

  // The sequence that it reads next.
  uint64_t next() const { return next_; }
  // The newest record of a live log; 0 if the job is over. From any thread.
  uint64_t last_written() const { return log_ == nullptr ? 0 : log_->last_sequence(); }

  // Job.log_epoch; 0 before the first Read() that was not an error.
  uint32_t log_epoch() const { return log_epoch_; }

 private:
  // The next records, from memory if they are there.
  absl::StatusOr<RecordPage> ReadPage(int64_t max_bytes);
  // On the first page: goes back to where the log was cut off after the reader's epoch, or to its beginning.
  absl::Status Rewind(int64_t max_bytes, RecordPage* page, google::protobuf::RepeatedPtrField<v1::MetricRecord>* out);

  const JobStore* const store_;
  const std::string job_id_;
  const std::shared_ptr<MetricsLog> log_;
  const uint32_t known_epoch_;
  uint32_t log_epoch_ = 0;
  uint64_t next_;
  RecordFilter filter_;
};

}  // namespace lenet

#endif  // LENET_SERVER_METRICS_METRICS_READER_H_
