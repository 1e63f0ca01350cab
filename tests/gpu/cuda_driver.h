// What tests ask of the driver directly. `device` as CUDA counts them.
#ifndef LENET_TESTS_GPU_CUDA_DRIVER_H_
#define LENET_TESTS_GPU_CUDA_DRIVER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lenet {

// In bytes.
absl::StatusOr<int64_t> FreeDeviceMemory(int device);

// Runs a kernel that traps: from then on every call of this process on the device fails. Does not wait for it.
absl::Status SpoilContext(int device);

}  // namespace lenet

#endif  // LENET_TESTS_GPU_CUDA_DRIVER_H_
