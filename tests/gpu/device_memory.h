// Free memory of a GPU, asked of the driver directly.
#ifndef LENET_TESTS_GPU_DEVICE_MEMORY_H_
#define LENET_TESTS_GPU_DEVICE_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace lenet {

// In bytes. `device` as CUDA counts them.
absl::StatusOr<int64_t> FreeDeviceMemory(int device);

}  // namespace lenet

#endif  // LENET_TESTS_GPU_DEVICE_MEMORY_H_
