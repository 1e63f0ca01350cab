// The convolutions of a large batch. Blocks are small, so that some compute while others wait; each goes through many
// images, the next of which it loads while it works on one.
#include <cuda_pipeline.h>

#include <algorithm>

#include "trainer/backend/cuda/fused_conv.cuh"
#include "trainer/backend/cuda/fused_images.cuh"
#include "trainer/backend/cuda/fused_kernels.h"
#include "trainer/backend/cuda/launch_early.cuh"

namespace lenet::cuda::fused {
namespace {

// --- Forward

constexpr int kForwardWarps = kConv1Warps;
constexpr int kForwardThreads = kForwardWarps * kWarp;
constexpr int kForwardBlocks = 2;  // of a multiprocessor

struct ForwardShared {
  ConvWeights weights;
  Pixels pixels;
  ConvValues values[2];
  float scratch[kConv2Scratch<kForwardWarps>];
};

__global__ void __launch_bounds__(kForwardThreads, kForwardBlocks)
    ConvForwardKernel(const __grid_constant__ PassArguments a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char memory[];
  ForwardShared& s = *reinterpret_cast<ForwardShared*>(memory);
  const int stride = static_cast<int>(gridDim.x);
  const int begin = static_cast<int>(blockIdx.x);
  // Before the wait: the update, which this may overlap, writes none of what these read.
  Images images(a.set, a.source, a.batch);
  images.FetchIndex(begin);
  images.Fetch(begin + stride);
  AwaitPrevious();
  LetNextStart();
  LoadConvWeights<kForwardWarps>(a.parameters, a.offsets, s.weights, [] {});
  __pipeline_wait_prior(0);
  const auto store_values = [&](int b, const ConvValues& values) {
    static_assert(kConvValueBytes % sizeof(uint4) == 0);
    uint4* const to = reinterpret_cast<uint4*>(a.conv_values + int64_t{b} * kConvValueBytes);
    for (int i = Thread(); i < kConvValueBytes / static_cast<int>(sizeof(uint4)); i += kForwardThreads) {
      to[i] = reinterpret_cast<const uint4*>(&values)[i];
    }
  };
  int current = 0;
  int b = begin;
  for (; b < a.batch; b += stride) {
    images.Store(s.pixels);
    __syncthreads();
    images.Fetch(b + 2 * stride);
    if (a.backward && b > begin) store_values(b - stride, s.values[1 - current]);
    Conv1(s.weights, s.pixels, s.values[current]);
    __syncthreads();
    Conv2<kForwardWarps>(s.weights, s.values[current], a.inputs + int64_t{b} * kInputRow, s.scratch);
    current = 1 - current;
  }
  if (a.backward) {
    __syncthreads();
    store_values(b - stride, s.values[1 - current]);
  }
#endif
}

// --- Backward

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kBackwardBlocks = 2;  // of a multiprocessor

struct BackwardShared {
  float second[kMaps2 * kWeightPitch];  // the second convolution's weights, as in ConvWeights
  Pixels pixels[2];
  ConvValues values[2];
  float pool2[2][kFeatures0];
  float scratch[std::max(kConv2BackwardScratch, kConvSumScratch<kWarps>)];
};

__global__ void __launch_bounds__(kThreads, kBackwardBlocks)
    ConvBackwardKernel(const __grid_constant__ PassArguments a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char memory[];
  BackwardShared& s = *reinterpret_cast<BackwardShared*>(memory);
  const int stride = static_cast<int>(gridDim.x);
  const int begin = static_cast<int>(blockIdx.x);
  // Before the wait: the linear layers' kernel, which this may overlap, writes none of what these and the weights'
  // copies read, and has itself waited for all that did.
  Images images(a.set, a.source, a.batch);
  images.FetchIndex(begin);
  images.Fetch(begin + stride);
  const auto fetch_values = [&](int b, int to) {
    if (b < a.batch) {
      const unsigned char* const values = a.conv_values + int64_t{b} * kConvValueBytes;
      for (int i = 16 * Thread(); i < kConvValueBytes; i += 16 * kThreads) {
        __pipeline_memcpy_async(reinterpret_cast<unsigned char*>(&s.values[to]) + i, values + i, 16);
      }
      if (Thread() < kFeatures0 / 4) {
        __pipeline_memcpy_async(s.pool2[to] + 4 * Thread(), a.pool2_gradients + int64_t{b} * kFeatures0 + 4 * Thread(),
                                16);
      }
    }
    __pipeline_commit();
  };
  CopySecondWeights<kWarps>(a.parameters + a.offsets.conv2_weight, s.second);
  AwaitPrevious();
  LetNextStart();
  fetch_values(begin, 0);
  ConvSums sums;
  int current = 0;
  for (int b = begin; b < a.batch; b += stride) {
    images.Store(s.pixels[current]);
    __pipeline_wait_prior(0);
    __syncthreads();
    images.Fetch(b + 2 * stride);
    fetch_values(b + stride, 1 - current);
    static_assert(kThreads == kFeatures0);
    sums.bias2 += s.pool2[current][Thread()];
    Conv2Backward<kWarps>(s.second, s.pool2[current], s.values[current], s.scratch, sums.weights2);
    __syncthreads();
    Conv1Weights<kWarps>(s.pixels[current], s.values[current], sums.weights1);
    current = 1 - current;
  }
  __syncthreads();
  StoreConvSums<kWarps>(sums, s.scratch, a.conv_partials + int64_t{begin} * kConvPartials);
#endif
}

}  // namespace

cudaError_t PrepareConv() {
  const cudaError_t result = cudaFuncSetAttribute(ConvForwardKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(sizeof(ForwardShared)));
  if (result != cudaSuccess) return result;
  return cudaFuncSetAttribute(ConvBackwardKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(sizeof(BackwardShared)));
}

cudaError_t LaunchConvForward(const PassArguments& arguments, int multiprocessors, cudaStream_t stream) {
  return LaunchEarly(ConvForwardKernel, std::min(arguments.batch, kForwardBlocks * multiprocessors), kForwardThreads,
                     sizeof(ForwardShared), stream, arguments);
}

int ConvBackwardBlocks(int batch, int multiprocessors) { return std::min(batch, kBackwardBlocks * multiprocessors); }

cudaError_t LaunchConvBackward(const PassArguments& arguments, int multiprocessors, cudaStream_t stream) {
  return LaunchEarly(ConvBackwardKernel, ConvBackwardBlocks(arguments.batch, multiprocessors), kThreads,
                     sizeof(BackwardShared), stream, arguments);
}

}  // namespace lenet::cuda::fused
