// Reads the GPUs' sensors now and then, so that nobody who wants to know has to wait for the driver.
#ifndef LENET_SERVER_MONITORING_GPU_MONITOR_H_
#define LENET_SERVER_MONITORING_GPU_MONITOR_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace lenet {

// What a GPU does not tell is not set.
struct GpuReading {
  int index = 0;  // NVML's, in the order of the PCI bus: not the device ids of a process that sees some GPUs alone
  std::string uuid;
  std::string name;
  std::optional<uint64_t> memory_bytes;
  std::optional<uint64_t> memory_used_bytes;
  std::optional<double> utilization;  // 0 to 1: part of the last second or less in which a kernel ran
  std::optional<double> temperature;  // degrees Celsius
  std::optional<double> power;        // watts
  // Since the driver was loaded.
  std::optional<uint64_t> ecc_corrected;
  std::optional<uint64_t> ecc_uncorrected;
  // Since this monitor was made; not set if the driver tells none.
  std::optional<uint64_t> xids;
  uint64_t last_xid = 0;  // 0: none
};

struct GpuMonitorOptions {
  std::string library = "libnvidia-ml.so.1";
  std::chrono::milliseconds interval{5000};
  // Older readings are not given: the driver hangs.
  std::chrono::milliseconds max_age{60000};
};

// Its thread alone calls the driver. Safe from any thread.
class GpuMonitor {
 public:
  // NOT_FOUND if there is no such library: there is no driver here.
  static absl::StatusOr<std::unique_ptr<GpuMonitor>> Start(const GpuMonitorOptions& options = {});
  // Waits for the thread, but not long: one that hangs in the driver is left behind.
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // The newest; empty before the first, or if they are too old. Never waits for the driver.
  std::vector<GpuReading> Latest() const;

 private:
  struct State;
  explicit GpuMonitor(std::shared_ptr<State> state) : state_(std::move(state)) {}

  const std::shared_ptr<State> state_;  // the thread's, too
};

}  // namespace lenet

#endif  // LENET_SERVER_MONITORING_GPU_MONITOR_H_
