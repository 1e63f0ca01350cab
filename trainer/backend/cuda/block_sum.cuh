// A sum over a block in double precision.
#ifndef LENET_TRAINER_BACKEND_CUDA_BLOCK_SUM_CUH_
#define LENET_TRAINER_BACKEND_CUDA_BLOCK_SUM_CUH_

namespace lenet::cuda {

// Of a block of kThreads threads, a power of two, which all must call it. Thread 0's result alone is complete.
template <int kThreads>
__device__ double BlockSum(double x) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = x;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  return sums[0];
}

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_BLOCK_SUM_CUH_
