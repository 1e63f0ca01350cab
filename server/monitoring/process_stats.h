// What the kernel knows of this process.
#ifndef LENET_SERVER_MONITORING_PROCESS_STATS_H_
#define LENET_SERVER_MONITORING_PROCESS_STATS_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace lenet {

struct ProcessStats {
  double cpu_seconds = 0;  // user and system
  double start_time = 0;   // seconds since 1970
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  int64_t threads = 0;
  int64_t open_fds = 0;
  int64_t max_fds = 0;
};

// From /proc and getrlimit. UNAVAILABLE if /proc cannot be read.
absl::StatusOr<ProcessStats> ReadProcessStats();

}  // namespace lenet

#endif  // LENET_SERVER_MONITORING_PROCESS_STATS_H_
