// How far a job is, from its records, and the lines that show it.
#ifndef LENET_CLIENT_CTL_PROGRESS_H_
#define LENET_CLIENT_CTL_PROGRESS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lenet/v1/training_service.pb.h"

namespace lenet::ctl {

// All times are the records' own, so that a log that is replayed gives what one that was followed gave.
class JobProgress {
 public:
  // The job as the server knows it; may come again as more of it is known.
  void SetJob(const v1::Job& job);
  void Add(const v1::MetricRecord& record);

  v1::JobState state() const { return state_; }
  int queue_position() const { return queue_position_; }
  // 0 while unknown, all four.
  int64_t total_steps() const { return total_steps_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t total_epochs() const;
  double images_per_second() const { return steps_per_second_ * static_cast<double>(global_batch_size_); }

  // Done by every rank that has been heard of.
  int64_t step() const { return step_; }
  // The epoch that the step belongs to, from 1.
  int64_t epoch() const;
  // Each rank's newest loss.
  const std::map<int, float>& losses() const { return losses_; }
  // Seconds to the last step at the speed so far, evaluations included; below 0 while unknown.
  double seconds_left() const;

 private:
  struct Sample {
    absl::Time time;
    int64_t step;
  };
  void AddSteps(const v1::StepLosses& losses, absl::Time time);
  void StartAttempt(uint32_t attempt);

  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  int queue_position_ = 0;
  int64_t total_steps_ = 0;
  int64_t steps_per_epoch_ = 0;
  int64_t global_batch_size_ = 0;
  int64_t first_attempts_step_ = 0;  // done by the job that this one goes on from
  uint32_t attempt_ = 0;
  int64_t step_ = 0;
  std::map<int, int64_t> rank_steps_;
  std::map<int, float> losses_;
  std::deque<Sample> window_;  // newest last; of the last seconds, no evaluation within
  Sample first_{absl::InfinitePast(), 0};
  Sample last_{absl::InfinitePast(), 0};
  double steps_per_second_ = 0;
};

// The display of a job under way: one line with bar, step, speed and time left, one with the ranks' losses. Each takes
// at most `width` columns, width >= 1; what does not fit is left out, the least important first, and many ranks become
// their mean and extremes. `note` stands before all else if it is not empty.
std::vector<std::string> RenderProgress(const JobProgress& progress, const std::string& note, int width);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_PROGRESS_H_
