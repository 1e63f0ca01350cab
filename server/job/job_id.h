// Names for jobs.
#ifndef LENET_SERVER_JOB_JOB_ID_H_
#define LENET_SERVER_JOB_JOB_ID_H_

#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lenet {

// Whether `text` could be the name of a job.
bool IsJobId(absl::string_view text);

// Makes ids of 16 characters of [0-9a-z] without i, l, o, u: nine tell the time in milliseconds, seven (35 bits) are
// random. Within a process each id sorts after the one before it. Not safe from several threads.
class JobIdGenerator {
 public:
  std::string Next(absl::Time now);
  // The next id sorts after this one, which may be another process's.
  void StartAfter(absl::string_view id);

 private:
  int64_t last_ms_ = 0;
  std::random_device random_;
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_JOB_ID_H_
