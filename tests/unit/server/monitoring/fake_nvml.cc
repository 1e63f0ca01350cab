// Two GPUs without a driver. With LENET_FAKE_NVML_HANG set, reading a temperature never returns.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kTimeout = 10;

struct Device {
  unsigned int index;
};
Device devices[2] = {{0}, {1}};
bool xid_told = false;

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned int gpu, memory;
};
struct EventData {
  Device* device;
  unsigned long long type, data;
  unsigned int gpu_instance, compute_instance;
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvmlInit_v2() { return kSuccess; }

int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 2;
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device** device) {
  if (index > 1) return kInvalidArgument;
  *device = &devices[index];
  return kSuccess;
}

int nvmlDeviceGetUUID(Device* device, char* text, unsigned int size) {
  std::snprintf(text, size, "GPU-%u", device->index);
  return kSuccess;
}

int nvmlDeviceGetName(Device* /*device*/, char* text, unsigned int size) {
  std::snprintf(text, size, "Fake GPU");
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(Device* device, Memory* memory) {
  *memory = {.total = 1000, .free = 1000 - 100ull * (device->index + 1), .used = 100ull * (device->index + 1)};
  return kSuccess;
}

int nvmlDeviceGetUtilizationRates(Device* /*device*/, Utilization* utilization) {
  *utilization = {.gpu = 75, .memory = 10};
  return kSuccess;
}

int nvmlDeviceGetTemperature(Device* device, int sensor, unsigned int* celsius) {
  while (std::getenv("LENET_FAKE_NVML_HANG") != nullptr) ::pause();
  if (sensor != 0) return kInvalidArgument;
  *celsius = 40 + device->index;
  return kSuccess;
}

// The second tells no power.
int nvmlDeviceGetPowerUsage(Device* device, unsigned int* milliwatts) {
  if (device->index == 1) return kNotSupported;
  *milliwatts = 250'500;
  return kSuccess;
}

int nvmlDeviceGetTotalEccErrors(Device* /*device*/, int type, int counter, unsigned long long* count) {
  if (counter != 0) return kInvalidArgument;
  *count = type == 0 ? 7 : 1;
  return kSuccess;
}

int nvmlEventSetCreate(Device** set) {
  *set = devices;
  return kSuccess;
}

int nvmlDeviceRegisterEvents(Device* device, unsigned long long types, Device* /*set*/) {
  return device->index == 1 && types == 8 ? kSuccess : kNotSupported;
}

// One Xid of the second GPU.
int nvmlEventSetWait_v2(Device* /*set*/, EventData* data, unsigned int milliseconds) {
  if (xid_told) {
    ::usleep(milliseconds * 1000);
    return kTimeout;
  }
  xid_told = true;
  *data = {.device = &devices[1], .type = 8, .data = 79};
  return kSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
