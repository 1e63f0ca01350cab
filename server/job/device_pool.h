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
  explicit DevicePool(int devices) : devices_(static_cast<size_t>(devices)) {}

  // The device of each rank, from now on held by the job, if all that it needs are free and sound: the ids asked for,
  // or those that are free from the lowest on. A job with more ranks than there are devices takes all, rank r on
  // device r % devices. Devices to avoid count as taken.
  std::optional<std::vector<int>> Acquire(const DeviceRequest& request, absl::string_view job_id,
                                          const std::vector<int>& avoid = {});
  bool CanAcquire(const DeviceRequest& request) const { return Choose(request, {}).has_value(); }
  // Frees all that the job holds.
  void Release(absl::string_view job_id);

  // A device that failed is given to no job until it is sound again; `why` is not empty.
  void SetUnhealthy(int id, absl::string_view why);
  void SetHealthy(int id);
  // Whether the sound devices would do, once they are free.
  bool CanEverAcquire(const DeviceRequest& request) const;

  // What keeps the request from its devices: "1 more free device of 2", "device 1, which job x holds".
  std::string Missing(const DeviceRequest& request) const;
  bool HoldsAny(absl::string_view job_id, const std::vector<int>& ids) const;

  struct Device {
    std::string holder;     // empty if free
    std::string unhealthy;  // why no job gets it; empty if it is sound
  };
  const std::vector<Device>& devices() const { return devices_; }

 private:
  std::optional<std::vector<int>> Choose(const DeviceRequest& request, const std::vector<int>& avoid) const;
  int Wanted(const DeviceRequest& request) const;

  std::vector<Device> devices_;
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_DEVICE_POOL_H_
