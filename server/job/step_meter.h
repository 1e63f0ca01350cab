// Counts the steps of a job's ranks, and how long they take.
#ifndef LENET_SERVER_JOB_STEP_METER_H_
#define LENET_SERVER_JOB_STEP_METER_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/telemetry/job_counters.h"

namespace lenet {

// A few additions a chunk, and no lock. AddSteps from each rank's own thread, StepsFollow from any.
class StepMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // `counters` outlives it; device_ids: of each rank; images: of one step of one rank.
  StepMeter(JobCounters* counters, const std::vector<int>& device_ids, int images)
      : counters_(counters),
        images_(static_cast<uint64_t>(images)),
        device_ids_(device_ids),
        reported_(device_ids.size()) {}

  // What took time until now was no step: set-up, an evaluation, a save.
  void StepsFollow(Clock::time_point now) { resumed_.store(now, std::memory_order_relaxed); }

  void AddSteps(int rank, size_t steps, Clock::time_point now) {
    const auto index = static_cast<size_t>(rank);
    JobCounters::Device& device = counters_->devices[static_cast<size_t>(device_ids_[index])];
    device.steps.Add(steps);
    device.images.Add(steps * images_);
    Clock::time_point& before = reported_[index].time;
    const std::chrono::duration<double> passed = now - std::max(before, resumed_.load(std::memory_order_relaxed));
    before = now;
    counters_->step.Observe(passed.count() / static_cast<double>(steps), steps);
  }

 private:
  // On a cache line of its own: each is its rank's.
  struct alignas(64) Reported {
    Clock::time_point time;
  };

  JobCounters* const counters_;
  const uint64_t images_;
  const std::vector<int> device_ids_;
  std::atomic<Clock::time_point> resumed_{Clock::time_point()};
  std::vector<Reported> reported_;
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_STEP_METER_H_
