// The processor cores that this process may use.
#ifndef LENET_TRAINER_BASE_CORES_H_
#define LENET_TRAINER_BASE_CORES_H_

#include <string>

namespace lenet {

// What the calling thread's affinity mask and its cgroup's CPU quota allow; at least 1. Container runtimes and service
// managers set these.
int UsableCores();

// The cores that the content of a cgroup's cpu.max comes to ("150000 100000" is 2), 0 if it sets no limit.
int QuotaCores(const std::string& cpu_max);

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_CORES_H_
