// The gradient from what the pass over the batch left: products over the batch for the linear layers, sums over blocks
// for the convolutions. Every sum has a fixed order: where several blocks share a tile, each with a slice of the batch,
// the last one to arrive adds up their sums in the order of the slices.
#include "trainer/backend/cuda/block_sum.cuh"
#include "trainer/backend/cuda/fused_lenet.h"
#include "trainer/backend/cuda/launch_early.cuh"

namespace lenet::cuda::fused {
namespace {

constexpr int kThreads = 512;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;

// A block of a linear layer's weights.
constexpr int kTileOutputs = 8;
constexpr int kTileInputs = 64;
constexpr int kTile = kTileOutputs * kTileInputs;
static_assert(kTile == kThreads);

// A block of the convolutions' parameters.
constexpr int kColumns = 64;
constexpr int kColumnLanes = kThreads / kColumns;
constexpr int kConvBlocks = (kConvPartials + kColumns - 1) / kColumns;

__host__ __device__ constexpr int Tiles(int outputs, int inputs) {
  return (outputs + kTileOutputs - 1) / kTileOutputs * ((inputs + kTileInputs - 1) / kTileInputs);
}
constexpr int kTiles1 = Tiles(kFeatures1, kFeatures0);
constexpr int kTiles2 = Tiles(kFeatures2, kFeatures1);

__shared__ __align__(16) float memory[kWarps * kTile + kWarps * kTileOutputs];

// Blocks that share a tile of a linear layer: enough to keep the device busy, while a warp still has some images.
__host__ __device__ constexpr int Slices(int batch) {
  return batch <= 256 ? 1 : batch <= 1024 ? 2 : batch <= 2048 ? 4 : 8;
}
// A tile's sums, and those of its biases behind it.
constexpr int kSlice = kTile + kTileOutputs;

struct LinearLayer {
  int outputs, inputs;
  int gradient_column, input_column;  // in the rows that the pass has left
  int weight, bias;                   // offsets
};

// Whether this block is the last of its tile to come here.
__device__ bool IsLast(uint32_t* arrivals, int slices) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrivals, 1u) == static_cast<uint32_t>(slices) - 1;
    if (last) *arrivals = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

// Whether this block wrote the tile; then *square is that of what this thread wrote. A warp takes every 16th image of
// its slice; a
// lane has 4 x 4 weights.
__device__ bool LinearTile(const GradientArguments& a, const LinearLayer& layer, int tile, double* square) {
  const int slices = gridDim.y;
  const int slice = blockIdx.y;
  const int tiles_across = (layer.inputs + kTileInputs - 1) / kTileInputs;
  const int first_output = tile / tiles_across * kTileOutputs;
  const int first_input = tile % tiles_across * kTileInputs;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int output = first_output + lane / 16 * 4;
  const int input = first_input + lane % 16 * 4;
  float sums[4][4] = {};
  float bias_sums[4] = {};
  // Rows have zeros, or other layers' values that are not used, beyond the outputs.
  const int first = slice * kWarps + warp;
  const int stride = slices * kWarps;
  const float* gradients = a.gradients + int64_t{first} * kGradientRow + layer.gradient_column + output;
  const float* inputs = a.inputs + int64_t{first} * kInputRow + layer.input_column + (input < layer.inputs ? input : 0);
#pragma unroll 4
  for (int b = first; b < a.batch; b += stride) {
    const float4 d = *reinterpret_cast<const float4*>(gradients);
    const float4 x = *reinterpret_cast<const float4*>(inputs);
    gradients += stride * kGradientRow;
    inputs += stride * kInputRow;
    const float ds[4] = {d.x, d.y, d.z, d.w};
    const float xs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int o = 0; o < 4; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[o][i] += ds[o] * xs[i];
      bias_sums[o] += ds[o];
    }
  }
  float* const of_bias = memory + kWarps * kTile;  // [kWarps][kTileOutputs]
#pragma unroll
  for (int o = 0; o < 4; ++o) {
    float* const row = memory + warp * kTile + (lane / 16 * 4 + o) * kTileInputs + lane % 16 * 4;
    *reinterpret_cast<float4*>(row) = make_float4(sums[o][0], sums[o][1], sums[o][2], sums[o][3]);
    if (lane % 16 == 0) of_bias[warp * kTileOutputs + lane / 16 * 4 + o] = bias_sums[o];
  }
  __syncthreads();
  float sum = 0;
  float bias_sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += memory[w * kTile + threadIdx.x];
  const bool has_bias = first_input == 0 && threadIdx.x < kTileOutputs;
  if (has_bias) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) bias_sum += of_bias[w * kTileOutputs + threadIdx.x];
  }
  if (slices > 1) {
    float* const partials = a.partials + int64_t{blockIdx.x} * slices * kSlice;
    partials[slice * kSlice + threadIdx.x] = sum;
    if (has_bias) partials[slice * kSlice + kTile + threadIdx.x] = bias_sum;
    if (!IsLast(a.arrivals + blockIdx.x, slices)) return false;
    sum = 0;
    bias_sum = 0;
    for (int other = 0; other < slices; ++other) {
      sum += partials[other * kSlice + threadIdx.x];
      if (has_bias) bias_sum += partials[other * kSlice + kTile + threadIdx.x];
    }
  }
  const int o = first_output + threadIdx.x / kTileInputs;
  const int i = first_input + threadIdx.x % kTileInputs;
  if (o < layer.outputs && i < layer.inputs) {
    a.gradient[layer.weight + o * layer.inputs + i] = sum;
    *square = double{sum} * sum;
  }
  if (has_bias && first_output + threadIdx.x < layer.outputs) {
    a.gradient[layer.bias + first_output + threadIdx.x] = bias_sum;
    *square += double{bias_sum} * bias_sum;
  }
  return true;
}

__device__ double ConvColumns(const GradientArguments& a, int block) {
  const int column = block * kColumns + threadIdx.x % kColumns;
  float sum = 0;
  if (column < kConvPartials) {
    const float* from = a.conv_partials + column;
#pragma unroll 8
    for (int row = threadIdx.x / kColumns; row < a.blocks; row += kColumnLanes) {
      sum += from[int64_t{row} * kConvPartials];
    }
  }
  memory[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= kColumns || column >= kConvPartials) return 0;
  for (int lane = 1; lane < kColumnLanes; ++lane) sum += memory[lane * kColumns + threadIdx.x];
  int at = column;
  if (column < kWeights2) {
    at += a.offsets.conv2_weight;
  } else if (column < kWeights2 + kWeights1) {
    at += a.offsets.conv1_weight - kWeights2;
  } else if (column < kWeights2 + kWeights1 + kMaps2) {
    at += a.offsets.conv2_bias - kWeights2 - kWeights1;
  } else {
    at += a.offsets.conv1_bias - kWeights2 - kWeights1 - kMaps2;
  }
  a.gradient[at] = sum;
  return double{sum} * sum;
}

__device__ void StepLoss(const GradientArguments& a) {
  float sum = 0;
  for (int b = threadIdx.x; b < a.batch; b += kThreads) sum += a.losses[b];
  memory[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) memory[threadIdx.x] += memory[threadIdx.x + half];
  }
  if (threadIdx.x == 0) {
    a.step_losses[a.chunk->next_step] = memory[0] * (1.0f / static_cast<float>(a.batch));
    ++a.chunk->next_step;
  }
}

__global__ void __launch_bounds__(kThreads) GradientKernel(const __grid_constant__ GradientArguments a) {
  const LinearLayer fc1 = {kFeatures1, kFeatures0, 0, 0, a.offsets.fc1_weight, a.offsets.fc1_bias};
  const LinearLayer fc2 = {kFeatures2, kFeatures1, kFeatures1, kFeatures0, a.offsets.fc2_weight, a.offsets.fc2_bias};
  const LinearLayer fc3 = {
      a.classes,         kFeatures2, kFeatures1 + kFeatures2, kFeatures0 + kFeatures1, a.offsets.fc3_weight,
      a.offsets.fc3_bias};
  AwaitPrevious();
  LetNextStart();
  int block = blockIdx.x;
  double square = 0;
  bool wrote = blockIdx.y == 0;
  if (block < kTiles1) {
    wrote = LinearTile(a, fc1, block, &square);
  } else if ((block -= kTiles1) < kTiles2) {
    wrote = LinearTile(a, fc2, block, &square);
  } else if ((block -= kTiles2) < Tiles(a.classes, kFeatures2)) {
    wrote = LinearTile(a, fc3, block, &square);
  } else if (wrote && (block -= Tiles(a.classes, kFeatures2)) < kConvBlocks) {
    square = ConvColumns(a, block);
  } else if (wrote && a.chunk != nullptr) {
    StepLoss(a);
  }
  if (wrote && a.norm_partials != nullptr) {
    square = BlockSum<kThreads>(square);
    if (threadIdx.x == 0) a.norm_partials[blockIdx.x] = square;
  }
}

}  // namespace

int GradientBlocks(int classes) { return kTiles1 + kTiles2 + Tiles(classes, kFeatures2) + kConvBlocks + 1; }

int64_t GradientPartials(int batch, int classes) {
  const int tiles = kTiles1 + kTiles2 + Tiles(classes, kFeatures2);
  return Slices(batch) == 1 ? 0 : int64_t{tiles} * Slices(batch) * kSlice;
}

cudaError_t LaunchGradient(const GradientArguments& arguments, cudaStream_t stream) {
  const dim3 grid(GradientBlocks(arguments.classes), Slices(arguments.batch));
  return LaunchEarly(GradientKernel, grid, kThreads, 0, stream, arguments);
}

}  // namespace lenet::cuda::fused
