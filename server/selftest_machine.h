// What the machine has for training beside its devices, each as a check of the self-test.
#ifndef LENET_SERVER_SELFTEST_MACHINE_H_
#define LENET_SERVER_SELFTEST_MACHINE_H_

#include <filesystem>
#include <string>

#include "server/selftest.h"

namespace lenet {

// Errors in the memory of all NVIDIA GPUs since their driver was loaded, as the library `nvml` tells them: failed if
// there were any that ECC could not correct, as results may be wrong until the GPU is reset. Skipped without a driver.
Check CheckEcc(const std::string& nvml);

// Free bytes in /dev/shm, where NCCL's ranks meet.
Check CheckSharedMemory();

// Interfaces with an address: NCCL makes a socket on one of them even within one host.
Check CheckInterfaces();

// Free bytes for the state folder, which may not be there yet.
Check CheckDisk(const std::filesystem::path& state_dir);

}  // namespace lenet

#endif  // LENET_SERVER_SELFTEST_MACHINE_H_
