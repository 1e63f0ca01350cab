// What a block of the fused pass holds in shared memory, and the small pieces that its steps share.
#ifndef LENET_TRAINER_BACKEND_CUDA_FUSED_VALUES_CUH_
#define LENET_TRAINER_BACKEND_CUDA_FUSED_VALUES_CUH_

#include <cstddef>
#include <cstdint>
#include <cuda/barrier>

#include "trainer/backend/cuda/fused_lenet.h"

namespace lenet::cuda::fused {

inline constexpr int kThreads = 512;
inline constexpr int kWarp = 32;
inline constexpr int kWarps = kThreads / kWarp;
inline constexpr unsigned kAllLanes = ~0u;

// The conv2 sums' gradient, [16][8][8]: map 2q lies in slot q and map 2q + 1 in slot q + 8, at a pitch that puts eight
// slots in different banks.
inline constexpr int kSumPitch = 68;
__device__ constexpr int SumSlot(int map) { return (map / 2) + 8 * (map % 2); }

// Threads that share a conv2 sum, each with some of the input maps.
__host__ __device__ constexpr int MapSplits(int images) { return images == 1 ? 6 : 3; }

// Values of one image; sizes are multiples of 4 floats, for aligned 16-byte accesses.
struct ImageValues {
  float x[kPixels];
  float pool1[kMaps1 * kSide1 * kSide1];
  float pool2[kFeatures0];
  float hidden1[kFeatures1];
  float hidden2[kFeatures2];
  float logits[kMaxClasses];
  float gradient1[kFeatures1];  // of hidden1's sums, and so on
  float gradient2[kFeatures2];
  float gradient3[kMaxClasses];
  uint32_t label;
  uint32_t unused[3];
  uint8_t winner1[kMaps1 * kSide1 * kSide1];
  uint8_t winner2[kFeatures0];
};

// Partial sums on the way forward, or over the linear layers' outputs on the way back, or gradients.
struct Scratch {
  float sums2[kMaps2 * kSumPitch];        // of the conv2 sums
  float pool1[kMaps1 * kSide1 * kSide1];  // of pool1, zero where the activation was off
};
template <int kImages>
constexpr int ScratchFloats() {
  constexpr int kForward = kImages * MapSplits(kImages) * kMaps2 * kSide2 * kSide2 * 4;
  constexpr int kBackward = kImages * 8 * kFeatures0;
  static_assert(sizeof(Scratch) <= sizeof(float) * 8 * kFeatures0);
  return kForward > kBackward ? kForward : kBackward;
}

template <int kImages>
struct Shared {
  float conv1[8 * kTaps];  // [tap][map, 6 of 8]
  float conv1_bias[8];
  float conv2[kWeights2];  // [in map][tap][out map]
  float conv2_bias[kMaps2];
  ImageValues image[kImages];
  float scratch[ScratchFloats<kImages>()];
  ::cuda::barrier<::cuda::thread_scope_block> arrived;  // the linear layers' parameters
  int64_t unused;
  // Followed by the linear layers' parameters as they lie in the flat buffer; after the last image, by partial sums.
};

static_assert(sizeof(Shared<1>) % 16 == 0 && sizeof(Shared<2>) % 16 == 0);  // for the bulk copy behind it

template <int kImages>
size_t SharedBytes(const Offsets& offsets) {
  return sizeof(Shared<kImages>) + sizeof(float) * static_cast<size_t>(offsets.end - offsets.fc1_weight);
}

__device__ __forceinline__ float Relu(float x) { return x <= 0 ? 0.0f : x; }  // not fmaxf: a NaN stays one

__device__ __forceinline__ float4 Load4(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ __forceinline__ float2 Load2(const float* from) { return *reinterpret_cast<const float2*>(from); }

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

}  // namespace lenet::cuda::fused

#endif  // LENET_TRAINER_BACKEND_CUDA_FUSED_VALUES_CUH_
