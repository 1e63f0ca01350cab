// The gradient from what the pass over the batch left: products over the batch for the linear layers, sums over blocks
// for the convolutions. Every sum has a fixed order: where several blocks share a tile, each with a slice of the batch,
// the last one to arrive adds up their sums in the order of the slices.
#include <algorithm>
#include <cuda/atomic>

#include "trainer/backend/cuda/block_sum.cuh"
#include "trainer/backend/cuda/fused_values.cuh"
#include "trainer/backend/cuda/launch_early.cuh"
#include "trainer/backend/cuda/tensor_core.cuh"

namespace lenet::cuda::fused {
namespace {

// Weights of a linear layer that a block has. Small batches take many small tiles, large ones larger tiles, whose
// products go through the tensor cores.
struct SmallTile {
  static constexpr int kOutputs = 8;
  static constexpr int kInputs = 64;
  static constexpr int kWarps = 16;
  static constexpr bool kSliced = false;
};
struct LargeTile {
  static constexpr int kOutputs = 32;
  static constexpr int kInputs = 64;
  static constexpr int kWarps = 8;
  static constexpr bool kSliced = true;  // blocks share a tile, each with a slice of the batch
};
template <typename Tile>
constexpr int kThreads = Tile::kWarps* kWarp;
constexpr int kLargeBatch = 256;

// A block of the convolutions' parameters, each of which several threads share.
constexpr int kColumnLanes = 8;
template <typename Tile>
constexpr int kColumns = kThreads<Tile> / kColumnLanes;
template <typename Tile>
constexpr int kConvBlocks = (kConvPartials + kColumns<Tile> - 1) / kColumns<Tile>;

template <typename Tile>
__host__ __device__ constexpr int Tiles(int outputs, int inputs) {
  return (outputs + Tile::kOutputs - 1) / Tile::kOutputs * ((inputs + Tile::kInputs - 1) / Tile::kInputs);
}
template <typename Tile>
__host__ __device__ constexpr int LinearTiles(int classes) {
  return Tiles<Tile>(kFeatures1, kFeatures0) + Tiles<Tile>(kFeatures2, kFeatures1) + Tiles<Tile>(classes, kFeatures2);
}

// A tile's sums, and those of its biases behind it: of a warp, or of a block with a slice of the batch.
template <typename Tile>
constexpr int kTileSums = Tile::kOutputs* Tile::kInputs + Tile::kOutputs;

extern __shared__ __align__(16) float memory[];  // [Tile::kWarps][kTileSums]

// Blocks that share a tile: enough to keep the device busy, while a warp still has some images.
int Slices(int batch) { return batch <= kLargeBatch ? 1 : std::min(9, batch / (8 * LargeTile::kWarps)); }

struct Layer {
  int outputs, inputs;
  int gradient_column, input_column;  // in the rows that the pass has left
  int weight, bias;                   // offsets
};

// Whether this block is the last of its tile to come here; then it sees what the others have written.
__device__ bool IsLast(uint32_t* arrivals, int slices) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_device> arrived(*arrivals);
    last = arrived.fetch_add(1, ::cuda::memory_order_acq_rel) == static_cast<uint32_t>(slices) - 1;
    if (last) *arrivals = 0;
  }
  __syncthreads();
  return last;
}

// This warp's sums over the images first, first + stride, … of the batch, to its place in memory. A lane has 4 x 4
// weights. The rows have zeros, or other layers' values that are not used, beyond the outputs.
__device__ __forceinline__ void AddImages(SmallTile, const GradientArguments& a, const Layer& layer, int first_output,
                                          int first_input, int first, int stride) {
  const int lane = threadIdx.x % kWarp;
  const int output = lane / 16 * 4;
  const int input = lane % 16 * 4;
  float sums[4][4] = {};
  float bias_sums[4] = {};
  const float* gradients = a.gradients + int64_t{first} * kGradientRow + layer.gradient_column + first_output + output;
  const float* inputs = a.inputs + int64_t{first} * kInputRow + layer.input_column +
                        (first_input + input < layer.inputs ? first_input + input : 0);
  constexpr int kAtOnce = 4;
  for (int b = first; b < a.batch; b += kAtOnce * stride) {
    float4 d[kAtOnce], x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const bool valid = b + i * stride < a.batch;
      d[i] = valid ? Load4(gradients) : make_float4(0, 0, 0, 0);
      x[i] = valid ? Load4(inputs) : make_float4(0, 0, 0, 0);
      gradients += stride * kGradientRow;
      inputs += stride * kInputRow;
    }
#pragma unroll
    for (int image = 0; image < kAtOnce; ++image) {
      const float ds[4] = {d[image].x, d[image].y, d[image].z, d[image].w};
      const float xs[4] = {x[image].x, x[image].y, x[image].z, x[image].w};
#pragma unroll
      for (int o = 0; o < 4; ++o) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[o][i] += ds[o] * xs[i];
        bias_sums[o] += ds[o];
      }
    }
  }
  float* const of_warp = memory + threadIdx.x / kWarp * kTileSums<SmallTile>;
#pragma unroll
  for (int o = 0; o < 4; ++o) {
    float* const row = of_warp + (output + o) * SmallTile::kInputs + input;
    Store4(row, make_float4(sums[o][0], sums[o][1], sums[o][2], sums[o][3]));
    if (lane % 16 == 0) of_warp[SmallTile::kOutputs * SmallTile::kInputs + output + o] = bias_sums[o];
  }
}

// The same, eight images at a time as products whose lines are the outputs: images 8 * first to 8 * first + 7, then
// 8 * stride on. Sums of few products each, as long ones lose bits on the tensor cores. Lines and columns beyond the
// layer's are made of other values in the rows, and up to kBeyondInputs floats after them, and are not used.
__device__ __forceinline__ void AddImages(LargeTile, const GradientArguments& a, const Layer& layer, int first_output,
                                          int first_input, int first, int stride) {
  constexpr int kLines = LargeTile::kOutputs / 16;
  constexpr int kTiles = LargeTile::kInputs / 8;
  const int row = threadIdx.x % kWarp / 4;
  const int column = threadIdx.x % 4;
  float sums[kLines][kTiles][4] = {};
  float bias_sums[kLines][2] = {};
#pragma unroll 1
  for (int b = 8 * first; b < a.batch; b += 8 * stride) {
    uint32_t d[kLines][4], d_small[kLines][4];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int image = b + column + 4 * k;
      const bool valid = image < a.batch;
      const float* const gradients =
          a.gradients + int64_t{valid ? image : b} * kGradientRow + layer.gradient_column + first_output + row;
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float v = valid ? gradients[line * 16 + i * 8] : 0;
          bias_sums[line][i] += v;
          SplitTf32(v, d[line][2 * k + i], d_small[line][2 * k + i]);
        }
      }
    }
    const float* const inputs = a.inputs + layer.input_column + first_input + row;
    const float* const inputs0 = inputs + int64_t{min(b + column, a.batch - 1)} * kInputRow;
    const float* const inputs4 = inputs + int64_t{min(b + column + 4, a.batch - 1)} * kInputRow;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      uint32_t x[2], x_small[2];
      SplitTf32(inputs0[n * 8], x[0], x_small[0]);
      SplitTf32(inputs4[n * 8], x[1], x_small[1]);
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
        float products[4] = {};
        AddProductTf32(products, d_small[line], x);
        AddProductTf32(products, d[line], x_small);
        AddProductTf32(products, d[line], x);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[line][n][i] += products[i];
      }
    }
  }
  float* const of_warp = memory + threadIdx.x / kWarp * kTileSums<LargeTile>;
#pragma unroll
  for (int line = 0; line < kLines; ++line) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int o = line * 16 + i * 8 + row;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        *reinterpret_cast<float2*>(of_warp + o * LargeTile::kInputs + n * 8 + 2 * column) =
            make_float2(sums[line][n][2 * i], sums[line][n][2 * i + 1]);
      }
      float bias = bias_sums[line][i];
      bias += __shfl_xor_sync(kAllLanes, bias, 1);
      bias += __shfl_xor_sync(kAllLanes, bias, 2);
      if (column == 0) of_warp[LargeTile::kOutputs * LargeTile::kInputs + o] = bias;
    }
  }
}

// from[0] + from[pitch] + …, of kCount floats each.
template <int kCount>
__device__ __forceinline__ void AddRows(const float* from, int rows, int pitch, float (&sums)[kCount]) {
  const auto add = [&](const float* row) {
    if constexpr (kCount == 4) {
      const float4 v = Load4(row);
      sums[0] += v.x;
      sums[1] += v.y;
      sums[2] += v.z;
      sums[3] += v.w;
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += row[i];
    }
  };
#pragma unroll 8
  for (int r = 0; r < rows; ++r) add(from + r * pitch);
}

// Whether this block wrote the tile; then *square is that of what this thread wrote. tile: of the layer, and of all.
template <typename Tile>
__device__ __forceinline__ bool WriteTile(const GradientArguments& a, const Layer& layer, int tile, int of_all,
                                          int slice, int slices, double* square) {
  constexpr int kSums = kTileSums<Tile>;
  constexpr int kWeights = Tile::kOutputs * Tile::kInputs;
  // A thread has kCount neighbours in each of kParts parts of the tile, and the first threads a bias each.
  constexpr int kCount = kWeights / kThreads<Tile> >= 4 ? 4 : 1;
  constexpr int kParts = kWeights / kThreads<Tile> / kCount;
  static_assert(kParts * kCount * kThreads<Tile> == kWeights && Tile::kOutputs <= kThreads<Tile>);
  const int tiles_across = (layer.inputs + Tile::kInputs - 1) / Tile::kInputs;
  const int first_output = tile / tiles_across * Tile::kOutputs;
  const int first_input = tile % tiles_across * Tile::kInputs;
  const int thread = Thread();
  AddImages(Tile(), a, layer, first_output, first_input, slice * Tile::kWarps + thread / kWarp, slices * Tile::kWarps);
  __syncthreads();
  const bool has_bias = first_input == 0 && thread < Tile::kOutputs;
  float sums[kParts][kCount] = {};
  float bias[1] = {};
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    AddRows(memory + (part * kThreads<Tile> + thread) * kCount, Tile::kWarps, kSums, sums[part]);
  }
  if (has_bias) AddRows(memory + kWeights + thread, Tile::kWarps, kSums, bias);
  if constexpr (Tile::kSliced) {
    float* const partials = a.partials + int64_t{of_all} * slices * kSums;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int at = (part * kThreads<Tile> + thread) * kCount;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        partials[slice * kSums + at + i] = sums[part][i];
        sums[part][i] = 0;
      }
    }
    if (has_bias) partials[slice * kSums + kWeights + thread] = bias[0];
    bias[0] = 0;
    if (!IsLast(a.arrivals + of_all, slices)) return false;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      AddRows(partials + (part * kThreads<Tile> + thread) * kCount, slices, kSums, sums[part]);
    }
    if (has_bias) AddRows(partials + kWeights + thread, slices, kSums, bias);
  }
  double sum = 0;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int at = (part * kThreads<Tile> + thread) * kCount;
    const int output = first_output + at / Tile::kInputs;
    const int input = first_input + at % Tile::kInputs;
    if (output < layer.outputs && input < layer.inputs) {  // the inputs are a multiple of four
      float* const to = a.gradient + layer.weight + output * layer.inputs + input;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        to[i] = sums[part][i];
        sum += double{sums[part][i]} * sums[part][i];
      }
    }
  }
  if (has_bias && first_output + thread < layer.outputs) {
    a.gradient[layer.bias + first_output + thread] = bias[0];
    sum += double{bias[0]} * bias[0];
  }
  *square = sum;
  return true;
}

template <typename Tile>
__device__ double ConvColumns(const GradientArguments& a, int block) {
  constexpr int kColumns = fused::kColumns<Tile>;
  const int column = block * kColumns + threadIdx.x % kColumns;
  float sum = 0;
  if (column < kConvPartials) {
    const float* from = a.conv_partials + column;
#pragma unroll 8
    for (int row = threadIdx.x / kColumns; row < a.conv_partial_rows; row += kColumnLanes) {
      sum += from[int64_t{row} * kConvPartials];
    }
  }
  memory[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= kColumns || column >= kConvPartials) return 0;
#pragma unroll
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

template <int kThreads>
__device__ void StepLoss(const GradientArguments& a) {
  float sum = 0;
#pragma unroll 8
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

template <typename Tile>
__global__ void __launch_bounds__(kThreads<Tile>)
    GradientKernel(const __grid_constant__ GradientArguments a, int wanted_slices) {
  constexpr int kTiles1 = Tiles<Tile>(kFeatures1, kFeatures0);
  constexpr int kTiles2 = Tiles<Tile>(kFeatures2, kFeatures1);
  const Layer fc1 = {kFeatures1, kFeatures0, 0, 0, a.offsets.fc1_weight, a.offsets.fc1_bias};
  const Layer fc2 = {kFeatures2, kFeatures1, kFeatures1, kFeatures0, a.offsets.fc2_weight, a.offsets.fc2_bias};
  const Layer fc3 = {
      a.classes,         kFeatures2, kFeatures1 + kFeatures2, kFeatures0 + kFeatures1, a.offsets.fc3_weight,
      a.offsets.fc3_bias};
  AwaitPrevious();
  LetNextStart();
  const int tiles = LinearTiles<Tile>(a.classes);
  int block = static_cast<int>(blockIdx.x == 0 ? gridDim.x - 1 : blockIdx.x - 1);  // the loss, which takes long, first
  const int slices = Tile::kSliced ? wanted_slices : 1;
  int square_of = block - tiles * (slices - 1);
  double square = 0;
  bool wrote = true;
  if (block < tiles * slices) {
    const int slice = Tile::kSliced ? block / tiles : 0;
    const int tile = block - slice * tiles;
    square_of = tile;
    // The layers' sizes are known where each has its own call.
    if (tile < kTiles1) {
      wrote = WriteTile<Tile>(a, fc1, tile, tile, slice, slices, &square);
    } else if (tile < kTiles1 + kTiles2) {
      wrote = WriteTile<Tile>(a, fc2, tile - kTiles1, tile, slice, slices, &square);
    } else {
      wrote = WriteTile<Tile>(a, fc3, tile - kTiles1 - kTiles2, tile, slice, slices, &square);
    }
  } else if ((block -= tiles * slices) < kConvBlocks<Tile>) {
    square = ConvColumns<Tile>(a, block);
  } else if (a.chunk != nullptr) {
    StepLoss<kThreads<Tile>>(a);
  }
  if (wrote && a.norm_partials != nullptr) {
    square = BlockSum<kThreads<Tile>>(square);
    if (threadIdx.x == 0) a.norm_partials[square_of] = square;
  }
}

template <typename Tile>
constexpr size_t kSharedBytes = sizeof(float) * Tile::kWarps* kTileSums<Tile>;

template <typename Tile>
constexpr int Blocks(int classes) {
  return LinearTiles<Tile>(classes) + kConvBlocks<Tile> + 1;
}

template <typename Tile>
cudaError_t Launch(const GradientArguments& arguments, cudaStream_t stream) {
  const int slices = Slices(arguments.batch);
  const int blocks = Blocks<Tile>(arguments.classes) + LinearTiles<Tile>(arguments.classes) * (slices - 1);
  return LaunchEarly(GradientKernel<Tile>, blocks, kThreads<Tile>, kSharedBytes<Tile>, stream, arguments, slices);
}

}  // namespace

int GradientBlocks(int batch, int classes) {
  static_assert(Blocks<SmallTile>(kMaxClasses) <= kMaxNormBlocks && Blocks<LargeTile>(kMaxClasses) <= kMaxNormBlocks);
  return batch > kLargeBatch ? Blocks<LargeTile>(classes) : Blocks<SmallTile>(classes);
}

int64_t GradientPartials(int batch, int classes) {
  return batch <= kLargeBatch ? 0 : int64_t{LinearTiles<LargeTile>(classes)} * Slices(batch) * kTileSums<LargeTile>;
}

cudaError_t PrepareGradient() {
  return cudaFuncSetAttribute(GradientKernel<LargeTile>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(kSharedBytes<LargeTile>));
}

cudaError_t LaunchGradient(const GradientArguments& arguments, cudaStream_t stream) {
  return arguments.batch > kLargeBatch ? Launch<LargeTile>(arguments, stream) : Launch<SmallTile>(arguments, stream);
}

}  // namespace lenet::cuda::fused
