// The functions of NVIDIA's management library that the server uses, found at run time: the driver brings the library,
// and the build has neither it nor its header. Declared after the NVML API Reference Guide.
#ifndef LENET_SERVER_MONITORING_NVML_H_
#define LENET_SERVER_MONITORING_NVML_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lenet {

struct Nvml {
  using Return = int;
  using Device = struct DeviceTag*;
  using EventSet = struct EventSetTag*;
  struct Memory {
    unsigned long long total, free, used;  // bytes
  };
  struct Utilization {
    unsigned int gpu, memory;  // percent
  };
  struct EventData {
    Device device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
  };

  static constexpr Return kSuccess = 0;
  static constexpr Return kTimeout = 10;
  static constexpr int kGpuSensor = 0;
  static constexpr int kCorrected = 0;
  static constexpr int kUncorrected = 1;
  static constexpr int kSinceDriverLoad = 0;
  static constexpr unsigned long long kXidEvent = 0x8;
  static constexpr unsigned int kNameSize = 96;

  Return (*Init)() = nullptr;
  Return (*DeviceCount)(unsigned int* count) = nullptr;
  Return (*DeviceByIndex)(unsigned int index, Device* device) = nullptr;
  Return (*DeviceUuid)(Device device, char* text, unsigned int size) = nullptr;
  Return (*DeviceName)(Device device, char* text, unsigned int size) = nullptr;
  Return (*DeviceMemory)(Device device, Memory* memory) = nullptr;
  Return (*DeviceUtilization)(Device device, Utilization* utilization) = nullptr;
  Return (*DeviceTemperature)(Device device, int sensor, unsigned int* celsius) = nullptr;
  Return (*DevicePower)(Device device, unsigned int* milliwatts) = nullptr;
  Return (*DeviceEccErrors)(Device device, int type, int counter, unsigned long long* count) = nullptr;
  Return (*NewEventSet)(EventSet* set) = nullptr;
  Return (*RegisterEvents)(Device device, unsigned long long types, EventSet set) = nullptr;
  Return (*WaitForEvent)(EventSet set, EventData* data, unsigned int milliseconds) = nullptr;

  // NOT_FOUND, with the loader's reason, if there is no such library, or it lacks one of these. It stays loaded.
  static absl::StatusOr<Nvml> Load(const std::string& library);
};

}  // namespace lenet

#endif  // LENET_SERVER_MONITORING_NVML_H_
