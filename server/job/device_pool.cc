#include "server/job/device_pool.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace lenet {
namespace {

std::string Plural(int count, absl::string_view noun) { return absl::StrCat(count, " ", noun, count == 1 ? "" : "s"); }

}  // namespace

absl::StatusOr<DeviceRequest> RequestDevices(const v1::TrainingSpec& spec, const Backend& backend) {
  const int devices = static_cast<int>(backend.devices().size());
  const int listed = spec.device_ids_size();
  if (spec.ranks() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.ranks = ", spec.ranks(), ": must be at least 0 (0: one on every device)"));
  }
  if (listed > 0) {
    if (spec.ranks() != 0 && spec.ranks() != listed) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec.ranks = ", spec.ranks(), ": must be 0 or ", listed, ", the number of spec.device_ids"));
    }
    std::set<int> seen;
    for (int id : spec.device_ids()) {
      if (id < 0 || id >= devices) {
        return absl::InvalidArgumentError(absl::StrCat("spec.device_ids: ", id, " is no device of this server; it has ",
                                                       Plural(devices, "device"), ", 0 to ", devices - 1));
      }
      if (!seen.insert(id).second) {
        return absl::InvalidArgumentError(absl::StrCat("spec.device_ids: ", id, " is listed twice"));
      }
    }
    return DeviceRequest{.ranks = listed, .ids = {spec.device_ids().begin(), spec.device_ids().end()}};
  }
  const int ranks = spec.ranks() == 0 ? devices : spec.ranks();
  const int most = backend.oversubscribable() ? std::max(devices, kMaxSharedRanks) : devices;
  if (ranks > most) {
    return absl::InvalidArgumentError(absl::StrCat("spec.ranks = ", ranks, ": must be at most ", most,
                                                   "; this server has ", Plural(devices, "device")));
  }
  return DeviceRequest{.ranks = ranks};
}

std::optional<std::vector<int>> DevicePool::Acquire(const DeviceRequest& request, absl::string_view job_id,
                                                    const std::vector<int>& avoid) {
  std::optional<std::vector<int>> ids = Choose(request, avoid);
  if (!ids) return std::nullopt;
  for (int id : *ids) devices_[static_cast<size_t>(id)].holder = std::string(job_id);
  return ids;
}

std::optional<std::vector<int>> DevicePool::Choose(const DeviceRequest& request, const std::vector<int>& avoid) const {
  const auto free = [&](int id) {
    const Device& device = devices_[static_cast<size_t>(id)];
    return device.holder.empty() && device.unhealthy.empty() && std::count(avoid.begin(), avoid.end(), id) == 0;
  };
  std::vector<int> ids = request.ids;
  if (!ids.empty()) {
    if (!std::all_of(ids.begin(), ids.end(), free)) return std::nullopt;
    return ids;
  }
  const int devices = static_cast<int>(devices_.size());
  const int wanted = Wanted(request);
  for (int id = 0; id < devices && static_cast<int>(ids.size()) < wanted; ++id) {
    if (free(id)) ids.push_back(id);
  }
  if (static_cast<int>(ids.size()) < wanted) return std::nullopt;
  for (int rank = wanted; rank < request.ranks; ++rank) ids.push_back(rank % devices);
  return ids;
}

int DevicePool::Wanted(const DeviceRequest& request) const {
  return std::min(request.ranks, static_cast<int>(devices_.size()));
}

void DevicePool::Release(absl::string_view job_id) {
  for (Device& device : devices_) {
    if (device.holder == job_id) device.holder.clear();
  }
}

void DevicePool::SetUnhealthy(int id, absl::string_view why) {
  devices_[static_cast<size_t>(id)].unhealthy = std::string(why);
}

void DevicePool::SetHealthy(int id) { devices_[static_cast<size_t>(id)].unhealthy.clear(); }

bool DevicePool::CanEverAcquire(const DeviceRequest& request) const {
  const auto sound = [](const Device& device) { return device.unhealthy.empty(); };
  if (request.ids.empty()) return std::count_if(devices_.begin(), devices_.end(), sound) >= Wanted(request);
  return std::all_of(request.ids.begin(), request.ids.end(),
                     [&](int id) { return sound(devices_[static_cast<size_t>(id)]); });
}

std::string DevicePool::Missing(const DeviceRequest& request) const {
  for (int id : request.ids) {
    const Device& device = devices_[static_cast<size_t>(id)];
    if (!device.unhealthy.empty()) return absl::StrCat("device ", id, ", which is unhealthy: ", device.unhealthy);
    if (!device.holder.empty()) return absl::StrCat("device ", id, ", which job ", device.holder, " holds");
  }
  if (!request.ids.empty()) return "its turn";
  int free = 0;
  int unhealthy = 0;
  for (const Device& device : devices_) {
    if (!device.unhealthy.empty())
      ++unhealthy;
    else if (device.holder.empty())
      ++free;
  }
  const int missing = Wanted(request) - free;
  if (missing <= 0) return "its turn";
  return absl::StrCat(
      Plural(missing, "device"), free > 0 ? absl::StrCat(" beside the ", free, " free") : "",
      unhealthy > 0 ? absl::StrCat("; ", unhealthy, unhealthy == 1 ? " is" : " are", " unhealthy") : "");
}

bool DevicePool::HoldsAny(absl::string_view job_id, const std::vector<int>& ids) const {
  return std::any_of(ids.begin(), ids.end(),
                     [&](int id) { return devices_[static_cast<size_t>(id)].holder == job_id; });
}

}  // namespace lenet
