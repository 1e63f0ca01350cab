// Convolution with few channels: each thread computes a 2x2 tile of outputs for a vector of channels from planes and
// weights in shared memory. The gradient with respect to the input is the same sum over the padded gradient of the
// output with the filters turned by half a turn.
#include "trainer/backend/cuda/device_helpers.cuh"

namespace lenet::cuda {
namespace {

// Weights in shared memory: [group][channel][tap][V].
template <int V>
__device__ int WeightPlace(int output, int row, int rows) {
  return ((output / V) * rows + row) * V + output % V;
}

template <int N>
__device__ void LoadPairs(const float* from, float (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const float2 v = *reinterpret_cast<const float2*>(from + i);
    to[i] = v.x;
    to[i + 1] = v.y;
  }
}

template <int V>
__device__ void LoadVector(const float* from, float (&to)[V]) {
  if constexpr (V == 4) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
  } else {
    LoadPairs(from, to);
  }
}

// sum[2 * dy + dx][v] = the tile's outputs. `plane` points at the tile's first input of channel 0, `weights` at its
// group's.
template <int K, int V>
__device__ void SumTile(const TilePlan& plan, const float* plane, const float* weights, float (&sum)[4][V]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int v = 0; v < V; ++v) sum[i][v] = 0;
  }
  for (int channel = 0; channel < plan.channels; ++channel) {
    float upper[K + 1];
    LoadPairs(plane, upper);
#pragma unroll
    for (int ky = 0; ky < K; ++ky) {
      float lower[K + 1];
      LoadPairs(plane + (ky + 1) * plan.pitch, lower);
#pragma unroll
      for (int kx = 0; kx < K; ++kx) {
        float w[V];
        LoadVector(weights + (ky * K + kx) * V, w);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          sum[0][v] += upper[kx] * w[v];
          sum[1][v] += upper[kx + 1] * w[v];
          sum[2][v] += lower[kx] * w[v];
          sum[3][v] += lower[kx + 1] * w[v];
        }
      }
#pragma unroll
      for (int i = 0; i <= K; ++i) upper[i] = lower[i];
    }
    plane += plan.plane;
    weights += K * K * V;
  }
}

__device__ void LoadImage(const ConvShape& shape, const TilePlan& plan, const float* image, float* planes) {
  const int height = shape.in_height;
  const int width = shape.in_width;
  const int padding = shape.padding;
  if (width % 2 == 0 && padding % 2 == 0) {
    const float2* pairs = reinterpret_cast<const float2*>(image);
    Walk3 at(threadIdx.x, blockDim.x, height, width / 2);
    for (int i = threadIdx.x; i < shape.in_channels * height * (width / 2); i += blockDim.x, at.Next()) {
      float* place = planes + at.a * plan.plane + (at.b + padding) * plan.pitch + 2 * at.c + padding;
      *reinterpret_cast<float2*>(place) = pairs[i];
    }
  } else {
    Walk3 at(threadIdx.x, blockDim.x, height, width);
    for (int i = threadIdx.x; i < shape.in_channels * height * width; i += blockDim.x, at.Next()) {
      planes[at.a * plan.plane + (at.b + padding) * plan.pitch + at.c + padding] = image[i];
    }
  }
}

__device__ void Clear(float* from, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) from[i] = 0;
}

template <int K, int V>
__global__ void __launch_bounds__(512)
    ForwardKernel(ConvShape shape, TilePlan plan, const float* x, const float* weight, const float* bias,
                  Activation activation, bool pooled, float* y, uint8_t* winner) {
  extern __shared__ float4 shared[];
  float* planes = reinterpret_cast<float*>(shared);
  float* weights = planes + plan.input_floats;
  const int first = blockIdx.y * plan.groups * V;
  const int rows = shape.in_channels * K * K;
  {
    Walk3 at(threadIdx.x, blockDim.x, plan.groups * V, rows);
    for (int i = threadIdx.x; i < plan.groups * V * rows; i += blockDim.x, at.Next()) {
      const int output = first + at.b;
      weights[WeightPlace<V>(at.b, at.c, rows)] =
          output < shape.out_channels ? weight[int64_t{output} * rows + at.c] : 0.0f;
    }
  }
  if (plan.zero_fill) {
    Clear(planes, plan.input_floats);
    __syncthreads();
  }
  const int tiles = plan.tiles_y * plan.tiles_x;
  for (int n = blockIdx.x; n < shape.batch; n += gridDim.x) {
    LoadImage(shape, plan, x + n * shape.in_size(), planes);
    __syncthreads();
    for (int item = threadIdx.x; item < tiles * plan.groups; item += blockDim.x) {
      const int group = item / tiles;
      const int tile = item - group * tiles;
      const int tile_y = tile / plan.tiles_x;
      const int tile_x = tile - tile_y * plan.tiles_x;
      float sum[4][V];
      SumTile<K, V>(plan, planes + 2 * tile_y * plan.pitch + 2 * tile_x, weights + group * rows * V, sum);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const int channel = first + group * V + v;
        if (channel >= shape.out_channels) break;
        const float b = bias[channel];
        const int64_t image_channel = int64_t{n} * shape.out_channels + channel;
        if (pooled) {
          float best = sum[0][v];
          int place = 0;
#pragma unroll
          for (int k = 1; k < 4; ++k) {
            if (sum[k][v] > best || isnan(sum[k][v])) {
              best = sum[k][v];
              place = k;
            }
          }
          // Every activation rises with its input, so it may come after the maximum.
          const int64_t at = image_channel * tiles + tile;
          y[at] = Activate(activation, best + b);
          if (winner != nullptr) winner[at] = static_cast<uint8_t>(place);
        } else {
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const int out_y = 2 * tile_y + k / 2;
            const int out_x = 2 * tile_x + k % 2;
            if (out_y < shape.out_height && out_x < shape.out_width) {
              y[(image_channel * shape.out_height + out_y) * shape.out_width + out_x] =
                  Activate(activation, sum[k][v] + b);
            }
          }
        }
      }
    }
    __syncthreads();
  }
}

template <int K, int V>
__global__ void __launch_bounds__(512)
    DataGradientKernel(ConvShape shape, TilePlan plan, ConvGradient gradient, const float* weight, float* dx) {
  extern __shared__ float4 shared[];
  float* planes = reinterpret_cast<float*>(shared);
  float* weights = planes + plan.input_floats;
  const int first = blockIdx.y * plan.groups * V;
  const int rows = shape.out_channels * K * K;
  {
    Walk3 at(threadIdx.x, blockDim.x, plan.groups * V, K * K);
    for (int i = threadIdx.x; i < plan.groups * V * rows; i += blockDim.x, at.Next()) {
      const int input = first + at.b;
      weights[WeightPlace<V>(at.b, at.a * K * K + K * K - 1 - at.c, rows)] =
          input < shape.in_channels ? weight[(int64_t{at.a} * shape.in_channels + input) * K * K + at.c] : 0.0f;
    }
  }
  Clear(planes, plan.input_floats);
  __syncthreads();
  const int border = K - 1 - shape.padding;
  const int tiles = plan.tiles_y * plan.tiles_x;
  for (int n = blockIdx.x; n < shape.batch; n += gridDim.x) {
    ForEachSumGradient(gradient, n, shape.out_channels, 0, shape.out_channels, [&](int c, int y, int x, float value) {
      planes[c * plan.plane + (y + border) * plan.pitch + x + border] = value;
    });
    __syncthreads();
    for (int item = threadIdx.x; item < tiles * plan.groups; item += blockDim.x) {
      const int group = item / tiles;
      const int tile = item - group * tiles;
      const int tile_y = tile / plan.tiles_x;
      const int tile_x = tile - tile_y * plan.tiles_x;
      float sum[4][V];
      SumTile<K, V>(plan, planes + 2 * tile_y * plan.pitch + 2 * tile_x, weights + group * rows * V, sum);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const int channel = first + group * V + v;
        if (channel >= shape.in_channels) break;
        const int64_t image_channel = int64_t{n} * shape.in_channels + channel;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int in_y = 2 * tile_y + k / 2;
          const int in_x = 2 * tile_x + k % 2;
          if (in_y < shape.in_height && in_x < shape.in_width) {
            dx[(image_channel * shape.in_height + in_y) * shape.in_width + in_x] = sum[k][v];
          }
        }
      }
    }
    __syncthreads();
  }
}

dim3 Grid(const ConvShape& shape, const TilePlan& plan) {
  return dim3((shape.batch + plan.images_per_block - 1) / plan.images_per_block, plan.chunks);
}

}  // namespace

cudaError_t LaunchConvForward(const ConvShape& shape, const TilePlan& plan, const float* x, const float* weight,
                              const float* bias, Activation activation, bool pooled, float* y, uint8_t* winner,
                              cudaStream_t stream) {
  auto* kernel = shape.kernel == 3 ? (plan.vector == 4 ? ForwardKernel<3, 4> : ForwardKernel<3, 2>)
                                   : (plan.vector == 4 ? ForwardKernel<5, 4> : ForwardKernel<5, 2>);
  kernel<<<Grid(shape, plan), plan.threads, plan.shared_bytes, stream>>>(shape, plan, x, weight, bias, activation,
                                                                         pooled, y, winner);
  return cudaGetLastError();
}

cudaError_t LaunchConvDataGradient(const ConvShape& shape, const TilePlan& plan, const ConvGradient& gradient,
                                   const float* weight, float* dx, cudaStream_t stream) {
  auto* kernel = shape.kernel == 3 ? (plan.vector == 4 ? DataGradientKernel<3, 4> : DataGradientKernel<3, 2>)
                                   : (plan.vector == 4 ? DataGradientKernel<5, 4> : DataGradientKernel<5, 2>);
  kernel<<<Grid(shape, plan), plan.threads, plan.shared_bytes, stream>>>(shape, plan, gradient, weight, dx);
  return cudaGetLastError();
}

}  // namespace lenet::cuda
