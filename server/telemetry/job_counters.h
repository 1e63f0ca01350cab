// What is counted of jobs that wait and train.
#ifndef LENET_SERVER_TELEMETRY_JOB_COUNTERS_H_
#define LENET_SERVER_TELEMETRY_JOB_COUNTERS_H_

#include <cstddef>
#include <vector>

#include "server/telemetry/instruments.h"

namespace lenet {

struct JobCounters {
  static constexpr double kQueueBounds[] = {0.01, 0.1, 1, 10, 60, 300, 1800, 7200, 43200};
  static constexpr double kStepBounds[] = {10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3,
                                           5e-3,  10e-3, 20e-3, 50e-3,  100e-3, 0.5,    1,    5};

  // Steps of ranks on one device, and the images in them.
  struct Device {
    Counter steps;
    Counter images;
  };

  explicit JobCounters(size_t device_count) : devices(device_count) {}

  DurationHistogram queue_wait{kQueueBounds};  // from a place in the queue to devices; each attempt waits anew
  DurationHistogram step{kStepBounds};         // of a rank, as the mean over the chunk in which it was reported
  std::vector<Device> devices;                 // by id
};

}  // namespace lenet

#endif  // LENET_SERVER_TELEMETRY_JOB_COUNTERS_H_
