// The three linear layers and the loss of one image, forward and back, as a block of the fused pass does them. A warp
// has every 16th output of a layer, its lanes the inputs; weights stay in registers until they are needed again.
#ifndef LENET_TRAINER_BACKEND_CUDA_FUSED_LINEAR_CUH_
#define LENET_TRAINER_BACKEND_CUDA_FUSED_LINEAR_CUH_

#include "trainer/backend/cuda/fused_softmax.cuh"
#include "trainer/backend/cuda/fused_values.cuh"

namespace lenet::cuda::fused {

inline constexpr int kPassWarps = 16;

// Sizes are multiples of 4 floats, for aligned 16-byte accesses.
struct alignas(16) LinearValues {
  float pool2[kFeatures0];  // on the way back its gradient, zero where the activation was off
  float hidden1[kFeatures1];
  float hidden2[kFeatures2];
  float logits[kMaxClasses];
  float gradient1[kFeatures1];  // of hidden1's sums, and so on
  float gradient2[kFeatures2];
  float gradient3[kMaxClasses];
};

// Weights [kOut, kIn] and biases of a layer, in shared memory.
template <int kIn, int kOut>
struct LinearLayer {
  static constexpr int kRows = (kOut + kPassWarps - 1) / kPassWarps;  // of a warp
  static constexpr int kQuads = (kIn / 4 + kWarp - 1) / kWarp;        // of a lane, the last perhaps beyond the inputs
  const float* weight;
  const float* bias;
};

// A warp's part of the weights; beyond the outputs and the inputs the last ones again.
template <int kIn, int kOut>
struct LinearWeights {
  using Layer = LinearLayer<kIn, kOut>;
  float4 rows[Layer::kRows][Layer::kQuads];
};

// out = relu(weight * in + bias)
template <int kIn, int kOut>
__device__ __forceinline__ void Linear(const LinearLayer<kIn, kOut>& layer, LinearWeights<kIn, kOut>& weights,
                                       const float* in, float* out) {
  using Layer = LinearLayer<kIn, kOut>;
  float4 x[Layer::kQuads];
#pragma unroll
  for (int q = 0; q < Layer::kQuads; ++q) {
    const int quad = Lane() + q * kWarp;
    x[q] = quad < kIn / 4 ? Load4(in + 4 * quad) : make_float4(0, 0, 0, 0);
  }
  constexpr int kSums = 8;
  static_assert(Layer::kRows <= kSums);
  float sums[kSums] = {};
#pragma unroll
  for (int row = 0; row < Layer::kRows; ++row) {
    const int o = WarpIndex() + row * kPassWarps;
    const float* const from = layer.weight + ((row + 1) * kPassWarps <= kOut ? o : min(o, kOut - 1)) * kIn;
#pragma unroll
    for (int q = 0; q < Layer::kQuads; ++q) {
      const float4 w = Load4(from + 4 * min(Lane() + q * kWarp, kIn / 4 - 1));
      sums[row] += w.x * x[q].x;
      sums[row] += w.y * x[q].y;
      sums[row] += w.z * x[q].z;
      sums[row] += w.w * x[q].w;
      weights.rows[row][q] = w;
    }
  }
  // The row's bits from the lane's bits 16, 8 and 4, then over the four lanes that are left.
  Fold<kSums, 16, 4>(sums);
  const float sum = LaneSum<2>(sums[0]);
  const int o = WarpIndex() + Lane() / 4 * kPassWarps;
  if (Lane() % 4 == 0 && o < kOut) out[o] = Relu(sum + layer.bias[o]);
  __syncwarp();
}

// weight^T [kIn, kOut] * out, as a sum over the outputs of each warp: sums [kPassWarps][kIn].
template <int kIn, int kOut>
__device__ __forceinline__ void LinearBackward(const LinearWeights<kIn, kOut>& weights, const float* out, float* sums) {
  using Layer = LinearLayer<kIn, kOut>;
  float4 of_warp[Layer::kQuads] = {};
#pragma unroll
  for (int row = 0; row < Layer::kRows; ++row) {
    const int o = WarpIndex() + row * kPassWarps;
    const bool valid = (row + 1) * kPassWarps <= kOut || o < kOut;
    const float d = valid ? out[o] : 0;
#pragma unroll
    for (int q = 0; q < Layer::kQuads; ++q) {
      of_warp[q].x += weights.rows[row][q].x * d;
      of_warp[q].y += weights.rows[row][q].y * d;
      of_warp[q].z += weights.rows[row][q].z * d;
      of_warp[q].w += weights.rows[row][q].w * d;
    }
  }
#pragma unroll
  for (int q = 0; q < Layer::kQuads; ++q) {
    const int quad = Lane() + q * kWarp;
    if (quad < kIn / 4) Store4(sums + WarpIndex() * kIn + 4 * quad, of_warp[q]);
  }
}

// Of input Thread(), over what the first `warps` warps have left; zero where the activation was off.
template <int kIn>
__device__ __forceinline__ float LinearGradient(const float* sums, const float* activation, int warps = kPassWarps) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kPassWarps; ++warp) {
    if (warp < warps) sum += sums[warp * kIn + Thread()];
  }
  return activation[Thread()] <= 0 ? 0.0f : sum;
}

// The last layer's weights [classes, kFeatures2], from global memory: rows warp, warp + 16, …; inputs lane, lane + 32,
// …
struct LastWeights {
  static constexpr int kRows = kMaxClasses / kPassWarps;
  static constexpr int kInputs = (kFeatures2 + kWarp - 1) / kWarp;
  float rows[kRows][kInputs];

  __device__ __forceinline__ void Load(const float* weight, int classes) {
    const float* const from = weight + WarpIndex() * kFeatures2 + Lane();
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const bool has_row = WarpIndex() + row * kPassWarps < classes;
#pragma unroll
      for (int i = 0; i < kInputs; ++i) {
        const bool has_input = (i + 1) * kWarp <= kFeatures2 || Lane() + i * kWarp < kFeatures2;
        rows[row][i] = 0;
        if (has_row && has_input) rows[row][i] = __ldcg(from + row * kPassWarps * kFeatures2 + i * kWarp);
      }
    }
  }
};

__device__ __forceinline__ void LastLinear(const LastWeights& weights, const float* bias, int classes, const float* in,
                                           float* logits) {
  float sums[LastWeights::kRows] = {};
  const int o = WarpIndex() + Lane() / 8 * kPassWarps;
  const float of_bias = o < classes ? __ldcg(bias + o) : 0;
#pragma unroll
  for (int i = 0; i < LastWeights::kInputs; ++i) {
    const float x = in[min(Lane() + i * kWarp, kFeatures2 - 1)];
#pragma unroll
    for (int row = 0; row < LastWeights::kRows; ++row) {
      if (row * kPassWarps < classes) sums[row] += weights.rows[row][i] * x;
    }
  }
  Fold<LastWeights::kRows, 16, 8>(sums);
  const float sum = LaneSum<4>(sums[0]);
  if (Lane() % 8 == 0 && o < classes) logits[o] = sum + of_bias;
  __syncwarp();
}

// What the gradient of the logits makes of the last layer's inputs', over each warp's rows: sums
// [kPassWarps][kFeatures2].
__device__ __forceinline__ void LastBackward(const LastWeights& weights, const LogitsGradient& gradient,
                                             const float* logits, int classes, float* sums) {
  float of_warp[LastWeights::kInputs] = {};
#pragma unroll
  for (int row = 0; row < LastWeights::kRows; ++row) {
    if (row * kPassWarps >= classes) break;
    const float d = gradient(logits, WarpIndex() + row * kPassWarps, classes);
#pragma unroll
    for (int i = 0; i < LastWeights::kInputs; ++i) of_warp[i] += weights.rows[row][i] * d;
  }
#pragma unroll
  for (int i = 0; i < LastWeights::kInputs; ++i) {
    const int input = Lane() + i * kWarp;
    if (input < kFeatures2) sums[WarpIndex() * kFeatures2 + input] = of_warp[i];
  }
}

}  // namespace lenet::cuda::fused

#endif  // LENET_TRAINER_BACKEND_CUDA_FUSED_LINEAR_CUH_
