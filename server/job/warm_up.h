// The first use of the devices, before there is a job.
#ifndef LENET_SERVER_JOB_WARM_UP_H_
#define LENET_SERVER_JOB_WARM_UP_H_

#include <chrono>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "server/job/group_cache.h"
#include "trainer/train/stop_request.h"

namespace lenet {

struct WarmUpTimeouts {
  std::chrono::milliseconds collective{0};  // see TrainJob
  std::chrono::milliseconds join{10'000};
  std::function<void(const std::string& why)> stuck;  // ranks do not end, see TrainObserver::OnRanksStuck; or null
};

// Trains a few steps on made-up images with one rank on each of these devices, so that contexts, communicator and
// modules are loaded, and leaves the group in the cache. Names the rank that fails. CANCELLED if `stop` rose.
absl::Status WarmUp(GroupCache* groups, std::span<const int> device_ids, const StopRequest* stop,
                    const WarmUpTimeouts& timeouts = {});

}  // namespace lenet

#endif  // LENET_SERVER_JOB_WARM_UP_H_
