// A sum over a block in double precision.
#ifndef LENET_TRAINER_BACKEND_CUDA_BLOCK_SUM_CUH_
#define LENET_TRAINER_BACKEND_CUDA_BLOCK_SUM_CUH_

namespace lenet::cuda {

// Of a block of kThreads threads, a multiple of 32 and at most 1024, which all must call it, once or with a barrier
// between. The first warp gets it.
template <int kThreads>
__device__ double BlockSum(double x) {
  constexpr int kWarp = 32;
  constexpr unsigned kAllLanes = ~0u;
  __shared__ double sums[kThreads / kWarp];
  __syncwarp();  // shuffles are slow in a warp whose threads do not run together
#pragma unroll
  for (int bit = kWarp / 2; bit > 0; bit /= 2) x += __shfl_xor_sync(kAllLanes, x, bit);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  if (threadIdx.x >= kWarp) return 0;
  x = threadIdx.x < kThreads / kWarp ? sums[threadIdx.x] : 0;
#pragma unroll
  for (int bit = kWarp / 2; bit > 0; bit /= 2) x += __shfl_xor_sync(kAllLanes, x, bit);
  return x;
}

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_BLOCK_SUM_CUH_
