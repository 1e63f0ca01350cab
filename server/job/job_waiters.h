// Callers that wait for a job's end, or for it to be paused.
#ifndef LENET_SERVER_JOB_JOB_WAITERS_H_
#define LENET_SERVER_JOB_JOB_WAITERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lenet/v1/job.pb.h"

namespace lenet {

using EndCallback = std::function<void(absl::StatusOr<v1::Job>)>;

// Not safe from several threads; calls no callback itself.
class JobWaiters {
 public:
  struct Waiter {
    EndCallback done;
    bool for_pause = false;
  };

  // Gives a token, which is never 0.
  uint64_t Add(absl::string_view id, Waiter waiter);
  // Null if there is no such waiter any more.
  EndCallback Remove(absl::string_view id, uint64_t token);
  // Takes out all who wait for the job, or those for its pause.
  std::vector<Waiter> Take(absl::string_view id);
  std::vector<Waiter> TakeForPause(absl::string_view id);

 private:
  std::map<std::string, std::map<uint64_t, Waiter>, std::less<>> waiters_;
  uint64_t last_token_ = 0;
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_JOB_WAITERS_H_
