// What the fused kernels hold of an image and of the convolutions' weights in shared memory, and the small pieces that
// they have in common.
#ifndef LENET_TRAINER_BACKEND_CUDA_FUSED_VALUES_CUH_
#define LENET_TRAINER_BACKEND_CUDA_FUSED_VALUES_CUH_

#include <cstdint>

#include "trainer/backend/cuda/fused_lenet.h"

namespace lenet::cuda::fused {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = ~0u;

__device__ __forceinline__ int Thread() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x % kWarp); }
__device__ __forceinline__ int WarpIndex() { return static_cast<int>(threadIdx.x / kWarp); }

inline constexpr int kArea1 = kSide1 * kSide1;
inline constexpr int kArea2 = kSide2 * kSide2;
// Distances, in floats, that put what a warp reads at once into different banks.
inline constexpr int kMapPitch = kArea1 + 4;             // of a map of pool1
inline constexpr int kWeightPitch = kMaps1 * kTaps + 6;  // of an output map of the second convolution

struct ConvWeights {
  uint4 first[3][kWarp];  // see LoadConvWeights
  float second[kMaps2 * kWeightPitch];
  float first_bias[8];
  float second_bias[kMaps2];
};

// Bytes as BF16 in pairs of neighbours: pixels 2i and 2i + 1, and 2i + 1 and 2i + 2.
struct Pixels {
  uint32_t even[kPixels / 2];
  uint32_t odd[kPixels / 2];
};

// What the convolutions give beside pool2.
struct alignas(16) ConvValues {
  float pool1[kMaps1 * kMapPitch];      // on the way back its gradient, zero where the activation was off
  uint8_t winner1[kMaps1 * kMapPitch];  // which sum of its window was the largest: 0 to 3
  uint8_t winner2[kFeatures0];
};
static_assert(sizeof(ConvValues) == kConvValueBytes);

__device__ __forceinline__ float Relu(float x) { return x <= 0 ? 0.0f : x; }  // not fmaxf: a NaN stays one

__device__ __forceinline__ float4 Load4(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ __forceinline__ float2 Load2(const float* from) { return *reinterpret_cast<const float2*>(from); }
__device__ __forceinline__ void Store4(float* to, float4 v) { *reinterpret_cast<float4*>(to) = v; }

// values[i], i < kCount, summed over the lanes that differ in bit kBit: a lane keeps the sums of one half, the lower if
// its bit is 0; then the same with half the values and the next lower bit, down to kLast.
template <int kCount, int kBit, int kLast, int kSize>
__device__ __forceinline__ void Fold(float (&values)[kSize]) {
  constexpr int kHalf = kCount / 2;
  static_assert(kCount % 2 == 0 && kCount <= kSize);
  const bool upper = (threadIdx.x & kBit) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float give = upper ? values[i] : values[i + kHalf];
    const float keep = upper ? values[i + kHalf] : values[i];
    values[i] = keep + __shfl_xor_sync(kAllLanes, give, kBit);
  }
  if constexpr (kBit > kLast) Fold<kHalf, kBit / 2, kLast>(values);
}

// The sum over the lanes that differ in bits kBit, kBit / 2, … 1, which all of them get.
template <int kBit>
__device__ __forceinline__ float LaneSum(float x) {
#pragma unroll
  for (int bit = kBit; bit > 0; bit /= 2) x += __shfl_xor_sync(kAllLanes, x, bit);
  return x;
}

}  // namespace lenet::cuda::fused

#endif  // LENET_TRAINER_BACKEND_CUDA_FUSED_VALUES_CUH_
