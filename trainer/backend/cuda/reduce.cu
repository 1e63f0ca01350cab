// Adds up rows of partial results, several sets in one launch.
#include "trainer/backend/cuda/kernels.h"

namespace lenet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxColumns = 32;

// Block (x, y) sums kMaxColumns columns of set y; a set of fewer columns gets more lanes for each.
__global__ void ReduceKernel(const Reduction* reductions, const Chunk* chunk) {
  const Reduction set = reductions[blockIdx.y];
  int columns = kMaxColumns;
  while (columns / 2 >= set.size) columns /= 2;
  const int first = blockIdx.x * columns;
  if (first >= set.size) return;
  const int lane = threadIdx.x / columns;
  const int column = first + threadIdx.x % columns;
  float sum = 0;
  if (column < set.size) {
    const float* from = set.partials + column;
#pragma unroll 8
    for (int row = lane; row < set.rows; row += kThreads / columns) sum += from[row * set.stride];
  }
  __shared__ float sums[kThreads];
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half >= columns; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (lane == 0 && column < set.size) {
    float* out = set.out + column;
    if (set.by_step) out += int64_t{chunk->next_step - 1} * set.size;
    *out = sums[threadIdx.x] * set.scale;
  }
}

}  // namespace

cudaError_t LaunchReduce(const Reduction* reductions, int count, int max_size, const Chunk* chunk,
                         cudaStream_t stream) {
  ReduceKernel<<<dim3((max_size + kMaxColumns - 1) / kMaxColumns, count), kThreads, 0, stream>>>(reductions, chunk);
  return cudaGetLastError();
}

}  // namespace lenet::cuda
