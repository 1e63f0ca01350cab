// Images through the network and back. One block an SM, for its shared memory; each thread keeps a tile of sums in
// registers, sized so that a value read from shared memory serves several multiplications.
#include <cuda_pipeline.h>

#include <cuda/ptx>

#include "trainer/backend/cuda/fused_lenet.h"
#include "trainer/backend/cuda/fused_values.cuh"
#include "trainer/backend/cuda/launch_early.cuh"

namespace lenet::cuda::fused {
namespace {

template <int kImages>
struct Pass {
  Shared<kImages>& s;
  float* const linear;  // shared
  const PassArguments& a;
  const int thread = threadIdx.x;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;

  // Of the images to come.
  static constexpr int kQuads = kPixels / 4;
  const uint32_t* indices;  // [batch]; null: they follow each other
  uint32_t next_index = 0;
  uchar4 pixels;
  uint8_t label = 0;

  // Sums over all images of the block.
  float weights2[4][5] = {};  // maps 4 * (warp % 4) + i, of window row lane % 5 of input map lane / 5
  float weights1[5] = {};     // of window row lane % 5 of map lane / 5
  float bias2 = 0;            // map (thread / 16) % 16
  float bias1 = 0;            // see StorePool1Gradient

  // Starts the copies; conv weights have arrived after AwaitConvWeights, the others after AwaitLinearWeights, each
  // followed by a barrier of the block.
  __device__ void CopyConvWeights() {
    const auto copy = [this](float* to, int from) { __pipeline_memcpy_async(to, a.parameters + from, sizeof(float)); };
    if (thread < kWeights1) {
      copy(&s.conv1[thread % kTaps * 8 + thread / kTaps], a.offsets.conv1_weight + thread);
    } else if (thread < kWeights1 + kMaps1) {
      copy(&s.conv1_bias[thread - kWeights1], a.offsets.conv1_bias + thread - kWeights1);
    } else if (thread < kWeights1 + kMaps1 + kMaps2) {
      const int map = thread - kWeights1 - kMaps1;
      copy(&s.conv2_bias[map], a.offsets.conv2_bias + map);
    }
#pragma unroll
    for (int i = thread; i < kWeights2; i += kThreads) {
      constexpr int kInner = kMaps1 * kTaps;
      copy(&s.conv2[i % kInner * kMaps2 + i / kInner], a.offsets.conv2_weight + i);
    }
    __pipeline_commit();
  }
  __device__ void CopyLinearWeights() {
    if (thread == 0) {
      init(&s.arrived, 1);
      ::cuda::ptx::fence_proxy_async(::cuda::ptx::space_shared);
      const float* const from = a.parameters + a.offsets.fc1_weight;
      const ::cuda::aligned_size_t<16> bytes(sizeof(float) * (a.offsets.end - a.offsets.fc1_weight));
      ::cuda::device::memcpy_async_tx(linear, from, bytes, s.arrived);
      (void)::cuda::device::barrier_arrive_tx(s.arrived, 1, bytes);
    }
  }
  __device__ void AwaitConvWeights() { __pipeline_wait_prior(0); }
  __device__ void AwaitLinearWeights() {
    s.arrived.wait_parity(false);
    __syncwarp();  // threads may leave the wait one by one, and shuffles are slow until they run together again
  }

  // Of the image that this thread has a part in, if the block's images begin at `first`.
  __device__ uint32_t ImageIndex(int first) const {
    static_assert(kImages * kQuads <= kThreads);
    const int b = first + thread / kQuads;
    if (thread >= kImages * kQuads || b >= a.batch) return 0;
    return indices != nullptr ? indices[b] : static_cast<uint32_t>(a.source.begin + b);
  }

  // Starts to load this thread's four pixels of images first, first + 1, …, and the label; zeros beyond the batch. Its
  // image's index must be in next_index, where the one `stride` images on comes in turn: a round ahead, as a thread
  // stands still when it needs what it has just asked for.
  __device__ void FetchImages(int first, int stride) {
    pixels = make_uchar4(0, 0, 0, 0);
    if (thread < kImages * kQuads && first + thread / kQuads < a.batch) {
      pixels = reinterpret_cast<const uchar4*>(a.set.images + int64_t{next_index} * kPixels)[thread % kQuads];
      if (thread % kQuads == 0) label = a.set.labels[next_index];
    }
    next_index = ImageIndex(first + stride);
  }
  __device__ void StoreImages() {
    const int g = thread / kQuads;
    if (g >= kImages) return;
    const float4 x = make_float4(pixels.x / 255.0f, pixels.y / 255.0f, pixels.z / 255.0f, pixels.w / 255.0f);
    *reinterpret_cast<float4*>(s.image[g].x + 4 * (thread % kQuads)) = x;
    if (thread % kQuads == 0) s.image[g].label = label;
  }

  // The 2x2 maximum of sums; the first of equals wins, and a NaN against what came before it.
  __device__ static float Maximum(const float (&sums)[4], int* winner) {
    float best = sums[0];
    *winner = 0;
#pragma unroll
    for (int k = 1; k < 4; ++k) {
      const bool wins = !(sums[k] <= best);
      best = wins ? sums[k] : best;
      *winner = wins ? k : *winner;
    }
    return best;
  }

  // What a 2x2 window of sums is made from; rows in shared memory are kPitch floats apart.
  template <int kPitch>
  __device__ __forceinline__ static void LoadPatch(const float* from, float (&patch)[6][6]) {
#pragma unroll
    for (int y = 0; y < 6; ++y) {
#pragma unroll
      for (int x = 0; x < 6; x += 2) {
        const float2 v = Load2(from + y * kPitch + x);
        patch[y][x] = v.x;
        patch[y][x + 1] = v.y;
      }
    }
  }

  // A thread: a 2x2 window of sums in two maps.
  __device__ void Conv1() {
    constexpr int kArea = kSide1 * kSide1;
    constexpr int kPairs = kMaps1 / 2;
#pragma unroll 1
    for (int i = thread; i < kImages * kPairs * kArea; i += kThreads) {
      const int g = i / (kPairs * kArea);
      const int map = i / kArea % kPairs * 2;
      const int at = i % kArea;
      const float* from = s.image[g].x + at / kSide1 * 2 * kSide + at % kSide1 * 2;
      float patch[6][6];
      LoadPatch<kSide>(from, patch);
      float sums[2][4] = {};
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        const float2 w = Load2(s.conv1 + tap * 8 + map);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float x = patch[tap / 5 + k / 2][tap % 5 + k % 2];
          sums[0][k] += w.x * x;
          sums[1][k] += w.y * x;
        }
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        int winner;
        const float best = Maximum(sums[m], &winner) + s.conv1_bias[map + m];
        const int to = (map + m) * kArea + at;
        s.image[g].pool1[to] = Relu(best);
        s.image[g].winner1[to] = static_cast<uint8_t>(winner);
      }
    }
  }

  // A thread: a 2x2 window of sums in four maps, over its share of the input maps.
  __device__ void Conv2() {
    constexpr int kSplits = MapSplits(kImages);
    static_assert(kImages * kSplits * 64 <= kThreads);
    const int tile = thread % 64;
    const int at = tile % 16;
    const int first_map = tile / 16 * 4;
    const int split = thread / 64 % kSplits;
    const int g = thread / 64 / kSplits;
    float sums[4][4] = {};
    if (g < kImages) {
      constexpr int kMaps = kMaps1 / kSplits;
#pragma unroll 1
      for (int map = split * kMaps; map < (split + 1) * kMaps; ++map) {
        const float* from = s.image[g].pool1 + (map * kSide1 + at / kSide2 * 2) * kSide1 + at % kSide2 * 2;
        float patch[6][6];
        LoadPatch<kSide1>(from, patch);
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap) {
          const float4 w = Load4(s.conv2 + (map * kTaps + tap) * kMaps2 + first_map);
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float x = patch[tap / 5 + k / 2][tap % 5 + k % 2];
            sums[0][k] += w.x * x;
            sums[1][k] += w.y * x;
            sums[2][k] += w.z * x;
            sums[3][k] += w.w * x;
          }
        }
      }
      float4* const partials = reinterpret_cast<float4*>(s.scratch) + (g * kSplits + split) * kFeatures0 + tile;
#pragma unroll
      for (int m = 0; m < 4; ++m) partials[m * 64] = make_float4(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
    }
    __syncthreads();
    // A thread: one window.
    static_assert(kImages * kFeatures0 <= kThreads);
    if (thread < kImages * kFeatures0) {
      const int of = thread % kFeatures0;
      const int image = thread / kFeatures0;
      const float4* const partials = reinterpret_cast<const float4*>(s.scratch) + image * kSplits * kFeatures0 + of;
      float window[4] = {};
#pragma unroll
      for (int other = 0; other < kSplits; ++other) {
        const float4 v = partials[other * kFeatures0];
        window[0] += v.x;
        window[1] += v.y;
        window[2] += v.z;
        window[3] += v.w;
      }
      const int map = of % 64 / 16 * 4 + of / 64;
      int winner;
      const float best = Maximum(window, &winner) + s.conv2_bias[map];
      s.image[image].pool2[map * 16 + of % 16] = Relu(best);
      s.image[image].winner2[map * 16 + of % 16] = static_cast<uint8_t>(winner);
    }
  }

  // out = weight [outputs, kIn] * in + bias: a warp takes every 16th output, a lane four or eight inputs. `in` and
  // `out` are members of ImageValues. outputs <= 128.
  template <int kIn, int kOut, int kInSize>
  __device__ void Linear(const float* weight, const float* bias, int outputs, bool relu,
                         float (ImageValues::*in)[kInSize], float (ImageValues::*out)[kOut]) {
    constexpr int kRows = 8;
    constexpr int kLaneQuads = (kIn / 4 + kWarp - 1) / kWarp;
    float4 x[kImages][kLaneQuads];
#pragma unroll
    for (int q = 0; q < kLaneQuads; ++q) {
      const int quad = lane + q * kWarp;
#pragma unroll
      for (int g = 0; g < kImages; ++g) {
        x[g][q] = quad < kIn / 4 ? Load4(s.image[g].*in + 4 * quad) : make_float4(0, 0, 0, 0);
      }
    }
    float sums[kImages][kRows] = {};
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (row * kWarps >= outputs) break;
      const int o = min(warp + row * kWarps, outputs - 1);
#pragma unroll
      for (int q = 0; q < kLaneQuads; ++q) {
        const int quad = lane + q * kWarp;
        const float4 w = quad < kIn / 4 ? Load4(weight + o * kIn + 4 * quad) : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int g = 0; g < kImages; ++g) {
          sums[g][row] += w.x * x[g][q].x;
          sums[g][row] += w.y * x[g][q].y;
          sums[g][row] += w.z * x[g][q].z;
          sums[g][row] += w.w * x[g][q].w;
        }
      }
    }
    // The row's bits from the lane's bits 16, 8 and 4, then over the four lanes that are left.
#pragma unroll
    for (int g = 0; g < kImages; ++g) {
      Fold<kRows, 16, 4>(sums[g]);
      sums[g][0] += __shfl_xor_sync(kAllLanes, sums[g][0], 2);
      sums[g][0] += __shfl_xor_sync(kAllLanes, sums[g][0], 1);
    }
    const int o = warp + lane / 4 * kWarps;
    if (lane % 4 == 0 && o < outputs) {
#pragma unroll
      for (int g = 0; g < kImages; ++g) {
        const float sum = sums[g][0] + bias[o];
        (s.image[g].*out)[o] = relu ? Relu(sum) : sum;
      }
    }
    __syncwarp();
  }

  // A warp an image. As SoftmaxLossKernel.
  template <bool kBackward>
  __device__ void SoftmaxLoss(int first) {
    if (warp >= kImages || first + warp >= a.batch) {
      if (kBackward && warp < kImages) {
        for (int c = lane; c < kMaxClasses; c += kWarp) s.image[warp].gradient3[c] = 0;
      }
      return;
    }
    const int b = first + warp;
    const float* const z = s.image[warp].logits;
    const int label = static_cast<int>(s.image[warp].label);
    const float lowest = -__int_as_float(0x7f800000);
    const float z0 = lane < a.classes ? z[lane] : lowest;
    const float z1 = lane + kWarp < a.classes ? z[lane + kWarp] : lowest;
    float top = fmaxf(z0, z1);
    for (int bit = kWarp / 2; bit > 0; bit /= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, bit));
    const float e0 = lane < a.classes ? expf(z0 - top) : 0;
    const float e1 = lane + kWarp < a.classes ? expf(z1 - top) : 0;
    float sum = e0 + e1;
    for (int bit = kWarp / 2; bit > 0; bit /= 2) sum += __shfl_xor_sync(kAllLanes, sum, bit);
    if (kBackward) {
      float* const gradient = s.image[warp].gradient3;
      gradient[lane] = lane < a.classes ? (e0 / sum - (lane == label ? 1 : 0)) * a.scale : 0;
      gradient[lane + kWarp] = lane + kWarp < a.classes ? (e1 / sum - (lane + kWarp == label ? 1 : 0)) * a.scale : 0;
    }
    if (lane == 0) a.losses[b] = logf(sum) + (top - z[label]);
    if (a.correct != nullptr) {
      // The first of the largest. A NaN is none.
      int best = z0 == top ? lane : z1 == top ? lane + kWarp : 2 * kWarp;
      for (int bit = kWarp / 2; bit > 0; bit /= 2) best = min(best, __shfl_xor_sync(kAllLanes, best, bit));
      if (lane == 0) a.correct[b] = best == label;
    }
    if (a.logits != nullptr) {
      for (int c = lane; c < a.classes; c += kWarp) a.logits[int64_t{b} * a.classes + c] = z[c];
    }
  }

  // in = weight^T [kIn, outputs] * out, as kGroups partial sums in scratch: [group][kIn].
  template <int kIn, int kGroups, int kOut>
  __device__ void LinearBackward(const float* weight, int outputs, float (ImageValues::*out)[kOut]) {
    constexpr int kGroupThreads = kThreads / kGroups;
    const int quad = thread % kGroupThreads;
    const int group = thread / kGroupThreads;
    if (quad < kIn / 4) {
      float4 sum[kImages];
#pragma unroll
      for (int g = 0; g < kImages; ++g) sum[g] = make_float4(0, 0, 0, 0);
#pragma unroll 4
      for (int o = group; o < outputs; o += kGroups) {
        const float4 w = Load4(weight + o * kIn + 4 * quad);
#pragma unroll
        for (int g = 0; g < kImages; ++g) {
          const float d = (s.image[g].*out)[o];
          sum[g].x += w.x * d;
          sum[g].y += w.y * d;
          sum[g].z += w.z * d;
          sum[g].w += w.w * d;
        }
      }
#pragma unroll
      for (int g = 0; g < kImages; ++g) {
        *reinterpret_cast<float4*>(s.scratch + (g * kGroups + group) * kIn + 4 * quad) = sum[g];
      }
    }
    __syncthreads();
  }

  // Of input i of image g.
  template <int kIn, int kGroups>
  __device__ float LinearBackwardSum(int g, int i) const {
    float sum = 0;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) sum += s.scratch[(g * kGroups + group) * kIn + i];
    return sum;
  }

  template <int kIn, int kOut>
  __device__ void HiddenBackward(const float* weight, int outputs, float (ImageValues::*out)[kOut],
                                 float (ImageValues::*hidden)[kIn], float (ImageValues::*gradient)[kIn]) {
    LinearBackward<kIn, kWarps>(weight, outputs, out);
    for (int i = thread; i < kImages * kIn; i += kThreads) {
      const int g = i / kIn;
      const float sum = LinearBackwardSum<kIn, kWarps>(g, i % kIn);
      (s.image[g].*gradient)[i % kIn] = (s.image[g].*hidden)[i % kIn] <= 0 ? 0.0f : sum;
    }
    __syncthreads();
  }

  // The members from pool2 to hidden2 and from gradient1 to gradient3 are such rows.
  __device__ void StoreRows(int first) const {
    constexpr int kRowQuads = (kInputRow + kGradientRow) / 4;
    static_assert(kImages * kRowQuads <= kThreads);
    static_assert(offsetof(ImageValues, logits) - offsetof(ImageValues, pool2) == sizeof(float) * kInputRow);
    static_assert(offsetof(ImageValues, label) - offsetof(ImageValues, gradient1) == sizeof(float) * kGradientRow);
    const int g = thread / kRowQuads;
    if (g >= kImages || first + g >= a.batch) return;
    const int quad = thread % kRowQuads;
    const ImageValues& image = s.image[g];
    const bool input = quad < kInputRow / 4;
    const float* const from = input ? image.pool2 + 4 * quad : image.gradient1 + 4 * quad - kInputRow;
    float* const to = input ? a.inputs + int64_t{first + g} * kInputRow + 4 * quad
                            : a.gradients + int64_t{first + g} * kGradientRow + 4 * quad - kInputRow;
    *reinterpret_cast<float4*>(to) = Load4(from);
  }

  __device__ Scratch& scratch(int g) const {
    return *reinterpret_cast<Scratch*>(s.scratch + g * (ScratchFloats<kImages>() / kImages));
  }

  // The gradient of pool2, from fc1's, and from it that of the conv2 sums.
  __device__ void BackThroughPool2(const float* fc1) {
    constexpr int kGroups = 8;
    static_assert(kImages * kFeatures0 <= kThreads);
    LinearBackward<kFeatures0, kGroups>(fc1, kFeatures1, &ImageValues::gradient1);
    const int g = thread / kFeatures0;
    const int i = thread % kFeatures0;
    float sum = 0;
    if (g < kImages) {
      sum = LinearBackwardSum<kFeatures0, kGroups>(g, i);
      if (s.image[g].pool2[i] <= 0) sum = 0;
      bias2 += sum;
    }
    __syncthreads();
    if (g < kImages) {
      const int winner = s.image[g].winner2[i];
      float* const to = scratch(g).sums2 + SumSlot(i / 16) * kSumPitch + i % 16 / 4 * 16 + i % 4 * 2;
      *reinterpret_cast<float2*>(to) = make_float2(winner == 0 ? sum : 0, winner == 1 ? sum : 0);
      *reinterpret_cast<float2*>(to + 8) = make_float2(winner == 2 ? sum : 0, winner == 3 ? sum : 0);
    }
    __syncthreads();
  }

  // The gradient of pool1. A warp: rows j and j + 8, so that all have as much to do: row j takes window rows 0 to j,
  // row j + 8 the others. A lane: one or two maps, from two of the sums' maps; eight lanes together have all of those.
  __device__ void BackThroughConv2() {
    constexpr int kMaps = kImages;  // of a lane
    static_assert(kWarps == 16 && kMaps1 / kMaps % 3 == 0);
    const int j = warp % 8;
    const int g = kImages == 1 ? 0 : warp / 8;
    const int triple = min(lane / 8, 2);  // the last lanes only take part in shuffles
    const int first_map = kImages == 1 ? 3 * (warp / 8) + triple : 2 * triple;
    const int q = lane % 8;
    const float* const even = scratch(g).sums2 + q * kSumPitch;
    const float* const odd = even + 8 * kSumPitch;
    const float* const weights = s.conv2 + first_map * kTaps * kMaps2 + 2 * q;
    float sums[kMaps * kSide1] = {};
#pragma unroll 1
    for (int ky = 0; ky < 5; ++ky) {
      if (ky == j + 1) {
        StorePool1Gradient(g, first_map, j, sums);
#pragma unroll
        for (float& sum : sums) sum = 0;
      }
      const int row = (j - ky) & 7;
      float d[2][8];
#pragma unroll
      for (int x = 0; x < 8; x += 4) {
        *reinterpret_cast<float4*>(&d[0][x]) = Load4(even + 8 * row + x);
        *reinterpret_cast<float4*>(&d[1][x]) = Load4(odd + 8 * row + x);
      }
#pragma unroll
      for (int m = 0; m < kMaps; ++m) {
#pragma unroll
        for (int kx = 0; kx < 5; ++kx) {
          const float2 w = Load2(weights + (m * kTaps + ky * 5 + kx) * kMaps2);
#pragma unroll
          for (int x = 0; x < 8; ++x) {
            sums[m * kSide1 + x + kx] += w.x * d[0][x];
            sums[m * kSide1 + x + kx] += w.y * d[1][x];
          }
        }
      }
    }
    StorePool1Gradient(g, first_map, j < 4 ? j + 8 : j, sums);
  }

  // Row `row` of kImages maps from `first_map` on, of which each of eight lanes has a part.
  __device__ __forceinline__ void StorePool1Gradient(int g, int first_map, int row, float (&sums)[kImages * kSide1]) {
    const int q = lane % 8;
    int map = first_map;
    int x = q / 2 * 3;
    if constexpr (kImages == 1) {
      Fold<kSide1, 4, 2>(sums);  // values 3 * (q / 2) and two more
#pragma unroll
      for (int i = 0; i < 3; ++i) sums[i] += __shfl_xor_sync(kAllLanes, sums[i], 1);
    } else {
      Fold<2 * kSide1, 4, 1>(sums);  // values 3 * q and two more
      map += q / 4;
      x = q % 4 * 3;
    }
    if (lane >= 24 || (kImages == 1 && q % 2 != 0)) return;
    const int at = (map * kSide1 + row) * kSide1 + x;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const float v = s.image[g].pool1[at + i] <= 0 ? 0.0f : sums[i];
      scratch(g).pool1[at + i] = v;
      bias1 += v;
    }
  }

  // A warp: four of the sums' maps, two of their rows; a lane: one window row of one input map.
  __device__ void Weights2() {
    if (lane >= kMaps1 * 5) return;
    const int first_map = warp % 4 * 4;
    const int first_row = warp / 4 * 2;
#pragma unroll 1
    for (int g = 0; g < kImages; ++g) {
#pragma unroll 1
      for (int row = first_row; row < first_row + 2; ++row) {
        float x[kSide1];
        const float* const from = s.image[g].pool1 + (lane / 5 * kSide1 + row + lane % 5) * kSide1;
#pragma unroll
        for (int i = 0; i < kSide1; i += 4) *reinterpret_cast<float4*>(&x[i]) = Load4(from + i);
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          float d[8];
          const float* const sums = scratch(g).sums2 + SumSlot(first_map + m) * kSumPitch + 8 * row;
          *reinterpret_cast<float4*>(&d[0]) = Load4(sums);
          *reinterpret_cast<float4*>(&d[4]) = Load4(sums + 4);
#pragma unroll
          for (int kx = 0; kx < 5; ++kx) {
#pragma unroll
            for (int i = 0; i < 8; ++i) weights2[m][kx] += d[i] * x[i + kx];
          }
        }
      }
    }
  }

  // A warp: half a row of pool1; a lane: one window row of one map.
  __device__ void Weights1() {
    if (lane >= kMaps1 * 5) return;
    const int map = lane / 5;
    const int ky = lane % 5;
#pragma unroll 1
    for (int task = warp; task < kImages * 2 * kSide1; task += kWarps) {
      const int g = task / (2 * kSide1);
      const int row = task / 2 % kSide1;
      const int half = task % 2;
      const float* const from = s.image[g].x + (2 * row + ky) * kSide + half * kSide1;
      float x[2][16];
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        *reinterpret_cast<float4*>(&x[0][i]) = Load4(from + i);
        *reinterpret_cast<float4*>(&x[1][i]) = Load4(from + kSide + i);
      }
      const int at = (map * kSide1 + row) * kSide1 + half * 6;
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        const float v = scratch(g).pool1[at + i];
        const int winner = s.image[g].winner1[at + i];
        const float d0 = winner == 0 ? v : 0;
        const float d1 = winner == 1 ? v : 0;
        const float d2 = winner == 2 ? v : 0;
        const float d3 = winner == 3 ? v : 0;
#pragma unroll
        for (int kx = 0; kx < 5; ++kx) {
          weights1[kx] += d0 * x[0][2 * i + kx];
          weights1[kx] += d1 * x[0][2 * i + 1 + kx];
          weights1[kx] += d2 * x[1][2 * i + kx];
          weights1[kx] += d3 * x[1][2 * i + 1 + kx];
        }
      }
    }
  }

  // Adds up over the block and stores its row of partial sums. The linear layers' weights are done with.
  __device__ void StorePartials() {
    float* const of_weights2 = linear;                         // [4][kWeights2]
    float* const of_weights1 = linear + 4 * kWeights2;         // [kWarps][kWeights1]
    float* const of_bias1 = of_weights1 + kWarps * kWeights1;  // [kImages * 8][kMaps1]
    if (lane < kMaps1 * 5) {
      const int at = lane / 5 * kTaps + lane % 5 * 5;
#pragma unroll
      for (int kx = 0; kx < 5; ++kx) {
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          of_weights2[warp / 4 * kWeights2 + (warp % 4 * 4 + m) * kMaps1 * kTaps + at + kx] = weights2[m][kx];
        }
        of_weights1[warp * kWeights1 + at + kx] = weights1[kx];
      }
    }
    // bias1 of a lane is of the map that StorePool1Gradient gave it: over the lanes of that map, then over the warps.
    constexpr int kMapLanes = 8 / kImages;
    for (int bit = 1; bit < kMapLanes; bit *= 2) bias1 += __shfl_xor_sync(kAllLanes, bias1, bit);
    if (lane < 24 && lane % kMapLanes == 0) {
      const int map = lane / kMapLanes + (kImages == 1 ? 3 * (warp / 8) : 0);
      of_bias1[(kImages == 1 ? warp % 8 : warp) * kMaps1 + map] = bias1;
    }
    for (int bit = 1; bit < 16; bit *= 2) bias2 += __shfl_xor_sync(kAllLanes, bias2, bit);
    float* const of_bias2 = of_bias1 + kImages * 8 * kMaps1;  // [kImages][kMaps2]
    if (thread < kImages * kFeatures0 && thread % 16 == 0) of_bias2[thread / 16] = bias2;
    __syncthreads();
    float* const out = a.conv_partials + int64_t{blockIdx.x} * kConvPartials;
    StoreSums<4, kWeights2>(thread, of_weights2, out);
    StoreSums<kWarps, kWeights1>(thread, of_weights1, out + kWeights2);
    // Others than have just stored those.
    constexpr int kFirst = 256;
    StoreSums<kImages, kMaps2>(thread - kFirst, of_bias2, out + kWeights2 + kWeights1);
    StoreSums<kImages * 8, kMaps1>(thread - kFirst - kWarp, of_bias1, out + kWeights2 + kWeights1 + kMaps2);
  }

  // out[i] = the sum over rows of from[row * kCount + i], by the threads from 0 on.
  template <int kRows, int kCount>
  __device__ static void StoreSums(int thread, const float* from, float* out) {
#pragma unroll
    for (int i = thread; i < kCount; i += kThreads) {
      if (i < 0) break;
      float sum = 0;
#pragma unroll
      for (int row = 0; row < kRows; ++row) sum += from[row * kCount + i];
      out[i] = sum;
    }
  }
};

__device__ const uint32_t* BatchIndices(const PassArguments& a) {
  const Chunk* const chunk = a.source.chunk;
  if (chunk == nullptr) return a.source.indices;
  return reinterpret_cast<const uint32_t*>(chunk + 1) + int64_t{chunk->next_step} * a.batch;
}

template <int kImages, bool kBackward>
__global__ void __launch_bounds__(kThreads, 1) PassKernel(const __grid_constant__ PassArguments arguments) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // before, blocks get too little shared memory
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<kImages>*>(memory);
  float* const linear = reinterpret_cast<float*>(memory + sizeof(Shared<kImages>));
  Pass<kImages> pass{shared, linear, arguments};
  pass.indices = BatchIndices(arguments);
  const Offsets& at = arguments.offsets;
  const auto parameter = [&](int offset) { return linear + (offset - at.fc1_weight); };
  const int classes = arguments.classes;
  const int stride = gridDim.x * kImages;
  int first = blockIdx.x * kImages;
  // Before the wait: the update, which this may overlap, writes none of what these read, and has itself waited for all
  // that did.
  pass.next_index = pass.ImageIndex(first);
  pass.FetchImages(first, stride);
  AwaitPrevious();
  LetNextStart();
  pass.CopyConvWeights();
  pass.CopyLinearWeights();
  pass.AwaitConvWeights();
  for (; first < arguments.batch; first += stride) {
    pass.StoreImages();
    __syncthreads();
    pass.FetchImages(first + stride, stride);
    pass.Conv1();
    __syncthreads();
    pass.Conv2();
    pass.AwaitLinearWeights();
    __syncthreads();
    pass.template Linear<kFeatures0>(parameter(at.fc1_weight), parameter(at.fc1_bias), kFeatures1, true,
                                     &ImageValues::pool2, &ImageValues::hidden1);
    __syncthreads();
    pass.template Linear<kFeatures1>(parameter(at.fc2_weight), parameter(at.fc2_bias), kFeatures2, true,
                                     &ImageValues::hidden1, &ImageValues::hidden2);
    __syncthreads();
    pass.template Linear<kFeatures2>(parameter(at.fc3_weight), parameter(at.fc3_bias), classes, false,
                                     &ImageValues::hidden2, &ImageValues::logits);
    __syncthreads();
    pass.template SoftmaxLoss<kBackward>(first);
    __syncthreads();
    if constexpr (kBackward) {
      pass.HiddenBackward(parameter(at.fc3_weight), classes, &ImageValues::gradient3, &ImageValues::hidden2,
                          &ImageValues::gradient2);
      pass.HiddenBackward(parameter(at.fc2_weight), kFeatures2, &ImageValues::gradient2, &ImageValues::hidden1,
                          &ImageValues::gradient1);
      pass.StoreRows(first);
      pass.BackThroughPool2(parameter(at.fc1_weight));
      pass.BackThroughConv2();
      pass.Weights2();
      __syncthreads();
      pass.Weights1();
      __syncthreads();
    }
  }
  if constexpr (kBackward) pass.StorePartials();
#endif
}

template <int kImages>
cudaError_t Prepare(const Offsets& offsets) {
  const int bytes = static_cast<int>(SharedBytes<kImages>(offsets));
  cudaError_t result =
      cudaFuncSetAttribute(PassKernel<kImages, true>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (result != cudaSuccess) return result;
  return cudaFuncSetAttribute(PassKernel<kImages, false>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

template <int kImages>
cudaError_t Launch(const PassArguments& arguments, int blocks, cudaStream_t stream) {
  auto* kernel = arguments.conv_partials != nullptr ? PassKernel<kImages, true> : PassKernel<kImages, false>;
  return LaunchEarly(kernel, blocks, kThreads, SharedBytes<kImages>(arguments.offsets), stream, arguments);
}

}  // namespace

PassShape ShapeOfPass(const Offsets& offsets, int batch, int multiprocessors, int shared_bytes) {
  PassShape shape;
  // Two images share what a block reads of the weights, but one finishes sooner.
  const bool two = batch > multiprocessors && SharedBytes<2>(offsets) <= static_cast<size_t>(shared_bytes);
  shape.images_at_once = two ? 2 : 1;
  shape.blocks = (batch + shape.images_at_once - 1) / shape.images_at_once;
  if (shape.blocks > multiprocessors) shape.blocks = multiprocessors;
  return shape;
}

int LeastSharedBytes(const Offsets& offsets) { return static_cast<int>(SharedBytes<1>(offsets)); }

cudaError_t PreparePass(const Offsets& offsets, int shared_bytes) {
  const cudaError_t result = Prepare<1>(offsets);
  if (result != cudaSuccess || SharedBytes<2>(offsets) > static_cast<size_t>(shared_bytes)) return result;
  return Prepare<2>(offsets);
}

cudaError_t LaunchPass(const PassArguments& arguments, const PassShape& shape, cudaStream_t stream) {
  return shape.images_at_once == 2 ? Launch<2>(arguments, shape.blocks, stream)
                                   : Launch<1>(arguments, shape.blocks, stream);
}

}  // namespace lenet::cuda::fused
