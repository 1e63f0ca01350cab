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

std::optional<std::vector<int>> DevicePool::Acquire(const DeviceRequest& request, absl::string_view job_id) {
  const int devices = static_cast<int>(holders_.size());
  const auto free = [this](int id) { return holders_[static_cast<size_t>(id)].empty(); };
  std::vector<int> ids = request.ids;
  if (ids.empty()) {
    const int wanted = std::min(request.ranks, devices);
    for (int id = 0; id < devices && static_cast<int>(ids.size()) < wanted; ++id) {
      if (free(id)) ids.push_back(id);
    }
    if (static_cast<int>(ids.size()) < wanted) return std::nullopt;
    for (int rank = wanted; rank < request.ranks; ++rank) ids.push_back(rank % devices);
  } else if (!std::all_of(ids.begin(), ids.end(), free)) {
    return std::nullopt;
  }
  for (int id : ids) holders_[static_cast<size_t>(id)] = std::string(job_id);
  return ids;
}

void DevicePool::Release(absl::string_view job_id) {
  for (std::string& holder : holders_) {
    if (holder == job_id) holder.clear();
  }
}

}  // namespace lenet
