// Bias and activation on the way forward, and both on the way back: the gradient before the activation and its sums by
// channel, the bias' gradient, as partial sums over runs of images.
#include "trainer/backend/cuda/device_helpers.cuh"

namespace lenet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kImagesPerRow = 128;
constexpr int kColumns = 32;  // of a block of ColumnGradientKernel
constexpr int kLanes = kThreads / kColumns;

__global__ void BiasActivationKernel(float* y, const float* bias, int64_t count, int channels, int inner,
                                     Activation activation) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    y[i] = Activate(activation, y[i] + bias[i / inner % channels]);
  }
}

__global__ void ChannelGradientKernel(float* dy, const float* y, int batch, int channels, int inner,
                                      Activation activation, float* partials) {
  const int channel = blockIdx.x;
  const int first = blockIdx.y * kImagesPerRow;
  const int images = min(kImagesPerRow, batch - first);
  float sum = 0;
  Walk3 at(threadIdx.x, blockDim.x, images, inner);
  for (; at.a == 0; at.Next()) {
    const int64_t place = ((int64_t{first} + at.b) * channels + channel) * inner + at.c;
    const float g = ActivationGradient(activation, dy[place], y[place]);
    if (activation != Activation::kNone) dy[place] = g;
    sum += g;
  }
  __shared__ float sums[kThreads];
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) partials[int64_t{blockIdx.y} * channels + channel] = sums[0];
}

__global__ void ColumnGradientKernel(float* dy, const float* y, int batch, int columns, Activation activation,
                                     float* partials) {
  const int lane = threadIdx.x / kColumns;
  const int column = blockIdx.x * kColumns + threadIdx.x % kColumns;
  const int first = blockIdx.y * kImagesPerRow;
  const int last = min(first + kImagesPerRow, batch);
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int row = first + lane; row < last; row += kLanes) {
      const int64_t place = int64_t{row} * columns + column;
      const float g = ActivationGradient(activation, dy[place], y[place]);
      if (activation != Activation::kNone) dy[place] = g;
      sum += g;
    }
  }
  __shared__ float sums[kThreads];
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half >= kColumns; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (lane == 0 && column < columns) partials[int64_t{blockIdx.y} * columns + column] = sums[threadIdx.x];
}

}  // namespace

cudaError_t LaunchBiasActivation(float* y, const float* bias, int64_t batch, int channels, int inner,
                                 Activation activation, cudaStream_t stream) {
  const int64_t count = batch * channels * inner;
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  BiasActivationKernel<<<static_cast<unsigned>(blocks < 4096 ? blocks : 4096), kThreads, 0, stream>>>(
      y, bias, count, channels, inner, activation);
  return cudaGetLastError();
}

int BiasPartialRows(int batch) { return (batch + kImagesPerRow - 1) / kImagesPerRow; }

cudaError_t LaunchChannelGradient(float* dy, const float* y, int batch, int channels, int inner, Activation activation,
                                  float* partials, cudaStream_t stream) {
  ChannelGradientKernel<<<dim3(channels, BiasPartialRows(batch)), kThreads, 0, stream>>>(dy, y, batch, channels, inner,
                                                                                         activation, partials);
  return cudaGetLastError();
}

cudaError_t LaunchColumnGradient(float* dy, const float* y, int batch, int columns, Activation activation,
                                 float* partials, cudaStream_t stream) {
  const dim3 grid((columns + kColumns - 1) / kColumns, BiasPartialRows(batch));
  ColumnGradientKernel<<<grid, kThreads, 0, stream>>>(dy, y, batch, columns, activation, partials);
  return cudaGetLastError();
}

}  // namespace lenet::cuda
