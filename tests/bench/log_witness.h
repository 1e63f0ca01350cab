// What one reader of a job's log sees: whether it is whole, and how late it comes.
#ifndef LENET_TESTS_BENCH_LOG_WITNESS_H_
#define LENET_TESTS_BENCH_LOG_WITNESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lenet/v1/training_service.pb.h"

namespace lenet {

// Of one attempt, read from sequence 1 at full resolution. One thread at a time.
class LogWitness {
 public:
  explicit LogWitness(int ranks) : steps_(static_cast<size_t>(ranks)) {}

  void Take(const v1::StreamMetricsResponse& response, absl::Time arrival);

  // After the stream's end. DATA_LOSS if the log was not whole, with the first thing that was wrong.
  absl::Status Check() const;

  int64_t losses() const { return losses_; }
  // Of steps that later ones have overtaken, or that the terminal record counts.
  int64_t lost() const { return lost_; }
  // Equal for equal losses.
  uint64_t sum() const { return sum_; }
  int64_t steps() const { return last_step_; }
  // From the state RUNNING to the last epoch's end.
  double seconds() const { return absl::ToDoubleSeconds(trained_until_ - running_at_); }

  // For each record of losses that was made after the first message had come: from the time of the record before it,
  // when none of its steps had been reported yet, to its arrival. In milliseconds.
  const std::vector<float>& delays() const { return delays_; }

 private:
  void TakeLosses(const v1::MetricRecord& record);

  std::string fault_;
  uint64_t sequence_ = 0;
  std::vector<int64_t> steps_;  // last of each rank
  int64_t losses_ = 0;
  int64_t lost_ = 0;
  uint64_t sum_ = 0;
  bool ended_ = false;
  int64_t last_step_ = 0;
  absl::Time first_arrival_ = absl::InfiniteFuture();
  absl::Time previous_;  // time of the record before
  absl::Time running_at_;
  absl::Time trained_until_;
  std::vector<float> delays_;
};

}  // namespace lenet

#endif  // LENET_TESTS_BENCH_LOG_WITNESS_H_
