// Compiled several times: LENET_SIMD_FUNCTION names the function that gives this build's kernels,
// LENET_SIMD_INSTRUCTIONS the instruction set that the compiler's flags allow. All else has internal linkage, and no
// inline function of another header is used: the linker could take it from here for programs on older processors.
#include <stdint.h>

#include "trainer/backend/cpu/kernels.h"

namespace lenet::cpu {
namespace {

// A tile keeps its sums in registers, beside its operands, while it runs over the taps (Product) or the cells
// (Correlation); each value that it loads goes into several sums. The sizes below were the fastest measured.
#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kTileCells = 4;
constexpr int kTileOutputs = 6;
constexpr int kCorrelationOutputs = 6;
constexpr int kCorrelationTaps = 4;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kTileCells = 1;
constexpr int kTileOutputs = 6;
constexpr int kCorrelationOutputs = 3;
constexpr int kCorrelationTaps = 3;
#else
constexpr int kLanes = 4;
constexpr int kTileCells = 1;
constexpr int kTileOutputs = 2;
constexpr int kCorrelationOutputs = 3;
constexpr int kCorrelationTaps = 3;
#endif
constexpr int kCellVectors = kBlock / kLanes;

typedef float Vec __attribute__((vector_size(4 * kLanes), may_alias));
typedef int32_t IntVec __attribute__((vector_size(4 * kLanes), may_alias));
typedef uint8_t ByteVec __attribute__((vector_size(kLanes), aligned(1), may_alias));

inline Vec Load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline void Store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }
inline Vec Splat(float x) { return Vec{} + x; }

inline IntVec IsNan(Vec v) { return v != v; }  // NOLINT(misc-redundant-expression)

// NaN stays NaN.
inline Vec AtLeast(Vec v, float least) { return v < least ? Splat(least) : v; }

inline float Sum(Vec v) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

// Where part i of `parts` begins when n things are dealt out evenly.
inline int64_t PartBegin(int64_t n, int64_t parts, int64_t i) { return n * i / parts; }

template <int kCells, int kOutputs>
void ProductTile(const Product& s, int64_t cell, int64_t q0, const float* in, const float* weights, const float* bias,
                 float* out) {
  constexpr int kVectors = kCells * kCellVectors;
  const float* from[kVectors];
  float* to[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    from[v] = in + s.in_cells[cell + v / kCellVectors] + v % kCellVectors * kLanes;
    to[v] = out + s.out_cells[cell + v / kCellVectors] + v % kCellVectors * kLanes + q0 * s.out_stride;
  }
  Vec sums[kOutputs][kVectors];
  for (int q = 0; q < kOutputs; ++q) {
    const Vec start = Splat(bias != nullptr ? bias[q0 + q] : 0.0f);
    for (int v = 0; v < kVectors; ++v) sums[q][v] = start;
  }
  if (s.accumulate) {
    for (int q = 0; q < kOutputs; ++q) {
      for (int v = 0; v < kVectors; ++v) sums[q][v] = Load(to[v] + q * s.out_stride);
    }
  }
  const float* w = weights + q0 * s.weight_stride;
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t t = 0; t < s.taps; ++t) {
      const int64_t in_tap = s.in_taps[t];
      const float* w_tap = w + s.weight_taps[t];
      Vec x[kVectors];
      for (int v = 0; v < kVectors; ++v) x[v] = Load(from[v] + in_tap);
      for (int q = 0; q < kOutputs; ++q) {
        const float factor = w_tap[q * s.weight_stride];
        for (int v = 0; v < kVectors; ++v) sums[q][v] += x[v] * factor;
      }
    }
    for (int v = 0; v < kVectors; ++v) from[v] += s.in_stride;
    w += s.weight_channel_stride;
  }
  const float least = s.relu ? 0.0f : -__builtin_inff();
  for (int q = 0; q < kOutputs; ++q) {
    for (int v = 0; v < kVectors; ++v) Store(to[v] + q * s.out_stride, AtLeast(sums[q][v], least));
  }
}

// Picks the tile of the size asked for.
template <int kCells, int kOutputs>
void RunProductTile(int64_t cells, int64_t outputs, const Product& s, int64_t cell, int64_t q0, const float* in,
                    const float* weights, const float* bias, float* out) {
  if constexpr (kCells > 1) {
    if (cells < kCells) {
      return RunProductTile<kCells - 1, kOutputs>(cells, outputs, s, cell, q0, in, weights, bias, out);
    }
  }
  if constexpr (kOutputs > 1) {
    if (outputs < kOutputs) {
      return RunProductTile<kCells, kOutputs - 1>(cells, outputs, s, cell, q0, in, weights, bias, out);
    }
  }
  ProductTile<kCells, kOutputs>(s, cell, q0, in, weights, bias, out);
}

void RunProduct(const Product& s, const float* in, const float* weights, const float* bias, float* out) {
  const int64_t cell_tiles = (s.cells + kTileCells - 1) / kTileCells;
  const int64_t output_tiles = (s.outputs + kTileOutputs - 1) / kTileOutputs;
  for (int64_t i = 0; i < cell_tiles; ++i) {
    const int64_t cell = PartBegin(s.cells, cell_tiles, i);
    const int64_t cells = PartBegin(s.cells, cell_tiles, i + 1) - cell;
    for (int64_t j = 0; j < output_tiles; ++j) {
      const int64_t q = PartBegin(s.outputs, output_tiles, j);
      const int64_t outputs = PartBegin(s.outputs, output_tiles, j + 1) - q;
      RunProductTile<kTileCells, kTileOutputs>(cells, outputs, s, cell, q, in, weights, bias, out);
    }
  }
}

template <int kOutputs, int kTaps>
void CorrelationTile(const Correlation& s, int64_t q0, int64_t t0, const float* in, const float* gradient,
                     float* weights) {
  Vec sums[kOutputs][kTaps] = {};
  const float* from[kTaps];
  for (int t = 0; t < kTaps; ++t) from[t] = in + s.in_taps[t0 + t];
  gradient += q0 * s.gradient_stride;
  for (int64_t cell = 0; cell < s.cells; ++cell) {
    for (int v = 0; v < kCellVectors; ++v) {
      const int64_t in_cell = s.in_cells[cell] + v * kLanes;
      const float* g = gradient + s.gradient_cells[cell] + v * kLanes;
      Vec factor[kOutputs];
      for (int q = 0; q < kOutputs; ++q) factor[q] = Load(g + q * s.gradient_stride);
      for (int t = 0; t < kTaps; ++t) {
        const Vec x = Load(from[t] + in_cell);
        for (int q = 0; q < kOutputs; ++q) sums[q][t] += factor[q] * x;
      }
    }
  }
  for (int q = 0; q < kOutputs; ++q) {
    float* row = weights + (q0 + q) * s.taps + t0;
    for (int t = 0; t < kTaps; ++t) row[t] = (s.accumulate ? row[t] : 0.0f) + Sum(sums[q][t]);
  }
}

template <int kOutputs, int kTaps>
void RunCorrelationTile(int64_t outputs, int64_t taps, const Correlation& s, int64_t q0, int64_t t0, const float* in,
                        const float* gradient, float* weights) {
  if constexpr (kOutputs > 1) {
    if (outputs < kOutputs) {
      return RunCorrelationTile<kOutputs - 1, kTaps>(outputs, taps, s, q0, t0, in, gradient, weights);
    }
  }
  if constexpr (kTaps > 1) {
    if (taps < kTaps) {
      return RunCorrelationTile<kOutputs, kTaps - 1>(outputs, taps, s, q0, t0, in, gradient, weights);
    }
  }
  CorrelationTile<kOutputs, kTaps>(s, q0, t0, in, gradient, weights);
}

void Correlate(const Correlation& s, const float* in, const float* gradient, float* weights) {
  const int64_t output_tiles = (s.outputs + kCorrelationOutputs - 1) / kCorrelationOutputs;
  const int64_t tap_tiles = (s.taps + kCorrelationTaps - 1) / kCorrelationTaps;
  for (int64_t i = 0; i < output_tiles; ++i) {
    const int64_t q = PartBegin(s.outputs, output_tiles, i);
    const int64_t outputs = PartBegin(s.outputs, output_tiles, i + 1) - q;
    for (int64_t j = 0; j < tap_tiles; ++j) {
      const int64_t t = PartBegin(s.taps, tap_tiles, j);
      const int64_t taps = PartBegin(s.taps, tap_tiles, j + 1) - t;
      RunCorrelationTile<kCorrelationOutputs, kCorrelationTaps>(outputs, taps, s, q, t, in, gradient, weights);
    }
  }
}

void SumCells(const Correlation& s, const float* gradient, float* sums) {
  constexpr int kChains = 4;  // sums under way at once, to hide the latency of an addition
  for (int64_t q = 0; q < s.outputs; ++q) {
    const float* g = gradient + q * s.gradient_stride;
    Vec chains[kChains] = {};
    const int64_t vectors = s.cells * kCellVectors;
    for (int64_t i = 0; i < vectors; ++i) {
      chains[i % kChains] += Load(g + s.gradient_cells[i / kCellVectors] + i % kCellVectors * kLanes);
    }
    const float sum = Sum((chains[0] + chains[1]) + (chains[2] + chains[3]));
    sums[q] = (s.accumulate ? sums[q] : 0.0f) + sum;
  }
}

// Calls body(in, out, in_gradient, out_gradient) with the offset of the first value of each window and of its result,
// of values and of gradients.
template <typename Body>
inline void ForEachWindow(const Pooling& s, Body body) {
  for (int c = 0; c < s.channels; ++c) {
    for (int y = 0; y < s.out_height; ++y) {
      for (int x = 0; x < s.out_width; ++x) {
        for (int v = 0; v < kCellVectors; ++v) {
          const int64_t in_x = int64_t{x} * s.stride * kBlock + v * kLanes;
          const int64_t out_x = int64_t{x} * kBlock + v * kLanes;
          const int64_t in_y = int64_t{y} * s.stride;
          body(c * s.in_plane + in_y * s.in_row + in_x, c * s.out_plane + y * s.out_row + out_x,
               c * s.in_gradient_plane + in_y * s.in_gradient_row + in_x,
               c * s.out_gradient_plane + y * s.out_gradient_row + out_x);
        }
      }
    }
  }
}

// PyTorch's order: the first of equals wins, and NaN wins over all.
inline IntVec Replaces(Vec candidate, Vec best) { return (candidate > best) | IsNan(candidate); }

// kKernel is the window's side where the compiler shall know it, else 0.
template <int kKernel>
void MaxPoolOf(const Pooling& s, const float* in, float* out) {
  const int kernel = kKernel > 0 ? kKernel : s.kernel;
  ForEachWindow(s, [&](int64_t in_at, int64_t out_at, int64_t, int64_t) {
    Vec best = Load(in + in_at);
    for (int ky = 0; ky < kernel; ++ky) {
      for (int kx = 0; kx < kernel; ++kx) {
        const Vec x = Load(in + in_at + ky * s.in_row + kx * kBlock);
        best = Replaces(x, best) ? x : best;
      }
    }
    Store(out + out_at, best);
  });
}

void MaxPool(const Pooling& s, const float* in, float* out) {
  s.kernel == 2 ? MaxPoolOf<2>(s, in, out) : MaxPoolOf<0>(s, in, out);
}

// Windows overlap where the stride is below the kernel: their gradients add up.
void ClearInputGradient(const Pooling& s, float* in_gradient) {
  const int64_t height = int64_t{s.out_height - 1} * s.stride + s.kernel;
  const int64_t width = (int64_t{s.out_width - 1} * s.stride + s.kernel) * kBlock;
  for (int c = 0; c < s.channels; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      float* row = in_gradient + c * s.in_gradient_plane + y * s.in_gradient_row;
      for (int64_t i = 0; i < width; i += kLanes) Store(row + i, Vec{});
    }
  }
}

template <int kKernel, bool kOverlap>
void MaxPoolBackwardOf(const Pooling& s, const float* in, const float* out_gradient, float* in_gradient) {
  const int kernel = kKernel > 0 ? kKernel : s.kernel;
  if (kOverlap) ClearInputGradient(s, in_gradient);
  ForEachWindow(s, [&](int64_t in_at, int64_t, int64_t in_gradient_at, int64_t out_gradient_at) {
    Vec best = Load(in + in_at);
    IntVec chosen = {};
    for (int ky = 0; ky < kernel; ++ky) {
      for (int kx = 0; kx < kernel; ++kx) {
        const Vec x = Load(in + in_at + ky * s.in_row + kx * kBlock);
        const IntVec replaces = Replaces(x, best);
        best = replaces ? x : best;
        chosen = replaces ? IntVec{} + (ky * kernel + kx) : chosen;
      }
    }
    Vec gradient = Load(out_gradient + out_gradient_at);
    if (s.relu) gradient = best > 0.0f ? gradient : Vec{};
    for (int ky = 0; ky < kernel; ++ky) {
      for (int kx = 0; kx < kernel; ++kx) {
        float* to = in_gradient + in_gradient_at + ky * s.in_gradient_row + kx * kBlock;
        const Vec part = chosen == (ky * kernel + kx) ? gradient : Vec{};
        Store(to, kOverlap ? Load(to) + part : part);
      }
    }
  });
}

void MaxPoolBackward(const Pooling& s, const float* in, const float* out_gradient, float* in_gradient) {
  if (s.stride < s.kernel) {
    MaxPoolBackwardOf<0, true>(s, in, out_gradient, in_gradient);
  } else if (s.kernel == 2) {
    MaxPoolBackwardOf<2, false>(s, in, out_gradient, in_gradient);
  } else {
    MaxPoolBackwardOf<0, false>(s, in, out_gradient, in_gradient);
  }
}

void AveragePool(const Pooling& s, const float* in, float* out) {
  const float area = static_cast<float>(s.kernel) * static_cast<float>(s.kernel);
  ForEachWindow(s, [&](int64_t in_at, int64_t out_at, int64_t, int64_t) {
    Vec sum = {};
    for (int ky = 0; ky < s.kernel; ++ky) {
      for (int kx = 0; kx < s.kernel; ++kx) sum += Load(in + in_at + ky * s.in_row + kx * kBlock);
    }
    Store(out + out_at, sum / area);
  });
}

void AveragePoolBackward(const Pooling& s, const float* out_gradient, float* in_gradient) {
  const float area = static_cast<float>(s.kernel) * static_cast<float>(s.kernel);
  const bool overlap = s.stride < s.kernel;
  if (overlap) ClearInputGradient(s, in_gradient);
  ForEachWindow(s, [&](int64_t, int64_t, int64_t in_gradient_at, int64_t out_gradient_at) {
    const Vec part = Load(out_gradient + out_gradient_at) / area;
    for (int ky = 0; ky < s.kernel; ++ky) {
      for (int kx = 0; kx < s.kernel; ++kx) {
        float* to = in_gradient + in_gradient_at + ky * s.in_gradient_row + kx * kBlock;
        Store(to, overlap ? Load(to) + part : part);
      }
    }
  });
}

void ReluForward(int64_t n, const float* in, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) Store(out + i, AtLeast(Load(in + i), 0.0f));
}

void ReluBackward(int64_t n, const float* out, const float* out_gradient, float* in_gradient) {
  for (int64_t i = 0; i < n; i += kLanes) {
    Store(in_gradient + i, Load(out + i) > 0.0f ? Load(out_gradient + i) : Vec{});
  }
}

// e^x for 0 <= x <= 64: 2^k times a polynomial on [-ln 2 / 2, ln 2 / 2] (Cephes, expf).
inline Vec Exp(Vec x) {
  const IntVec k = __builtin_convertvector(x * 1.44269504088896341f + 0.5f, IntVec);
  const Vec whole = __builtin_convertvector(k, Vec);
  const Vec r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  Vec p = Splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r) * r + r + 1.0f;
  return p * reinterpret_cast<Vec>((k + 127) << 23);
}

// Near 0 an odd polynomial, else 1 - 2 / (e^2|x| + 1) with the sign of x (Cephes, tanhf). NaN stays NaN.
inline Vec Tanh(Vec x) {
  const Vec size = x < 0.0f ? -x : x;
  const Vec z = x * x;
  Vec p = Splat(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const Vec near_zero = (p * z) * x + x;
  const Vec bounded = size < 16.0f ? size : Splat(16.0f);  // 1 in float from 9.1 on
  const Vec far = 1.0f - 2.0f / (Exp(bounded * 2.0f) + 1.0f);
  const Vec result = size < 0.625f ? near_zero : (x < 0.0f ? -far : far);
  return IsNan(x) ? x : result;
}

void TanhForward(int64_t n, const float* in, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) Store(out + i, Tanh(Load(in + i)));
}

void TanhBackward(int64_t n, const float* out, const float* out_gradient, float* in_gradient) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec y = Load(out + i);
    Store(in_gradient + i, Load(out_gradient + i) * (1.0f - y * y));
  }
}

template <int... kIndices>
struct Indices {};
template <int kCount, int... kIndices>
struct MakeIndices : MakeIndices<kCount - 1, kCount - 1, kIndices...> {};
template <int... kIndices>
struct MakeIndices<0, kIndices...> : Indices<kIndices...> {};

// Swaps the blocks beside the diagonal of each square of 2 * kSide values that rows a and b, kSide apart, are part of.
template <int kSide, int... kIndices>
inline void SwapBlocks(Vec* a, Vec* b, Indices<kIndices...>) {
  const Vec upper =
      __builtin_shufflevector(*a, *b, ((kIndices & kSide) != 0 ? kLanes + kIndices - kSide : kIndices)...);
  *b = __builtin_shufflevector(*a, *b, ((kIndices & kSide) != 0 ? kLanes + kIndices : kIndices + kSide)...);
  *a = upper;
}

template <int kSide>
inline void TransposeRows(Vec (&rows)[kLanes]) {
  if constexpr (kSide < kLanes) {
    for (int i = 0; i < kLanes; ++i) {
      if ((i & kSide) == 0) SwapBlocks<kSide>(&rows[i], &rows[i + kSide], MakeIndices<kLanes>());
    }
    TransposeRows<2 * kSide>(rows);
  }
}

// out[i * out_row + j] = in[j * in_row + i] for i, j < kBlock.
inline void TransposeSquare(const float* in, int64_t in_row, float* out, int64_t out_row) {
  for (int i = 0; i < kBlock; i += kLanes) {
    for (int j = 0; j < kBlock; j += kLanes) {
      Vec rows[kLanes];
      for (int r = 0; r < kLanes; ++r) rows[r] = Load(in + (j + r) * in_row + i);
      TransposeRows<1>(rows);
      for (int r = 0; r < kLanes; ++r) Store(out + (i + r) * out_row + j, rows[r]);
    }
  }
}

void Transpose(int64_t features, const float* cells, int64_t row, float* rows) {
  for (int64_t f = 0; f < features; f += kBlock) TransposeSquare(cells + f * kBlock, kBlock, rows + f, row);
}

// bytes / 255, rounded once.
inline Vec Normalize(Vec bytes) {
#if defined(__FMA__)
  constexpr float kFactor = 1.0f / 255.0f;
  const Vec quotient = bytes * kFactor;
  return quotient + (bytes - quotient * 255.0f) * kFactor;
#else
  return bytes / 255.0f;
#endif
}

void Unpack(const uint8_t* const* images, int count, int64_t first, int64_t pixels, float* cells) {
  alignas(64) float square[kBlock * kBlock] = {};  // [image, pixel]
  uint8_t bytes[kBlock] = {};
  const int64_t width = pixels < kBlock ? pixels : kBlock;
  for (int64_t p = 0; p < pixels; p += kBlock) {
    // The last square begins earlier rather than end behind the pixels, and makes some cells again.
    const int64_t begin = p + width <= pixels ? p : pixels - width;
    for (int image = 0; image < count; ++image) {
      const uint8_t* from = images[image] + first + begin;
      if (width < kBlock) {
        for (int64_t i = 0; i < width; ++i) bytes[i] = from[i];
        from = bytes;
      }
      for (int i = 0; i < kBlock; i += kLanes) {
        const IntVec integers = __builtin_convertvector(*reinterpret_cast<const ByteVec*>(from + i), IntVec);
        Store(square + image * kBlock + i, Normalize(__builtin_convertvector(integers, Vec)));
      }
    }
    if (width == kBlock) {
      TransposeSquare(square, kBlock, cells + begin * kBlock, kBlock);
    } else {
      for (int64_t i = 0; i < width * kBlock; ++i) cells[i] = square[i % kBlock * kBlock + i / kBlock];
    }
  }
}

constexpr Kernels kKernels = {
    .instruction_set = LENET_SIMD_INSTRUCTIONS,
    .product = RunProduct,
    .correlate = Correlate,
    .sum_cells = SumCells,
    .max_pool = MaxPool,
    .average_pool = AveragePool,
    .max_pool_backward = MaxPoolBackward,
    .average_pool_backward = AveragePoolBackward,
    .relu = ReluForward,
    .relu_backward = ReluBackward,
    .tanh = TanhForward,
    .tanh_backward = TanhBackward,
    .transpose = Transpose,
    .unpack = Unpack,
};

}  // namespace

const Kernels& LENET_SIMD_FUNCTION() { return kKernels; }

}  // namespace lenet::cpu
