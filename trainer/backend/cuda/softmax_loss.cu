// Softmax cross-entropy with integer labels: a warp an image.
#include "trainer/backend/cuda/kernels.h"

namespace lenet::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;
constexpr int kMaxPerLane = 8;  // 256 classes

__device__ float WarpMax(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

__device__ float WarpSum(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// The least index at which the warp's values are largest.
__device__ int WarpArgMax(float value, int index) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(~0u, value, offset);
    const int other_index = __shfl_xor_sync(~0u, index, offset);
    if (other > value || (other == value && other_index < index)) {
      value = other;
      index = other_index;
    }
  }
  return index;
}

__global__ void SoftmaxLossKernel(const float* logits, const uint8_t* labels, int batch, int classes, float scale,
                                  float* losses, float* dlogits, uint8_t* correct, Chunk* chunk) {
  if (chunk != nullptr && blockIdx.x == 0 && threadIdx.x == 0) ++chunk->next_step;
  const int b = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (b >= batch) return;
  const float* row = logits + int64_t{b} * classes;
  const int label = labels[b];
  const float lowest = -__int_as_float(0x7f800000);
  float z[kMaxPerLane];
  float best = lowest;
  int best_class = lane;
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int c = lane + i * kWarp;
    z[i] = c < classes ? row[c] : lowest;
    if (z[i] > best) {
      best = z[i];
      best_class = c;
    }
  }
  const float top = WarpMax(best);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    if (lane + i * kWarp < classes) sum += expf(z[i] - top);
  }
  sum = WarpSum(sum);
  if (dlogits != nullptr) {
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) {
      const int c = lane + i * kWarp;
      if (c < classes) dlogits[int64_t{b} * classes + c] = (expf(z[i] - top) / sum - (c == label ? 1 : 0)) * scale;
    }
  }
  if (correct != nullptr) {
    const int predicted = WarpArgMax(best, best_class);
    if (lane == 0) correct[b] = predicted == label;
  }
  if (lane == 0) losses[b] = logf(sum) + (top - row[label]);
}

}  // namespace

cudaError_t LaunchSoftmaxLoss(const float* logits, const uint8_t* labels, int batch, int classes, float scale,
                              float* losses, float* dlogits, uint8_t* correct, Chunk* chunk, cudaStream_t stream) {
  const int per_block = kThreads / kWarp;
  SoftmaxLossKernel<<<(batch + per_block - 1) / per_block, kThreads, 0, stream>>>(logits, labels, batch, classes, scale,
                                                                                  losses, dlogits, correct, chunk);
  return cudaGetLastError();
}

}  // namespace lenet::cuda
