// Which job holds which device.
#ifndef LENET_SERVER_JOB_DEVICE_POOL_H_
#define LENET_SERVER_JOB_DEVICE_POOL_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lenet/v1/training_spec.pb.h"
#include "trainer/backend/backend.h"

namespace lenet {

// What a job needs.
struct DeviceRequest {
  int ranks = 0;
  std::vector<int> ids;  // one a rank; empty: any
};

// A backend that can be oversubscribed takes this many ranks at most, or one a device if those are more.
inline constexpr int kMaxSharedRanks = 64;

// What the spec's ranks and device_ids ask of this backend. INVALID_ARGUMENT names the field, the value and the bound:
// more ranks than devices, unless oversubscribable; an id that does not exist or stands twice; ranks that are not as
// many as the ids.
absl::StatusOr<DeviceRequest> RequestDevices(const v1::TrainingSpec& spec, const Backend& backend);

// Not safe from several threads.
class DevicePool {
 public:
  explicit DevicePool(int devices) : holders_(static_cast<size_t>(devices)) {}

  // The device of each rank, from now on held by the job, if all that it needs are free: the ids asked for, or those
  // that are free from the lowest on. A job with more ranks than there are devices takes all, rank r on device
  // r % devices.
  std::optional<std::vector<int>> Acquire(const DeviceRequest& request, absl::string_view job_id);
  // Frees all that the job holds.
  void Release(absl::string_view job_id);

  // By device; empty if free.
  const std::vector<std::string>& holders() const { return holders_; }

 private:
  std::vector<std::string> holders_;
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_DEVICE_POOL_H_
