// Launches that overlap the end of the kernel before them.
#ifndef LENET_TRAINER_BACKEND_CUDA_LAUNCH_EARLY_CUH_
#define LENET_TRAINER_BACKEND_CUDA_LAUNCH_EARLY_CUH_

#include <cuda_runtime_api.h>

#include <cstddef>

namespace lenet::cuda {

// The kernel may start when every block of the one before it in the stream has called LetNextStart() or ended, so it
// calls AwaitPrevious() before it reads what that one writes, or writes what that one reads or writes, and
// LetNextStart() only after that. If all kernels of a stream do, each sees all that those before it wrote. What only
// earlier kernels write it may read at once: the one before it has waited for them, and a kernel starts with an empty
// L1 cache. For devices of compute capability 9.0 and later; on others an ordinary launch.
template <typename... Parameters, typename... Arguments>
cudaError_t LaunchEarly(void (*kernel)(Parameters...), dim3 blocks, int threads, size_t shared_bytes,
                        cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

__device__ inline void AwaitPrevious() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

__device__ inline void LetNextStart() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_LAUNCH_EARLY_CUH_
