// The processor cores that this process may use.
#ifndef LENET_TRAINER_BASE_CORES_H_
#define LENET_TRAINER_BASE_CORES_H_

namespace lenet {

// By the calling thread's affinity mask, which container runtimes and taskset set; at least 1.
int UsableCores();

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_CORES_H_
