// The linear layers and the loss of a large batch, from pool2 and back to its gradient: eight images at once a block,
// as products on the tensor cores whose columns are the images.
#include <cuda_pipeline.h>

#include <algorithm>
#include <cstddef>

#include "trainer/backend/cuda/fused_kernels.h"
#include "trainer/backend/cuda/fused_softmax.cuh"
#include "trainer/backend/cuda/image_source.cuh"
#include "trainer/backend/cuda/launch_early.cuh"
#include "trainer/backend/cuda/tensor_core.cuh"

namespace lenet::cuda::fused {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarp;
constexpr int kImages = 8;

// Lengths of rows, in floats: for what lanes read four at a time 16 more than a multiple of 32, for single ones 4, so
// that rows begin in different banks. Weights of the other layers have no room for that.
constexpr int kWeight1Pitch = kFeatures0 + 16;
constexpr int kHidden1Pitch = 144;
constexpr int kHidden2Pitch = 112;
constexpr int kGradient1Pitch = 132;
constexpr int kGradient2Pitch = 100;
constexpr int kGradient3Pitch = 68;
constexpr int kPartialPitch = 132;

using Partials = float[2][kImages][kPartialPitch];  // sums of products whose inner dimension two warps share

// Values that a product takes beyond a layer's last are zero, and so their weights, if finite, do not count.
struct Shared {
  float pool2[kImages][kWeight1Pitch];
  float hidden1[kImages][kHidden1Pitch];
  float hidden2[kImages][kHidden2Pitch];
  float gradient1[kImages][kGradient1Pitch];  // of hidden1's sums, and so on
  float gradient2[kImages][kGradient2Pitch];
  float gradient3[kImages][kGradient3Pitch];
  Partials partials;
  float weight1[kFeatures1][kWeight1Pitch];
  float weight2[kFeatures2][kFeatures1];
  float bias1[kFeatures1];
  float bias2[kFeatures2];
  float bias3[kMaxClasses];
  // Followed by the last layer's weights [classes][kFeatures2], and kBeyond floats that count as little.
};
constexpr int kBeyond = 16;

// A product's sums, and those of its products with small parts, see SplitTf32. The former take few products at a time,
// as long sums lose bits on the tensor cores.
struct Sums {
  float big[4] = {};
  float small[4] = {};

  __device__ __forceinline__ void Add(const float (&a)[4], const float (&b)[2]) {
    uint32_t a_big[4], a_small[4], b_big[2], b_small[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) SplitTf32(a[i], a_big[i], a_small[i]);
#pragma unroll
    for (int i = 0; i < 2; ++i) SplitTf32(b[i], b_big[i], b_small[i]);
    float products[4] = {};
    AddProductTf32(small, a_small, b_big);
    AddProductTf32(products, a_big, b_big);
    AddProductTf32(small, a_big, b_small);
#pragma unroll
    for (int i = 0; i < 4; ++i) big[i] += products[i];
  }
  __device__ __forceinline__ float operator[](int i) const { return big[i] + small[i]; }
};

// Lines are 16 outputs, of which `weights0` and `weights8` are those of this lane's row and 8 rows on; the inner
// dimension kSteps * 16 inputs from theirs and from the image's `inputs` on, of which a lane takes four neighbours.
template <int kSteps>
__device__ __forceinline__ void Product(const float* weights0, const float* weights8, const float* inputs, Sums& sums) {
  const int column = Lane() % 4;
#pragma unroll 2
  for (int step = 0; step < kSteps; ++step) {
    const int at = 16 * step + 4 * column;
    const float4 w0 = Load4(weights0 + at);
    const float4 w8 = Load4(weights8 + at);
    const float4 x = Load4(inputs + at);
    sums.Add({w0.x, w8.x, w0.y, w8.y}, {x.x, x.y});
    sums.Add({w0.z, w8.z, w0.w, w8.w}, {x.z, x.w});
  }
}

// Lines are 16 inputs, from this lane's row's on at `weights` [outputs][kPitch]; the inner dimension the outputs from
// `first` on in `steps` steps of eight, whose gradients of this lane's image are at `gradients`.
template <int kPitch>
__device__ __forceinline__ void ProductBackward(const float* weights, int outputs, int first, int steps,
                                                const float* gradients, Sums& sums) {
  const int column = Lane() % 4;
#pragma unroll 2
  for (int step = 0; step < steps; ++step) {
    const int o = first + 8 * step + column;
    const float* const w0 = weights + min(o, outputs - 1) * kPitch;
    const float* const w4 = weights + min(o + 4, outputs - 1) * kPitch;
    sums.Add({w0[0], w0[8], w4[0], w4[8]}, {gradients[o], gradients[o + 4]});
  }
}

// store(image, line, value) for what this lane has of 16 lines from `first` on, below `count`.
template <typename Store>
__device__ __forceinline__ void ForEach(const Sums& sums, int first, int count, const Store& store) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int line = first + Lane() / 4 + i / 2 * 8;
    if (line < count) store(Lane() % 4 * 2 + i % 2, line, sums[i]);
  }
}

__device__ __forceinline__ void StorePartial(const Sums& sums, int tile, int count, int half, Partials& partials) {
  ForEach(sums, tile, count, [&](int image, int line, float v) { partials[half][image][line] = v; });
}

// The sums of a layer of at most kMaxOut outputs, without the bias: partials. weights: [outputs][pitch].
template <int kIn, int kMaxOut>
__device__ __forceinline__ void LayerSums(const float* weights, int pitch, int outputs, const float* inputs,
                                          Partials& partials) {
  constexpr int kTiles = (kMaxOut + 15) / 16;
  constexpr int kSteps = (kIn + 31) / 32;  // of half the inputs, rounded up
  static_assert(2 * kTiles <= kWarps);
  const int tile = WarpIndex() % kTiles * 16;
  const int half = WarpIndex() / kTiles;
  if ((2 * kTiles < kWarps && half >= 2) || tile >= outputs) return;
  const auto row = [&](int o) { return weights + min(o, outputs - 1) * pitch + half * kSteps * 16; };
  const int o = tile + Lane() / 4;
  Sums sums;
  Product<kSteps>(row(o), row(o + 8), inputs + half * kSteps * 16, sums);
  StorePartial(sums, tile, outputs, half, partials);
}

// Calls store(image, output, sum) for the kOut outputs of all images.
template <int kOut, typename Store>
__device__ __forceinline__ void AddPartials(const Partials& partials, const Store& store) {
  for (int i = Thread(); i < kImages * kOut; i += kThreads) {
    const int image = i / kOut;
    const int o = i % kOut;
    store(image, o, partials[0][image][o] + partials[1][image][o]);
  }
}

template <bool kBackward>
__global__ void __launch_bounds__(kThreads, 1) DenseKernel(const __grid_constant__ PassArguments a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  float* const weight3 = reinterpret_cast<float*>(memory + sizeof(Shared));
  const int row = Lane() / 4;
  const int warp = WarpIndex();
  // What is beyond the layers' last.
  for (int i = Thread(); i < static_cast<int>(offsetof(Shared, partials) / sizeof(float)); i += kThreads) {
    reinterpret_cast<float*>(memory)[i] = 0;
  }
  if (Thread() < kBeyond) weight3[a.classes * kFeatures2 + Thread()] = 0;
  // Before the wait: the convolutions' kernel, which this may overlap, has itself waited for the update.
  {
    const auto copy = [](float* to, const float* from) { __pipeline_memcpy_async(to, from, 16); };
    const float* const p = a.parameters;
    constexpr int kQuads = kFeatures0 / 4;
#pragma unroll
    for (int i = 0; i < kFeatures1 * kQuads / kThreads; ++i) {
      constexpr int kRows = kThreads / kQuads;
      const int at = Thread() % kQuads * 4;
      const int o = i * kRows + Thread() / kQuads;
      copy(&s.weight1[o][at], p + a.offsets.fc1_weight + o * kFeatures0 + at);
    }
    for (int i = Thread(); i < kFeatures2 * kFeatures1 / 4; i += kThreads) {
      copy(&s.weight2[0][4 * i], p + a.offsets.fc2_weight + 4 * i);
    }
    for (int i = Thread(); i < a.classes * kFeatures2 / 4; i += kThreads) {
      copy(weight3 + 4 * i, p + a.offsets.fc3_weight + 4 * i);
    }
    if (Thread() < kFeatures1 / 4) copy(s.bias1 + 4 * Thread(), p + a.offsets.fc1_bias + 4 * Thread());
    if (Thread() < kFeatures2 / 4) copy(s.bias2 + 4 * Thread(), p + a.offsets.fc2_bias + 4 * Thread());
    if (Thread() < a.classes) __pipeline_memcpy_async(s.bias3 + Thread(), p + a.offsets.fc3_bias + Thread(), 4);
    __pipeline_commit();
  }
  AwaitPrevious();
  LetNextStart();
  __syncthreads();
  const ImageIndex index_of(a.source, a.batch);
  const int stride = static_cast<int>(gridDim.x) * kImages;
#pragma unroll 1
  for (int first = static_cast<int>(blockIdx.x) * kImages; first < a.batch; first += stride) {
    // Unit i of a hidden layer and of image g, and its sum's gradient; `at`: the layer's place in the image's rows.
    const auto store_hidden = [&](int g, int i, float sum, float* hidden, int at) {
      const float v = Relu(sum);
      hidden[i] = v;
      if (kBackward && first + g < a.batch) a.inputs[int64_t{first + g} * kInputRow + at + i] = v;
    };
    const auto store_gradient = [&](int g, int i, float gradient, const float* hidden, float* to, int at) {
      const float v = hidden[i] <= 0 ? 0.0f : gradient;
      to[i] = v;
      if (first + g < a.batch) a.gradients[int64_t{first + g} * kGradientRow + at + i] = v;
    };
    {
      constexpr int kQuads = kFeatures0 / 4;
      static_assert(kImages * kQuads == kThreads);
      const int b = first + Thread() / kQuads;
      const int at = Thread() % kQuads * 4;
      float4 x = make_float4(0, 0, 0, 0);
      if (b < a.batch) x = Load4(a.inputs + int64_t{b} * kInputRow + at);
      Store4(&s.pool2[Thread() / kQuads][at], x);
    }
    // Of the image whose loss this warp finds.
    const int b = first + warp;
    const bool valid = warp < kImages && b < a.batch;
    const int label = valid ? a.set.labels[index_of(b)] : 0;
    __pipeline_wait_prior(0);
    __syncthreads();
    LayerSums<kFeatures0, kFeatures1>(s.weight1[0], kWeight1Pitch, kFeatures1, s.pool2[row], s.partials);
    __syncthreads();
    AddPartials<kFeatures1>(
        s.partials, [&](int g, int o, float sum) { store_hidden(g, o, sum + s.bias1[o], s.hidden1[g], kFeatures0); });
    __syncthreads();
    LayerSums<kFeatures1, kFeatures2>(s.weight2[0], kFeatures1, kFeatures2, s.hidden1[row], s.partials);
    __syncthreads();
    AddPartials<kFeatures2>(s.partials, [&](int g, int o, float sum) {
      store_hidden(g, o, sum + s.bias2[o], s.hidden2[g], kFeatures0 + kFeatures1);
    });
    __syncthreads();
    LayerSums<kFeatures2, kMaxClasses>(weight3, kFeatures2, a.classes, s.hidden2[row], s.partials);
    __syncthreads();
    if (warp < kImages) {
      float* const logits = s.partials[0][warp];
      for (int c = Lane(); c < a.classes; c += kWarp) logits[c] += s.partials[1][warp][c] + s.bias3[c];
      __syncwarp();
      const Softmax softmax = FindSoftmax(logits, a.classes);
      if (kBackward) {
        const LogitsGradient gradient = {softmax, label, valid ? a.scale : 0};
        for (int c = Lane(); c < kMaxClasses; c += kWarp) {
          const float v = gradient(logits, c, a.classes);
          s.gradient3[warp][c] = v;
          if (valid) a.gradients[int64_t{b} * kGradientRow + kFeatures1 + kFeatures2 + c] = v;
        }
      }
      if (valid) StoreResults(a.results, b, a.classes, logits, label, softmax);
    }
    __syncthreads();
    if constexpr (kBackward) {
      if (warp < 6) {
        const int tile = warp * 16;
        Sums sums;
        ProductBackward<kFeatures2>(weight3 + tile + row, a.classes, 0, (a.classes + 7) / 8, s.gradient3[row], sums);
        ForEach(sums, tile, kFeatures2,
                [&](int g, int i, float v) { store_gradient(g, i, v, s.hidden2[g], s.gradient2[g], kFeatures1); });
      }
      __syncthreads();
      {
        const int tile = warp % 8 * 16;
        const int half = warp / 8;
        Sums sums;
        ProductBackward<kFeatures1>(s.weight2[0] + tile + row, kFeatures2, half * 48, half == 0 ? 6 : 5,
                                    s.gradient2[row], sums);
        StorePartial(sums, tile, kFeatures1, half, s.partials);
      }
      __syncthreads();
      AddPartials<kFeatures1>(
          s.partials, [&](int g, int i, float sum) { store_gradient(g, i, sum, s.hidden1[g], s.gradient1[g], 0); });
      __syncthreads();
      {
        const int tile = warp * 16;
        Sums sums;
        ProductBackward<kWeight1Pitch>(s.weight1[0] + tile + row, kFeatures1, 0, kFeatures1 / 8, s.gradient1[row],
                                       sums);
        ForEach(sums, tile, kFeatures0, [&](int g, int i, float v) {
          if (first + g < a.batch) {
            a.pool2_gradients[int64_t{first + g} * kFeatures0 + i] = s.pool2[g][i] <= 0 ? 0.0f : v;
          }
        });
      }
      __syncthreads();
    }
  }
#endif
}

}  // namespace

int SharedBytesOfDense(int classes) {
  return static_cast<int>(sizeof(Shared) + sizeof(float) * (classes * kFeatures2 + kBeyond));
}

cudaError_t PrepareDense(int classes) {
  const int bytes = SharedBytesOfDense(classes);
  const cudaError_t result =
      cudaFuncSetAttribute(DenseKernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (result != cudaSuccess) return result;
  return cudaFuncSetAttribute(DenseKernel<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

cudaError_t LaunchDense(const PassArguments& arguments, int multiprocessors, cudaStream_t stream) {
  const int groups = (arguments.batch + kImages - 1) / kImages;
  return LaunchEarly(arguments.backward ? DenseKernel<true> : DenseKernel<false>, std::min(groups, multiprocessors),
                     kThreads, SharedBytesOfDense(arguments.classes), stream, arguments);
}

}  // namespace lenet::cuda::fused
