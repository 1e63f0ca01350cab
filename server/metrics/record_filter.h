// What a reader of a metrics log wants of it.
#ifndef LENET_SERVER_METRICS_RECORD_FILTER_H_
#define LENET_SERVER_METRICS_RECORD_FILTER_H_

#include <cstdint>
#include <optional>
#include <set>

#include "absl/time/time.h"
#include "lenet/v1/metrics.pb.h"
#include "server/store/job_store.h"

namespace lenet {

struct RecordWishes {
  std::set<int> ranks;             // whose step losses; empty: all
  std::set<v1::RecordKind> kinds;  // empty: all
  int every_n_steps = 1;           // step losses of step 1 and of its multiples; >= 1
  double max_rate = 0;             // step losses a second of the log's time, averaged; 0: all
};

// Goes through one log's records in order. Not safe from several threads.
class RecordFilter {
 public:
  explicit RecordFilter(RecordWishes wishes) : wishes_(std::move(wishes)) {}

  // `record` itself if all of it is wanted, a copy with what is wanted, or null. Truncated, rewound and terminal
  // records are always wanted.
  RecordPtr Apply(const RecordPtr& record);

 private:
  bool KindWanted(const v1::MetricRecord& record) const;
  RecordPtr ThinLosses(const RecordPtr& record);
  // The lowest step of `batch` that the rate leaves room for, with all above it; none if there is no room.
  std::optional<int64_t> LowestStepInRate(const v1::StepLosses& batch, absl::Time time);

  const RecordWishes wishes_;
  // max_rate as a bucket of losses that fills with the log's time.
  double allowance_ = 0;
  std::optional<absl::Time> filled_at_;
};

}  // namespace lenet

#endif  // LENET_SERVER_METRICS_RECORD_FILTER_H_
