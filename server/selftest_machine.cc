#include "server/selftest_machine.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/monitoring/gpu_monitor.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kLeastSharedMemory = 64 * kMiB;  // of /dev/shm: NCCL's buffers of a handful of GPUs
constexpr int64_t kLeastDisk = 1024 * kMiB;  // of the state folder: databases and checkpoints of a few hundred jobs
constexpr std::chrono::seconds kSensorsTimeout(10);

// Free bytes of a file system, or why they are not known.
absl::StatusOr<int64_t> FreeBytes(const fs::path& path) {
  struct statvfs info;
  if (::statvfs(path.c_str(), &info) != 0) {
    return absl::UnavailableError(absl::StrCat("'", path.string(), "': ", std::strerror(errno)));
  }
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace

Check CheckEcc(const std::string& nvml) {
  const char* const name = "ECC";
  const absl::StatusOr<std::unique_ptr<GpuMonitor>> monitor = GpuMonitor::Start({.library = nvml});
  if (absl::IsNotFound(monitor.status())) return Check::Skipped(name, "there is no NVIDIA driver");
  if (!monitor.ok()) return {name, CheckResult::kWarning, std::string(monitor.status().message())};
  std::vector<GpuReading> readings;
  for (const Clock::time_point late = Clock::now() + kSensorsTimeout; readings.empty() && Clock::now() < late;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    readings = (*monitor)->Latest();
  }
  if (readings.empty()) {
    return {name, CheckResult::kWarning,
            absl::StrCat("the driver tells nothing of the GPUs within ", kSensorsTimeout.count(), " s")};
  }
  Check check = Check::Ok(name, "");
  std::vector<std::string> parts;
  for (const GpuReading& gpu : readings) {
    if (!gpu.ecc_uncorrected) {
      parts.push_back(absl::StrCat("GPU ", gpu.index, ": has no ECC"));
      continue;
    }
    parts.push_back(absl::StrCat("GPU ", gpu.index, ": ", *gpu.ecc_uncorrected, " errors uncorrected, ",
                                 gpu.ecc_corrected.value_or(0), " corrected"));
    if (*gpu.ecc_uncorrected == 0) continue;
    check.result = CheckResult::kFailed;
    absl::StrAppend(&parts.back(), " (must be 0; reset it: nvidia-smi --gpu-reset -i ", gpu.index, ")");
  }
  check.detail = absl::StrJoin(parts, "; ");
  return check;
}

Check CheckSharedMemory() {
  const char* const name = "shared memory";
  const absl::StatusOr<int64_t> free = FreeBytes("/dev/shm");
  if (!free.ok()) return {name, CheckResult::kWarning, std::string(free.status().message())};
  Check check = Check::Ok(name, absl::StrCat(*free / kMiB, " MiB free in /dev/shm"));
  if (*free <= kLeastSharedMemory) {
    check.result = CheckResult::kWarning;
    absl::StrAppend(&check.detail, "; NCCL may need more than ", kLeastSharedMemory / kMiB,
                    " (in a container: --shm-size)");
  }
  return check;
}

Check CheckInterfaces() {
  const char* const name = "network";
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {name, CheckResult::kWarning, std::strerror(errno)};
  std::set<std::string> interfaces;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const bool ip = i->ifa_addr != nullptr && (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
    if (ip && (i->ifa_flags & IFF_UP) != 0) interfaces.insert(i->ifa_name);
  }
  ::freeifaddrs(list);
  if (interfaces.empty()) {
    return {name, CheckResult::kWarning, "no interface has an address: NCCL finds none to meet on"};
  }
  Check check = Check::Ok(name, absl::StrCat("interfaces: ", absl::StrJoin(interfaces, ", ")));
  const char* wanted = std::getenv("NCCL_SOCKET_IFNAME");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  if (wanted != nullptr) absl::StrAppend(&check.detail, "; NCCL_SOCKET_IFNAME=", wanted);
  return check;
}

Check CheckDisk(const fs::path& state_dir) {
  std::error_code error;
  fs::path folder = fs::absolute(state_dir, error);
  while (!error && !fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  const absl::StatusOr<int64_t> free = FreeBytes(folder);
  if (!free.ok()) return Check::Failed("disk", free.status());
  Check check = Check::Ok("disk", absl::StrCat(*free / kMiB, " MiB free for ", state_dir.string()));
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    check.result = CheckResult::kWarning;
    absl::StrAppend(&check.detail, "; this user cannot write in '", folder.string(), "'");
  } else if (*free < kLeastDisk) {
    check.result = CheckResult::kWarning;
    absl::StrAppend(&check.detail, "; ", kLeastDisk / kMiB, " are advised");
  }
  return check;
}

}  // namespace lenet
