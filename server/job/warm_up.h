// The first use of the devices, before there is a job.
#ifndef LENET_SERVER_JOB_WARM_UP_H_
#define LENET_SERVER_JOB_WARM_UP_H_

#include "absl/status/status.h"
#include "server/job/group_cache.h"
#include "trainer/backend/backend.h"
#include "trainer/train/stop_request.h"

namespace lenet {

// Trains a few steps on made-up images with one rank on every device, so that contexts, communicator and modules are
// loaded, and leaves the group in the cache. Names the device that fails. CANCELLED if `stop` rose.
absl::Status WarmUp(const Backend& backend, GroupCache* groups, const StopRequest* stop);

}  // namespace lenet

#endif  // LENET_SERVER_JOB_WARM_UP_H_
