// The gradient of a convolution with few channels with respect to its filters and bias. A thread owns one row of the
// filters of V output channels and one input channel, and slides along rows of the output's gradient.
#include "trainer/backend/cuda/device_helpers.cuh"

namespace lenet::cuda {
namespace {

template <int K, int V>
__global__ void __launch_bounds__(256)
    FilterGradientKernel(ConvShape shape, FilterPlan plan, ConvGradient gradient, const float* x, float* partials) {
  extern __shared__ float4 shared[];
  float* planes = reinterpret_cast<float*>(shared);
  float* grads = planes + plan.x_floats;  // [pixel][channel], plan.g_pitch from pixel to pixel
  const int pixels = shape.out_height * shape.out_width;
  float* one = planes + plan.shared_bytes / sizeof(float) - 4;

  const int first = blockIdx.y * plan.groups * V;
  const int channels = min(plan.groups * V, shape.out_channels - first);
  const int taps = shape.in_channels * K + 1;
  const int row_group = threadIdx.x / plan.slots;
  const int slot = threadIdx.x - row_group * plan.slots;
  const int group = slot / taps;
  const int tap = slot - group * taps;
  const bool is_bias = tap == taps - 1;
  const int first_row = row_group * plan.rows_per_group;
  const int last_row = row_group < plan.row_groups ? min(first_row + plan.rows_per_group, shape.out_height) : 0;
  // The bias' input is a one wherever it looks.
  const float* input = is_bias ? one : planes + tap / K * plan.x_plane + tap % K * plan.x_pitch;
  const int step_x = is_bias ? 0 : 1;
  const int step_y = is_bias ? 0 : plan.x_pitch;

  float sum[V][K];
#pragma unroll
  for (int v = 0; v < V; ++v) {
#pragma unroll
    for (int k = 0; k < K; ++k) sum[v][k] = 0;
  }

  for (int i = threadIdx.x; i < plan.x_floats + pixels * plan.g_pitch; i += blockDim.x) planes[i] = 0;
  if (threadIdx.x == 0) *one = 1;
  __syncthreads();

  for (int n = blockIdx.x; n < shape.batch; n += gridDim.x) {
    const float* image = x + n * shape.in_size();
    Walk3 at(threadIdx.x, blockDim.x, shape.in_height, shape.in_width);
    for (int i = threadIdx.x; i < shape.in_channels * shape.in_height * shape.in_width; i += blockDim.x, at.Next()) {
      planes[at.a * plan.x_plane + (at.b + shape.padding) * plan.x_pitch + at.c + shape.padding] = image[i];
    }
    ForEachSumGradient(gradient, n, shape.out_channels, first, channels, [&](int c, int row, int column, float value) {
      grads[(row * shape.out_width + column) * plan.g_pitch + c] = value;
    });
    __syncthreads();
    for (int row = first_row; row < last_row; ++row) {
      const float* in = input + row * step_y;
      const float* grad = grads + row * shape.out_width * plan.g_pitch + group * V;
      float window[K];
#pragma unroll
      for (int k = 0; k < K - 1; ++k) window[k] = in[k * step_x];
      in += (K - 1) * step_x;
#pragma unroll K
      for (int column = 0; column < shape.out_width; ++column) {
        window[K - 1] = *in;
        float g[V];
        if constexpr (V == 4) {
          const float4 v = *reinterpret_cast<const float4*>(grad);
          g[0] = v.x, g[1] = v.y, g[2] = v.z, g[3] = v.w;
        } else {
          const float2 v = *reinterpret_cast<const float2*>(grad);
          g[0] = v.x, g[1] = v.y;
        }
#pragma unroll
        for (int v = 0; v < V; ++v) {
#pragma unroll
          for (int k = 0; k < K; ++k) sum[v][k] += g[v] * window[k];
        }
#pragma unroll
        for (int k = 0; k < K - 1; ++k) window[k] = window[k + 1];
        in += step_x;
        grad += plan.g_pitch;
      }
    }
    __syncthreads();
  }

  // The row groups' sums, one after the other; the planes are not needed any more.
  const int slot_sums = V * K;
  const int group_sums = plan.slots * slot_sums;
  if (row_group < plan.row_groups) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int k = 0; k < K; ++k) planes[row_group * group_sums + slot * slot_sums + v * K + k] = sum[v][k];
    }
  }
  __syncthreads();
  const int64_t weights = shape.weights();
  float* out = partials + blockIdx.x * (weights + shape.out_channels);
  for (int i = threadIdx.x; i < group_sums; i += blockDim.x) {
    float total = 0;
    for (int g = 0; g < plan.row_groups; ++g) total += planes[g * group_sums + i];
    const int of_slot = i / slot_sums;
    const int of_tap = of_slot % taps;
    const int v = i % slot_sums / K;
    const int k = i % K;
    const int channel = first + of_slot / taps * V + v;
    if (channel >= shape.out_channels) continue;
    if (of_tap < taps - 1) {
      out[(int64_t{channel} * (taps - 1) + of_tap) * K + k] = total;
    } else if (k == 0) {
      out[weights + channel] = total;
    }
  }
}

}  // namespace

cudaError_t LaunchConvFilterGradient(const ConvShape& shape, const FilterPlan& plan, const ConvGradient& gradient,
                                     const float* x, float* partials, cudaStream_t stream) {
  auto* kernel = shape.kernel == 3 ? (plan.vector == 4 ? FilterGradientKernel<3, 4> : FilterGradientKernel<3, 2>)
                                   : (plan.vector == 4 ? FilterGradientKernel<5, 4> : FilterGradientKernel<5, 2>);
  kernel<<<dim3(plan.blocks, plan.chunks), plan.threads, plan.shared_bytes, stream>>>(shape, plan, gradient, x,
                                                                                      partials);
  return cudaGetLastError();
}

}  // namespace lenet::cuda
