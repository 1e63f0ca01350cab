// The two convolutions with their activation and pooling, forward and back, as a block of kWarps warps does them for an
// image.
//
// A window is the 2x2 sums of a convolution of which pooling keeps the largest; its sums are numbered 0 to 3, row by
// row. Forward both convolutions are products on the tensor cores, whose lines are one sum of 8 windows and another sum
// of the same: so one thread gets all sums of a window. Back, three of a window's four sums have a gradient of zero:
// the second convolution skips them by branches on which all lanes of a warp agree, the first goes through the tensor
// cores.
#ifndef LENET_TRAINER_BACKEND_CUDA_FUSED_CONV_CUH_
#define LENET_TRAINER_BACKEND_CUDA_FUSED_CONV_CUH_

#include <cuda_pipeline.h>

#include "trainer/backend/cuda/fused_values.cuh"
#include "trainer/backend/cuda/tensor_core.cuh"

namespace lenet::cuda::fused {

inline constexpr int kRowPairs = kSide / 2;  // of an image row
inline constexpr float kPixelScale = 1.0f / 255;

// The maximum of a window's sums; the first of equals wins, and the first NaN against all numbers.
__device__ __forceinline__ float Maximum(const float (&sums)[4], int* winner) {
  float best = sums[0];
  *winner = 0;
#pragma unroll
  for (int k = 1; k < 4; ++k) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(best), "f"(sums[k]));
    // Compared by bits, as a NaN does not equal itself. A zero is +0 here, as these sums begin with +0.
    *winner = __float_as_uint(larger) != __float_as_uint(best) ? k : *winner;
    best = larger;
  }
  return best;
}

// The first convolution's inner dimension of 32 are pairs of neighbours in a window's row, three a row (the last one's
// second weight is zero), and a sixteenth of zeros.
inline constexpr int kPairs = 15;

// Starts to copy the second convolution's weights, which have come after __pipeline_wait_prior(0).
template <int kWarps>
__device__ __forceinline__ void CopySecondWeights(const float* from, float* to) {
  constexpr int kInner = kMaps1 * kTaps;
#pragma unroll
  for (int i = Thread(); i < kWeights2 / 2; i += kWarps * kWarp) {
    __pipeline_memcpy_async(to + 2 * i / kInner * kWeightPitch + 2 * i % kInner, from + 2 * i, 2 * sizeof(float));
  }
}

// Loads the weights. The first convolution's are split into the fragments of the product: of lane l, part p,
// first[p][l] holds b[0] and b[1] of the first and of the second half of the inner dimension. The second convolution's
// have come after __pipeline_wait_prior(0); both for all threads after a barrier then. Does `meanwhile` while it waits.
template <int kWarps, typename Meanwhile>
__device__ __forceinline__ void LoadConvWeights(const float* parameters, const Offsets& at, ConvWeights& to,
                                                const Meanwhile& meanwhile) {
  const int fragment = WarpIndex();
  const int map = Lane() / 4;
  const int pair = fragment * 4 + Lane() % 4;
  float w[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int x = pair % 3 * 2 + i;
    if (map < kMaps1 && pair < kPairs && x < 5) {
      w[i] = __ldcg(parameters + at.conv1_weight + map * kTaps + pair / 3 * 5 + x);
    }
  }
  if (fragment == 4 && Lane() < kMaps1) w[0] = __ldcg(parameters + at.conv1_bias + Lane());
  CopySecondWeights<kWarps>(parameters + at.conv2_weight, to.second);
  if (Thread() < kMaps2) {
    __pipeline_memcpy_async(to.second_bias + Thread(), parameters + at.conv2_bias + Thread(), sizeof(float));
  }
  __pipeline_commit();
  meanwhile();
  if (fragment < 4) {
    uint32_t parts[2][3];
    SplitBf16(w[0], parts[0]);
    SplitBf16(w[1], parts[1]);
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      reinterpret_cast<uint32_t*>(&to.first[part][Lane()])[fragment] = parts[0][part] >> 16 | parts[1][part];
    }
  } else if (fragment == 4 && Lane() < kMaps1) {
    to.first_bias[Lane()] = w[0];
  }
}

// --- First convolution: pixels as bytes, exact in BF16; weights, and on the way back gradients, as three BF16 numbers.
// Each product is exact, sums are the tensor cores', and the scale of the pixels comes last.

// From the pixels to pool1, by the first kConv1Warps warps.
inline constexpr int kConv1Warps = 9;
__device__ __forceinline__ void Conv1(const ConvWeights& all, const Pixels& image, ConvValues& values) {
  constexpr int kUnits = kArea1 / 8 / kConv1Warps;  // of a warp, each 8 windows
  if (WarpIndex() >= kConv1Warps) return;
  const int row = Lane() / 4;
  const int column = Lane() % 4;
  int at[2][2];  // of this lane's pairs, from that of its window
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int pair = min(4 * i + column, kPairs - 1);
    at[i / 2][i % 2] = pair / 3 * kRowPairs + pair % 3;
  }
  uint4 weights[3];
#pragma unroll
  for (int part = 0; part < 3; ++part) weights[part] = all.first[part][Lane()];
  uint32_t a[kUnits][2][2][4];  // [half of the inner dimension][row of the window]
  float sums[kUnits][2][4] = {};
  int windows[kUnits];
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    windows[unit] = (unit * kConv1Warps + WarpIndex()) * 8 + row;
    const int first = windows[unit] / kSide1 * 2 * kRowPairs + windows[unit] % kSide1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int y = 0; y < 2; ++y) {
        const int from = first + y * kRowPairs;
        a[unit][half][y][0] = image.even[from + at[half][0]];
        a[unit][half][y][1] = image.odd[from + at[half][0]];
        a[unit][half][y][2] = image.even[from + at[half][1]];
        a[unit][half][y][3] = image.odd[from + at[half][1]];
      }
    }
  }
#pragma unroll
  for (int part = 2; part >= 0; --part) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
        for (int y = 0; y < 2; ++y) {
          AddProductBf16(sums[unit][y], a[unit][half][y], half == 0 ? weights[part].x : weights[part].z,
                         half == 0 ? weights[part].y : weights[part].w);
        }
      }
    }
  }
  if (column >= kMaps1 / 2) return;
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float of_window[4] = {sums[unit][0][i], sums[unit][0][i + 2], sums[unit][1][i], sums[unit][1][i + 2]};
      int winner;
      const float best = Maximum(of_window, &winner);
      const int map = 2 * column + i;
      values.pool1[map * kMapPitch + windows[unit]] = Relu(best * kPixelScale + all.first_bias[map]);
      values.winner1[map * kMapPitch + windows[unit]] = static_cast<uint8_t>(winner);
    }
  }
}

// Adds to `sums` the gradient of the first convolution's parameters: lines are its taps, and a line of ones for the
// bias; columns its maps. Of the weights it is 255 times too large.
inline constexpr int kTapLines = 32;
template <int kWarps>
__device__ __forceinline__ void Conv1Weights(const Pixels& image, const ConvValues& values, float (&sums)[2][4]) {
  // A warp takes four windows, an inner dimension of 16, of every kRowWarps-th row.
  constexpr int kRowWarps = kWarps >= 12 ? 4 : 2;
  constexpr int kQuads = kSide1 / 4;
  constexpr uint32_t kOnes = 0x3f803f80;
  if (WarpIndex() >= kRowWarps * kQuads) return;
  const int row = Lane() / 4;
  const int column = Lane() % 4;
  const int first_y = WarpIndex() / kQuads;
  const int x = WarpIndex() % kQuads * 4 + column;
  const uint32_t* from[4];  // of this lane's taps
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int tap = min(i * 8 + row, kTaps - 1);
    from[i] = (tap % 5 % 2 == 0 ? image.even : image.odd) + (2 * first_y + tap / 5) * kRowPairs + x + tap % 5 / 2;
  }
  const int at = min(row, kMaps1 - 1) * kMapPitch + first_y * kSide1 + x;
  const float* const gradients = values.pool1 + at;
  const uint8_t* const winners = values.winner1 + at;
  float of_image[2][4] = {};
#pragma unroll
  for (int i = 0; i < kSide1 / kRowWarps; ++i) {
    const int y = i * kRowWarps;
    uint32_t a[2][4];
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      a[tap / 2][tap % 2] = from[tap][2 * y * kRowPairs];
      a[tap / 2][tap % 2 + 2] = from[tap][(2 * y + 1) * kRowPairs];
    }
    if (row == kTaps % 8) a[1][1] = a[1][3] = kOnes;
    const int winner = winners[y * kSide1];
    uint32_t parts[3];
    SplitBf16(row < kMaps1 ? gradients[y * kSide1] : 0, parts);
    // Bytes of a part or zero: into the place of the winner in a pair of the upper or of the lower row.
    const uint32_t place = winner % 2 == 0 ? 0x4432 : 0x3244;
    const uint32_t upper = winner < 2 ? place : 0x4444;
    const uint32_t lower = winner < 2 ? 0x4444 : place;
#pragma unroll
    for (int part = 2; part >= 0; --part) {
      const uint32_t b0 = __byte_perm(parts[part], 0, upper);
      const uint32_t b1 = __byte_perm(parts[part], 0, lower);
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) AddProductBf16(of_image[tile], a[tile], b0, b1);
    }
  }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[tile][i] += of_image[tile][i];
  }
}

// --- Second convolution: three products of TF32 numbers a product.

// The sums of a window as they lie in scratch, [split][map][window], for a map and a window of the 16.
__device__ __forceinline__ int WindowSlot(int map, int window) { return map * kArea2 + (window ^ (map / 2 % 4 * 2)); }

// From pool1 to `pool2`. scratch: kConv2Scratch<kWarps> floats. Has a barrier in it.
template <int kWarps>
inline constexpr int kConv2Scratch = kWarps / 8 * 4 * kFeatures0 * 4;
template <int kWarps>
__device__ __forceinline__ void Conv2(const ConvWeights& all, ConvValues& values, float* pool2, float* scratch) {
  // Warps that share a sum, each with some of its products.
  constexpr int kSplits = kWarps / 8 * 4;
  // The inner dimension: a row of weights of a map, and of the map three on, with their first four weights each; then
  // the fifth weights of four rows of the one and of four of the other.
  constexpr int kHalfRows = kMaps1 / 2 * 5;
  const int row = Lane() / 4;
  const int column = Lane() % 4;
  if (WarpIndex() < 2 * kSplits) {
    const int split = WarpIndex() % kSplits;
    const int half = WarpIndex() / kSplits;  // of the windows: rows `half` and half + 2 of them
    const float* const from = values.pool1 + 2 * (half + 2 * (row / 4)) * kSide1 + 2 * (row % 4);
    const float* const weights = all.second + row * kWeightPitch;
    float sums[2][2][4] = {};   // [row of the window][half of the maps]
    float small[2][2][4] = {};  // of the products with small parts
    struct Factor {
      uint32_t big[4], small[4];
    };
    const auto load = [&](const float* at, Factor& a) {
#pragma unroll
      for (int i = 0; i < 4; ++i) SplitTf32(at[i / 2 * (kMaps1 / 2) * kMapPitch + i % 2], a.big[i], a.small[i]);
    };
    const auto add = [&](const Factor(&a)[2], const float* at, bool valid) {
      uint32_t b[2][2], b_small[2][2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const float w = at[n * 8 * kWeightPitch + i * kHalfRows * 5];
          SplitTf32(valid ? w : 0, b[n][i], b_small[n][i]);
        }
      }
#pragma unroll
      for (int y = 0; y < 2; ++y) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          AddProductTf32(small[y][n], a[y].small, b[n]);
          AddProductTf32(sums[y][n], a[y].big, b[n]);
        }
      }
#pragma unroll
      for (int y = 0; y < 2; ++y) {
#pragma unroll
        for (int n = 0; n < 2; ++n) AddProductTf32(small[y][n], a[y].big, b_small[n]);
      }
    };
    // Splits take the rows of a map, or of half of it, or last weights.
    constexpr int kSplitsOfMap = kSplits / 4;
    constexpr int kRowsOfSplit = (5 + kSplitsOfMap - 1) / kSplitsOfMap;
    Factor a[2];
    if (split < 3 * kSplitsOfMap) {
      const int map = split / kSplitsOfMap;
      const int first = split % kSplitsOfMap * kRowsOfSplit;
      const float* const at = from + map * kMapPitch + first * kSide1 + column;
      const float* const of_values = weights + (map * 5 + first) * 5 + column;
      load(at, a[0]);
#pragma unroll
      for (int i = 0; i < kRowsOfSplit; ++i) {
        if (first + i >= 5) break;
        load(at + (i + 1) * kSide1, a[1]);
        add(a, of_values + i * 5, true);
        a[0] = a[1];
      }
    } else {
      constexpr int kSteps = (kHalfRows + 3) / 4 / kSplitsOfMap;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        // In place of a sixteenth the fifteenth again, with weights of zero.
        const int wanted = ((split - 3 * kSplitsOfMap) * kSteps + i) * 4 + column;
        const int weight_row = min(wanted, kHalfRows - 1);
        const float* const at = from + weight_row * kSide1 + weight_row / 5 * (kMapPitch - 5 * kSide1) + 4;
        load(at, a[0]);
        load(at + kSide1, a[1]);
        add(a, weights + weight_row * 5 + 4, wanted < kHalfRows);
      }
    }
    float4* const partials = reinterpret_cast<float4*>(scratch) + split * kFeatures0;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto sum = [&](int y, int k) { return sums[y][n][k] + small[y][n][k]; };
        partials[WindowSlot(8 * n + 2 * column + i, half * 8 + row)] =
            make_float4(sum(0, i), sum(0, 2 + i), sum(1, i), sum(1, 2 + i));
      }
    }
  }
  __syncthreads();
  static_assert(kFeatures0 <= kWarps * kWarp);
  if (Thread() < kFeatures0) {
    const int map = Thread() / kArea2;
    const int window = Thread() % kArea2;
    const float4* const partials = reinterpret_cast<const float4*>(scratch) + WindowSlot(map, window);
    float sums[4] = {};
#pragma unroll
    for (int split = 0; split < kSplits; ++split) {
      const float4 v = partials[split * kFeatures0];
      sums[0] += v.x;
      sums[1] += v.y;
      sums[2] += v.z;
      sums[3] += v.w;
    }
    int winner;
    const float best = Maximum(sums, &winner) + all.second_bias[map];
    const int y = window / 8 + window % 8 / 4 * 2;
    const int to = map * kArea2 + y * kSide2 + window % 4;
    pool2[to] = Relu(best);
    values.winner2[to] = static_cast<uint8_t>(winner);
  }
}

// What a lane has of the second convolution on the way back: one row of weights of one map of pool1, 30 lanes in all; a
// warp one row of windows, and four output maps.
struct alignas(16) Conv2Part {
  float pool1[2][kSide1];     // the rows that the row of weights meets in the upper and in the lower row of sums
  float gradient[2][kSide1];  // of those
};

// Adds what a window's gradient d makes of pool1's gradient and of the weights' sums, at column x of the windows; byte
// x of `winners` is its winner. All lanes have the same, which the compiler cannot know, and would do the work of two
// or all branches instead: so they are written out.
template <int x>
__device__ __forceinline__ void AddConv2Window(uint32_t winners, float d, const float (&weights)[5], Conv2Part& part,
                                               float (&sums)[5]) {
  constexpr int k = 2 * x;
  float(&g)[2][kSide1] = part.gradient;
  const float(&p)[2][kSide1] = part.pool1;
// Adds factor * d; the operands by their numbers: gradients 0 to 11, sums from 12, pool1 17 to 28, weights from 29,
// d 34.
#define LENET_ADD(to, factor) "fma.rn.f32 %" #to ", %" #factor ", %34, %" #to ";"
  // clang-format off
  asm volatile(
      "{.reg .pred zero, right, lower; .reg .b32 bit;"
      "setp.eq.f32 zero, %34, 0f00000000;"
      "@zero bra.uni done;"
      "and.b32 bit, %35, %36; setp.ne.u32 right, bit, 0;"
      "and.b32 bit, %35, %37; setp.ne.u32 lower, bit, 0;"
      "@lower bra.uni third;"
      "@right bra.uni second;"
      LENET_ADD(0, 29) LENET_ADD(1, 30) LENET_ADD(2, 31) LENET_ADD(3, 32) LENET_ADD(4, 33)
      LENET_ADD(12, 17) LENET_ADD(13, 18) LENET_ADD(14, 19) LENET_ADD(15, 20) LENET_ADD(16, 21)
      "bra.uni done;"
      "second:"
      LENET_ADD(1, 29) LENET_ADD(2, 30) LENET_ADD(3, 31) LENET_ADD(4, 32) LENET_ADD(5, 33)
      LENET_ADD(12, 18) LENET_ADD(13, 19) LENET_ADD(14, 20) LENET_ADD(15, 21) LENET_ADD(16, 22)
      "bra.uni done;"
      "third: @right bra.uni fourth;"
      LENET_ADD(6, 29) LENET_ADD(7, 30) LENET_ADD(8, 31) LENET_ADD(9, 32) LENET_ADD(10, 33)
      LENET_ADD(12, 23) LENET_ADD(13, 24) LENET_ADD(14, 25) LENET_ADD(15, 26) LENET_ADD(16, 27)
      "bra.uni done;"
      "fourth:"
      LENET_ADD(7, 29) LENET_ADD(8, 30) LENET_ADD(9, 31) LENET_ADD(10, 32) LENET_ADD(11, 33)
      LENET_ADD(12, 24) LENET_ADD(13, 25) LENET_ADD(14, 26) LENET_ADD(15, 27) LENET_ADD(16, 28)
      "done:}"
      : "+f"(g[0][k]), "+f"(g[0][k + 1]), "+f"(g[0][k + 2]), "+f"(g[0][k + 3]), "+f"(g[0][k + 4]), "+f"(g[0][k + 5]),
        "+f"(g[1][k]), "+f"(g[1][k + 1]), "+f"(g[1][k + 2]), "+f"(g[1][k + 3]), "+f"(g[1][k + 4]), "+f"(g[1][k + 5]),
        "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4])
      : "f"(p[0][k]), "f"(p[0][k + 1]), "f"(p[0][k + 2]), "f"(p[0][k + 3]), "f"(p[0][k + 4]), "f"(p[0][k + 5]),
        "f"(p[1][k]), "f"(p[1][k + 1]), "f"(p[1][k + 2]), "f"(p[1][k + 3]), "f"(p[1][k + 4]), "f"(p[1][k + 5]),
        "f"(weights[0]), "f"(weights[1]), "f"(weights[2]), "f"(weights[3]), "f"(weights[4]), "f"(d), "r"(winners),
        "n"(1 << (8 * x)), "n"(2 << (8 * x)));
  // clang-format on
#undef LENET_ADD
}

// Rows of pool1 that a row of windows reaches.
inline constexpr int kWindowRows = 6;
inline constexpr int kConv2BackwardScratch = 16 * kMaps1 * kWindowRows * kSide1;

// From the gradient of pool2, zero where the activation was off, to pool1's, which takes the place of pool1, and adds
// to `sums` the gradient of the weights: of output maps 4 * (warp % 4) + i, in the lane's row. second: of ConvWeights;
// scratch: kConv2BackwardScratch floats. Has a barrier in it and needs one after it.
template <int kWarps>
__device__ __forceinline__ void Conv2Backward(const float* second, const float* pool2, ConvValues& values,
                                              float* scratch, float (&sums)[4][5]) {
  const int lane = min(Lane(), kMaps1 * 5 - 1);  // the last two only take part in shuffles
  const int map = lane / 5;
  const int row = lane % 5;
#pragma unroll 1
  for (int task = WarpIndex(); task < 16; task += kWarps) {
    const int first_map2 = task % 4 * 4;
    const int y = task / 4;
    Conv2Part part = {};
    const float* const from = values.pool1 + map * kMapPitch + (2 * y + row) * kSide1;
#pragma unroll
    for (int i = 0; i < 2 * kSide1; i += 4) {
      *reinterpret_cast<float4*>(&part.pool1[i / kSide1][i % kSide1]) = Load4(from + i);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int map2 = first_map2 + i;
      float weights[5];
#pragma unroll
      for (int x = 0; x < 5; ++x) weights[x] = second[map2 * kWeightPitch + lane * 5 + x];
      const float4 d = Load4(pool2 + map2 * kArea2 + y * kSide2);
      const uint32_t winners = *reinterpret_cast<const uint32_t*>(values.winner2 + map2 * kArea2 + y * kSide2);
      AddConv2Window<0>(winners, d.x, weights, part, sums[i]);
      AddConv2Window<1>(winners, d.y, weights, part, sums[i]);
      AddConv2Window<2>(winners, d.z, weights, part, sums[i]);
      AddConv2Window<3>(winners, d.w, weights, part, sums[i]);
    }
    // The upper row of this lane is the lower of the lane before; a sixth is left.
    float* const partials = scratch + (task * kMaps1 + map) * kWindowRows * kSide1;
    alignas(16) float rows[kSide1];
#pragma unroll
    for (int x = 0; x < kSide1; ++x) {
      const float lower = __shfl_up_sync(kAllLanes, part.gradient[1][x], 1);
      rows[x] = part.gradient[0][x] + (row > 0 ? lower : 0);
    }
    if (Lane() < kMaps1 * 5) {
#pragma unroll
      for (int x = 0; x < kSide1; x += 4) {
        Store4(partials + row * kSide1 + x, *reinterpret_cast<const float4*>(&rows[x]));
        if (row == 4) Store4(partials + 5 * kSide1 + x, *reinterpret_cast<const float4*>(&part.gradient[1][x]));
      }
    }
    __syncwarp();
  }
  __syncthreads();
  // A thread: two neighbours.
  constexpr int kPairsOfRow = kSide1 / 2;
#pragma unroll
  for (int i = Thread(); i < kMaps1 * kSide1 * kPairsOfRow; i += kWarps * kWarp) {
    const int pair = i % kPairsOfRow;
    const int row1 = i / kPairsOfRow % kSide1;
    const int map1 = i / (kPairsOfRow * kSide1);
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int j = 0; j < (kWindowRows + 1) / 2; ++j) {
      const int of_windows = row1 % 2 + 2 * j;
      const int windows = row1 / 2 - j;
      const bool valid = windows >= 0 && windows < kSide2;
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int task = (valid ? windows : 0) * 4 + quarter;
        const float2 v = Load2(scratch + ((task * kMaps1 + map1) * kWindowRows + of_windows) * kSide1 + 2 * pair);
        sum.x += valid ? v.x : 0;
        sum.y += valid ? v.y : 0;
      }
    }
    float2& pool1 = *reinterpret_cast<float2*>(values.pool1 + map1 * kMapPitch + row1 * kSide1 + 2 * pair);
    pool1 = make_float2(pool1.x <= 0 ? 0.0f : sum.x, pool1.y <= 0 ? 0.0f : sum.y);
  }
}

// A thread's sums over all images of a block.
struct ConvSums {
  float weights2[4][5] = {};  // see Conv2Backward
  float weights1[2][4] = {};  // see Conv1Weights
  float bias2 = 0;            // of map thread / 16, below 256
};

// Adds up over the block and stores its row of partial sums. scratch: kConvSumScratch<kWarps> floats of shared memory.
template <int kWarps>
inline constexpr int kConvSumScratch = kWarps / 4 * kWeights2 + kWarps* kTapLines * 8 + kMaps2;
template <int kWarps>
__device__ void StoreConvSums(const ConvSums& sums, float* scratch, float* out) {
  float* const of_weights2 = scratch;                               // [kWarps / 4][kWeights2]
  float* const of_weights1 = of_weights2 + kWarps / 4 * kWeights2;  // [kWarps][kTapLines][8]
  float* const of_bias2 = of_weights1 + kWarps * kTapLines * 8;     // [kMaps2]
  const int lane = Lane();
  const int warp = WarpIndex();
  if (lane < kMaps1 * 5) {
#pragma unroll
    for (int map = 0; map < 4; ++map) {
#pragma unroll
      for (int x = 0; x < 5; ++x) {
        of_weights2[warp / 4 * kWeights2 + (warp % 4 * 4 + map) * kMaps1 * kTaps + lane * 5 + x] =
            sums.weights2[map][x];
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float* const to = of_weights1 + (warp * kTapLines + tile * 16 + i * 8 + lane / 4) * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = make_float2(sums.weights1[tile][2 * i], sums.weights1[tile][2 * i + 1]);
    }
  }
  __syncwarp();
  const float bias2 = LaneSum<8>(sums.bias2);
  if (Thread() < kFeatures0 && Thread() % kArea2 == 0) of_bias2[Thread() / kArea2] = bias2;
  __syncthreads();
  constexpr int kThreads = kWarps * kWarp;
  static_assert(kThreads >= kWeights1 + kMaps1 + kMaps2);
#pragma unroll
  for (int i = Thread(); i < kWeights2; i += kThreads) {
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kWarps / 4; ++part) sum += of_weights2[part * kWeights2 + i];
    out[i] = sum;
  }
  // Others than have just stored one more of those.
  const int other = kThreads - 1 - Thread();
  if (other < kWeights1 + kMaps1) {
    const bool is_bias = other >= kWeights1;
    const int map = is_bias ? other - kWeights1 : other / kTaps;
    const int tap = is_bias ? kTaps : other % kTaps;
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kWarps; ++part) sum += of_weights1[(part * kTapLines + tap) * 8 + map];
    out[is_bias ? kWeights2 + kWeights1 + kMaps2 + map : kWeights2 + other] = is_bias ? sum : sum * kPixelScale;
  } else if (other < kWeights1 + kMaps1 + kMaps2) {
    const int map = other - kWeights1 - kMaps1;
    out[kWeights2 + kWeights1 + map] = of_bias2[map];
  }
}

}  // namespace lenet::cuda::fused

#endif  // LENET_TRAINER_BACKEND_CUDA_FUSED_CONV_CUH_
