#include "server/monitoring/nvml.h"

#include <dlfcn.h>

#include "trainer/base/status.h"

namespace lenet {
namespace {

std::string LoaderError() {
  const char* const error = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it for each thread
  return error == nullptr ? "unknown" : error;
}

template <typename Function>
absl::Status Find(void* library, const char* name, Function* function) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) return absl::NotFoundError(LoaderError());
  *function = reinterpret_cast<Function>(found);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Nvml> Nvml::Load(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::NotFoundError(LoaderError());
  Nvml nvml;
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlInit_v2", &nvml.Init));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetCount_v2", &nvml.DeviceCount));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetHandleByIndex_v2", &nvml.DeviceByIndex));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetUUID", &nvml.DeviceUuid));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetName", &nvml.DeviceName));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetMemoryInfo", &nvml.DeviceMemory));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetUtilizationRates", &nvml.DeviceUtilization));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetTemperature", &nvml.DeviceTemperature));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetPowerUsage", &nvml.DevicePower));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlDeviceGetTotalEccErrors", &nvml.DeviceEccErrors));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlEventSetCreate", &nvml.NewEventSet));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlDeviceRegisterEvents", &nvml.RegisterEvents));
  LENET_RETURN_IF_ERROR(Find(handle, "nvmlEventSetWait_v2", &nvml.WaitForEvent));
  return nvml;
}

}  // namespace lenet
