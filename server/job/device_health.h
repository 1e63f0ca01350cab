// Which devices work: found out at the start, after a job that failed, and from time to time of those that do not.
#ifndef LENET_SERVER_JOB_DEVICE_HEALTH_H_
#define LENET_SERVER_JOB_DEVICE_HEALTH_H_

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "lenet/v1/job.pb.h"
#include "server/job/group_cache.h"
#include "server/job/warm_up.h"
#include "trainer/backend/backend.h"
#include "trainer/base/mutex.h"
#include "trainer/train/stop_request.h"

namespace lenet {

// Safe from any thread. A device is tried by a warm-up (warm_up.h) of it alone.
class DeviceHealth {
 public:
  // Called without a lock, also from a thread of its own.
  struct Hooks {
    std::function<void(int device, const absl::Status& why)> excluded;
    std::function<void(int device)> restored;
    // A device failed that only a new process can use again, or its rank does not end. Or null.
    std::function<void(const std::string& why)> unusable;
  };

  // The backend and the cache outlive it.
  DeviceHealth(const Backend* backend, GroupCache* groups, std::chrono::milliseconds interval,
               const WarmUpTimeouts& timeouts, Hooks hooks);
  ~DeviceHealth();
  DeviceHealth(const DeviceHealth&) = delete;
  DeviceHealth& operator=(const DeviceHealth&) = delete;

  // All devices together; if that fails each alone, and those that work together once more. An error if none does, or
  // if they fail only together; CANCELLED after Stop().
  absl::Status WarmUp() ABSL_LOCKS_EXCLUDED(mutex_);

  // Tries the devices that a failed job had, unless its failure tells of something else.
  void CheckAfter(const v1::Failure& failure, const std::vector<int>& device_ids) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends what is under way; nothing is tried any more.
  void Stop() { stop_request_.Request(StopMode::kAbort); }

 private:
  // Excludes the device if it fails. CANCELLED after Stop().
  absl::Status Try(int device) ABSL_LOCKS_EXCLUDED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const Backend* const backend_;
  GroupCache* const groups_;
  const std::chrono::milliseconds interval_;
  const Hooks hooks_;
  const WarmUpTimeouts timeouts_;
  StopRequest stop_request_;
  Mutex mutex_;
  CondVar changed_;
  std::set<int> failed_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_DEVICE_HEALTH_H_
