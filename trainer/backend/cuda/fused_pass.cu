// A batch through the network and back. Here small ones, an image a block from beginning to end; the parts that large
// ones are taken through are in fused_conv.cu and fused_dense.cu.
#include <cuda_pipeline.h>

#include <algorithm>
#include <cstddef>
#include <cuda/barrier>
#include <cuda/ptx>

#include "trainer/backend/cuda/fused_conv.cuh"
#include "trainer/backend/cuda/fused_images.cuh"
#include "trainer/backend/cuda/fused_kernels.h"
#include "trainer/backend/cuda/fused_linear.cuh"
#include "trainer/backend/cuda/fused_softmax.cuh"
#include "trainer/backend/cuda/image_source.cuh"
#include "trainer/backend/cuda/launch_early.cuh"

namespace lenet::cuda::fused {
namespace {

constexpr int kThreads = kPassWarps * kWarp;

constexpr int kScratch = std::max({kConv2Scratch<kPassWarps>, kConv2BackwardScratch, kPassWarps* kFeatures0});

struct Shared {
  ConvWeights weights;
  Pixels pixels;
  ConvValues conv;
  LinearValues linear;
  float scratch[kScratch];
  ::cuda::barrier<::cuda::thread_scope_block> arrived[2];  // parameters of the first and of the second linear layer
  // Followed by those parameters as they lie in the flat buffer; in the end, by partial sums.
};
static_assert(sizeof(Shared) % 16 == 0);  // for the bulk copies behind it

// Starts the copies of the first two linear layers' parameters, each of which sets off its barrier.
__device__ void CopyLinearParameters(Shared& s, float* to, const PassArguments& a) {
  if (Thread() != kThreads - 1) return;
  const int first = a.offsets.fc1_weight;
  const int ends[] = {a.offsets.fc2_weight, a.offsets.fc3_weight};
  for (auto& arrived : s.arrived) init(&arrived, 1);
  ::cuda::ptx::fence_proxy_async(::cuda::ptx::space_shared);
  int begin = first;
  for (int i = 0; i < 2; ++i) {
    const ::cuda::aligned_size_t<16> bytes(sizeof(float) * (ends[i] - begin));
    ::cuda::device::memcpy_async_tx(to + (begin - first), a.parameters + begin, bytes, s.arrived[i]);
    (void)::cuda::device::barrier_arrive_tx(s.arrived[i], 1, bytes);
    begin = ends[i];
  }
}

__device__ void AwaitLinearParameters(Shared& s, int layer) {
  s.arrived[layer].wait_parity(false);
  __syncwarp();  // threads may leave the wait one by one, and shuffles are slow until they run together again
}

// The members from pool2 to hidden2 and from gradient1 to gradient3 are such rows.
__device__ void StoreRows(const LinearValues& values, const PassArguments& a, int b) {
  constexpr int kInputQuads = kInputRow / 4;
  constexpr int kGradientQuads = kGradientRow / 4;
  static_assert(kInputQuads + kGradientQuads <= kThreads);
  static_assert(offsetof(LinearValues, logits) - offsetof(LinearValues, pool2) == sizeof(float) * kInputRow);
  static_assert(sizeof(LinearValues) - offsetof(LinearValues, gradient1) == sizeof(float) * kGradientRow);
  const int quad = Thread();
  if (quad < kInputQuads) {
    Store4(a.inputs + int64_t{b} * kInputRow + 4 * quad, Load4(values.pool2 + 4 * quad));
  } else if (quad < kInputQuads + kGradientQuads) {
    const int at = 4 * (quad - kInputQuads);
    Store4(a.gradients + int64_t{b} * kGradientRow + at, Load4(values.gradient1 + at));
  }
}

template <bool kBackward>
__global__ void __launch_bounds__(kThreads, 1) PassKernel(const __grid_constant__ PassArguments a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // before, blocks get too little shared memory
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  float* const copied = reinterpret_cast<float*>(memory + sizeof(Shared));
  const Offsets& at = a.offsets;
  const auto parameter = [&](int offset) { return copied + (offset - at.fc1_weight); };
  const LinearLayer<kFeatures0, kFeatures1> layer1 = {parameter(at.fc1_weight), parameter(at.fc1_bias)};
  const LinearLayer<kFeatures1, kFeatures2> layer2 = {parameter(at.fc2_weight), parameter(at.fc2_bias)};
  const int b = static_cast<int>(blockIdx.x);
  LinearValues& v = s.linear;
  // Before the wait: the update, which this may overlap, writes none of what these read, and has itself waited for all
  // that did.
  Images images(a.set, a.source, a.batch);
  images.FetchIndex(b);
  images.Fetch(a.batch);
  const int label = a.set.labels[ImageIndex(a.source, a.batch)(b)];
  AwaitPrevious();
  LetNextStart();
  LoadConvWeights<kPassWarps>(a.parameters, at, s.weights, [&] {
    CopyLinearParameters(s, copied, a);
    images.Store(s.pixels);
  });
  __syncthreads();
  Conv1(s.weights, s.pixels, s.conv);
  __pipeline_wait_prior(0);
  __syncthreads();
  Conv2<kPassWarps>(s.weights, s.conv, v.pool2, s.scratch);
  LastWeights last;
  last.Load(a.parameters + at.fc3_weight, a.classes);
  AwaitLinearParameters(s, 0);
  __syncthreads();
  LinearWeights<kFeatures0, kFeatures1> weights1;
  LinearWeights<kFeatures1, kFeatures2> weights2;
  Linear(layer1, weights1, v.pool2, v.hidden1);
  AwaitLinearParameters(s, 1);
  __syncthreads();
  Linear(layer2, weights2, v.hidden1, v.hidden2);
  __syncthreads();
  LastLinear(last, a.parameters + at.fc3_bias, a.classes, v.hidden2, v.logits);
  __syncthreads();
  if (!kBackward && WarpIndex() > 0) return;
  const Softmax softmax = FindSoftmax(v.logits, a.classes);
  if constexpr (kBackward) {
    const LogitsGradient gradient = {softmax, label, a.scale};
    LastBackward(last, gradient, v.logits, a.classes, s.scratch);
    if (Thread() < kMaxClasses) v.gradient3[Thread()] = gradient(v.logits, Thread(), a.classes);
    __syncthreads();
    if (Thread() < kFeatures2) {
      v.gradient2[Thread()] = LinearGradient<kFeatures2>(s.scratch, v.hidden2, min(a.classes, kPassWarps));
    }
  }
  // On the way back by a warp with nothing else to do.
  if (WarpIndex() == (kBackward ? kPassWarps - 1 : 0)) StoreResults(a.results, b, a.classes, v.logits, label, softmax);
  if constexpr (kBackward) {
    __syncthreads();
    LinearBackward(weights2, v.gradient2, s.scratch);
    __syncthreads();
    if (Thread() < kFeatures1) v.gradient1[Thread()] = LinearGradient<kFeatures1>(s.scratch, v.hidden1);
    __syncthreads();
    StoreRows(v, a, b);
    LinearBackward(weights1, v.gradient1, s.scratch);
    __syncthreads();
    ConvSums sums;
    if (Thread() < kFeatures0) {
      sums.bias2 = LinearGradient<kFeatures0>(s.scratch, v.pool2);
      v.pool2[Thread()] = sums.bias2;
    }
    __syncthreads();
    Conv2Backward<kPassWarps>(s.weights.second, v.pool2, s.conv, s.scratch, sums.weights2);
    __syncthreads();
    Conv1Weights<kPassWarps>(s.pixels, s.conv, sums.weights1);
    // The linear layers' weights are done with.
    static_assert(kConvSumScratch<kPassWarps> <= kFeatures1 * kFeatures0);
    StoreConvSums<kPassWarps>(sums, copied, a.conv_partials + int64_t{b} * kConvPartials);
  }
#endif
}

}  // namespace

int SharedBytesOfSmallPass(const Offsets& offsets) {
  return static_cast<int>(sizeof(Shared) + sizeof(float) * (offsets.fc3_weight - offsets.fc1_weight));
}

cudaError_t PrepareSmallPass(const Offsets& offsets) {
  const int bytes = SharedBytesOfSmallPass(offsets);
  const cudaError_t result = cudaFuncSetAttribute(PassKernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (result != cudaSuccess) return result;
  return cudaFuncSetAttribute(PassKernel<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

cudaError_t LaunchSmallPass(const PassArguments& arguments, cudaStream_t stream) {
  return LaunchEarly(arguments.backward ? PassKernel<true> : PassKernel<false>, arguments.batch, kThreads,
                     SharedBytesOfSmallPass(arguments.offsets), stream, arguments);
}

bool IsLarge(int batch, int multiprocessors) { return batch > 2 * multiprocessors; }

int ConvPartialRows(int batch, int multiprocessors) {
  return IsLarge(batch, multiprocessors) ? ConvBackwardBlocks(batch, multiprocessors) : batch;
}

int SharedBytes(const Offsets& offsets, int classes) {
  return std::max(SharedBytesOfSmallPass(offsets), SharedBytesOfDense(classes));
}

cudaError_t PreparePass(const Offsets& offsets, int classes) {
  cudaError_t result = PrepareSmallPass(offsets);
  if (result == cudaSuccess) result = PrepareConv();
  if (result == cudaSuccess) result = PrepareDense(classes);
  return result;
}

cudaError_t LaunchPass(const PassArguments& arguments, int multiprocessors, cudaStream_t stream) {
  if (!IsLarge(arguments.batch, multiprocessors)) return LaunchSmallPass(arguments, stream);
  cudaError_t result = LaunchConvForward(arguments, multiprocessors, stream);
  if (result == cudaSuccess) result = LaunchDense(arguments, multiprocessors, stream);
  if (result == cudaSuccess && arguments.backward) result = LaunchConvBackward(arguments, multiprocessors, stream);
  return result;
}

}  // namespace lenet::cuda::fused
