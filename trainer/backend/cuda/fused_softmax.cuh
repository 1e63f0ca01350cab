// The loss of an image in the fused kernels, as SoftmaxLossKernel; a warp does it.
#ifndef LENET_TRAINER_BACKEND_CUDA_FUSED_SOFTMAX_CUH_
#define LENET_TRAINER_BACKEND_CUDA_FUSED_SOFTMAX_CUH_

#include "trainer/backend/cuda/fused_values.cuh"

namespace lenet::cuda::fused {

// The largest logit of an image, and the sum over its classes of exp(logit - largest).
struct Softmax {
  float top, sum;
};

__device__ __forceinline__ Softmax FindSoftmax(const float* logits, int classes) {
  const float lowest = -__int_as_float(0x7f800000);
  const int lane = Lane();
  const float z0 = lane < classes ? logits[lane] : lowest;
  const float z1 = lane + kWarp < classes ? logits[lane + kWarp] : lowest;
  float top = fmaxf(z0, z1);
#pragma unroll
  for (int bit = kWarp / 2; bit > 0; bit /= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, bit));
  float e = lane < classes ? expf(z0 - top) : 0;
  if (classes > kWarp) e += lane + kWarp < classes ? expf(z1 - top) : 0;
  return {top, LaneSum<16>(e)};
}

// The gradient of logit c.
struct LogitsGradient {
  Softmax softmax;
  int label;
  float scale;

  __device__ __forceinline__ float operator()(const float* logits, int c, int classes) const {
    if (c >= classes) return 0;
    return (__fdividef(expf(logits[c] - softmax.top), softmax.sum) - (c == label ? 1 : 0)) * scale;
  }
};

// What the batch's image b gives.
__device__ __forceinline__ void StoreResults(const ResultArguments& a, int b, int classes, const float* logits,
                                             int label, const Softmax& softmax) {
  const int lane = Lane();
  if (lane == 0) a.losses[b] = logf(softmax.sum) + (softmax.top - logits[label]);
  if (a.correct != nullptr) {
    // The first of the largest. A NaN is none.
    int best = 2 * kWarp;
    if (lane + kWarp < classes && logits[lane + kWarp] == softmax.top) best = lane + kWarp;
    if (lane < classes && logits[lane] == softmax.top) best = lane;
#pragma unroll
    for (int bit = kWarp / 2; bit > 0; bit /= 2) best = min(best, __shfl_xor_sync(kAllLanes, best, bit));
    if (lane == 0) a.correct[b] = best == label;
  }
  if (a.logits != nullptr) {
    for (int c = lane; c < classes; c += kWarp) a.logits[int64_t{b} * classes + c] = logits[c];
  }
  __syncwarp();
}

}  // namespace lenet::cuda::fused

#endif  // LENET_TRAINER_BACKEND_CUDA_FUSED_SOFTMAX_CUH_
